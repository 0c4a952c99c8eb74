package alloc

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// Attributes are equal by their content, bounded in size, and their coded form is theirs alone.
func TestAttributes(t *testing.T) {
	big := map[string]string{}
	for i := range 1 << 16 {
		big[fmt.Sprint(i)] = ""
	}
	if _, err := NewAttributes(big); !errors.Is(err, ipalloc.ErrLimit) {
		t.Errorf("2^16 attributes: %v", err)
	}
	a, _ := NewAttributes(map[string]string{"b": "2", "a": "", "": "x"})
	c, _ := NewAttributes(map[string]string{"": "x", "a": "", "b": "2"})
	if a != c || len(a.Map()) != 3 || a.Map()["b"] != "2" {
		t.Errorf("%v, %v", a.Map(), c.Map())
	}
	if z, err := NewAttributes(nil); err != nil || z != (Attributes{}) || z.Map() != nil {
		t.Errorf("empty: %v, %v", z, err)
	}
}
