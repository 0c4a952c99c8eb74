package ipset

import (
	"fmt"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// TestImportOfManyWithoutHandle: addresses without handle have no index records and do not count against a commit's limit.
func TestImportOfManyWithoutHandle(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/23", 24))
	b := mustBlock(t, "10.0.0.0/24", block.Options{Owner: alloc.HostOwner("h")})
	for i := range 100 {
		attrs, err := alloc.NewAttributes(map[string]string{"n": fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		b.AutoAssign(nil, 1, alloc.Claim{Attributes: attrs}, w.clock.now(), nil)
	}
	if err := w.engine(limited(w.store, 64)).Operator().ImportBlock(bg, b); err != nil {
		t.Error(err)
	}
	w.check()
}
