package ipset

import (
	"errors"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
)

// TestGenerationsEnd: a block or a pool that needs a generation beyond the last is refused, and changes nothing.
func TestGenerationsEnd(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/23", 24))
	imported := func(prefix string, generation uint64) error {
		return w.Operator().ImportBlock(bg, mustBlock(t, prefix, block.Options{Owner: alloc.HostOwner("h"), Seq: generation << pool.GenShift}))
	}
	if err := imported("10.0.0.0/24", pool.MaxGeneration-1); err != nil {
		t.Fatal(err)
	}
	rev := w.rev()
	for what, err := range map[string]error{
		"import":     imported("10.0.1.0/24", pool.MaxGeneration),
		"block size": w.UpdatePool(bg, poolOf("a", "10.0.0.0/23", 25)),
	} {
		if !errors.Is(err, ipalloc.ErrLimit) || w.rev() != rev {
			t.Errorf("%s: %v, revision %d, was %d", what, err, w.rev(), rev)
		}
	}
}
