package ipset

import (
	"errors"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// A pool shrinks in three commits: split it, remove the part that goes if nothing of it is held, and merge what stays under the old name. With
// an address outside, merging all parts takes the split back.
func TestPoolShrinks(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	for _, at := range []string{"10.0.0.5", "10.0.0.200"} {
		if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip(at), Owner: alloc.HostOwner("h"), Handle: at}); err != nil {
			t.Fatal(err)
		}
	}
	o := w.Operator()
	shrink := func() error {
		if err := o.SplitPool(bg, "a", 1); err != nil {
			return err
		}
		return o.ChangePools(bg, alloc.PoolChanges{Remove: []string{"a-1"}, IfEmpty: true})
	}
	if err := shrink(); !errors.Is(err, ipalloc.ErrInUse) {
		t.Errorf("with an address outside: %v", err)
	}
	if err := o.MergePools(bg, "a", "a-0", "a-1"); err != nil {
		t.Fatal(err)
	}
	if got := names(t, w.Engine); !slices.Equal(got, []string{"a 10.0.0.0/24"}) {
		t.Errorf("%v", got)
	}
	w.releaseHandle("10.0.0.200")
	if err := shrink(); err != nil {
		t.Fatal(err)
	}
	if err := o.MergePools(bg, "a", "a-0"); err != nil {
		t.Fatal(err)
	}
	if got := names(t, w.Engine); !slices.Equal(got, []string{"a 10.0.0.0/25"}) {
		t.Errorf("%v", got)
	}
	if als, err := w.IPsByHandle(bg, "10.0.0.5"); err != nil || len(als) != 1 {
		t.Errorf("%v, %v", als, err)
	}
}
