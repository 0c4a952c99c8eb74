package ipset

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// refuses runs calls that must fail, say what stands in the way, and change nothing.
func (w *world) refuses(name string, err error, sentinel error, parts ...string) {
	w.t.Helper()
	if !errors.Is(err, sentinel) {
		w.t.Errorf("%s: %v", name, err)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			w.t.Errorf("%s: %q does not say %q", name, err, p)
		}
	}
}

// TestNestedRefusals: an error names the pool in the way, and nothing changes.
func TestNestedRefusals(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("out", "10.0.0.0/16", 24), poolOf("mid", "10.0.8.0/22", 28), poolOf("in", "10.0.8.64/26", 28))
	before, _ := w.store.MarshalBinary()
	w.refuses("same prefix", w.AddPool(bg, poolOf("x", "10.0.8.0/22", 26)), ipalloc.ErrExists, `"mid"`)
	w.refuses("same prefix, by name before", w.AddPool(bg, poolOf("a", "10.0.8.0/22", 26)), ipalloc.ErrExists, `in "a"`, `by "mid"`)
	w.refuses("part of a block", w.AddPool(bg, poolOf("x", "10.0.0.0/25", 28)), ipalloc.ErrInvalid, `"out"`, "whole blocks", "10.0.0.0/16")
	w.refuses("around a part of a block", w.AddPool(bg, poolOf("x", "10.0.8.0/25", 25)), ipalloc.ErrInvalid, `"x"`, `"in"`)
	w.refuses("larger blocks", w.UpdatePool(bg, poolOf("mid", "10.0.8.0/22", 25)), ipalloc.ErrInvalid, `"mid"`, `"in"`)
	w.refuses("pool between", w.RemovePool(bg, "mid"), ipalloc.ErrInvalid, `"out"`, `"in"`)
	w.refuses("grows to the same", w.UpdatePool(bg, poolOf("mid", "10.0.0.0/16", 28)), ipalloc.ErrExists, `"out"`)
	w.refuses("split across a pool", w.Operator().SplitPool(bg, "out", 7), ipalloc.ErrExists, `"mid"`, "10.0.8.0/22")
	w.refuses("split at a pool", w.Operator().SplitPool(bg, "out", 6), ipalloc.ErrExists, `"mid"`)
	w.refuses("parts off the grid", w.Operator().SplitPool(bg, "mid", 3), ipalloc.ErrInvalid, `"out"`)
	w.refuses("merged off the grid", w.Operator().MergePools(bg, "m", "out", "mid"), ipalloc.ErrInvalid, `"m"`, `"in"`)
	if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
		t.Error("the store changed")
	}
}

// TestNestedPoolIsSeenAtOnce: an engine that has the outer pool's blocks in its cache takes nothing from a pool that another engine
// has put there.
func TestNestedPoolIsSeenAtOnce(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("out", "10.0.0.0/28", 30))
	e := w.engine(w.store)
	if _, err := e.AutoAssign(bg, want("h", 3, "p")); err != nil {
		t.Fatal(err)
	}
	p := poolOf("in", "10.0.0.8/29", 30)
	p.Manual = true
	if err := w.AddPool(bg, p); err != nil {
		t.Fatal(err)
	}
	got, err := e.AutoAssign(bg, want("h", 16, "p"))
	if err != nil {
		t.Fatal(err)
	}
	for _, al := range got.V4 {
		if p.Prefix.Contains(al.Address) {
			t.Errorf("%s is the nested pool's", al.Address)
		}
	}
}

// TestDrainingSizesAreRead: a read of the pages of any size that drains which fails ends the search for a new block.
func TestDrainingSizesAreRead(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/20", 26))
	for _, bits := range []int{32, 28, 24} { // above and below the present size, near it and far from it
		w.assign(want(fmt.Sprint("h", bits), 1, "p"))
		if err := w.UpdatePool(bg, poolOf("a", "10.0.0.0/20", bits)); err != nil {
			t.Fatal(err)
		}
	}
	if pools, err := w.Pools(bg); err != nil || len(pools[0].Draining) != 3 {
		t.Fatalf("%+v, %v", pools, err)
	}
	for k, met := 1, true; met; k++ {
		f := faults.NewFaulty(w.store)
		f.Script(faults.At(k, faults.Fail(faults.ErrInjected)))
		a := want(fmt.Sprint("new", k), 1, "q")
		got, err := w.engine(f).AutoAssign(bg, a)
		if met = f.Counts().Calls() >= k; met && !errors.Is(err, faults.ErrInjected) {
			t.Errorf("call %d of the store failed: %+v, %v", k, got, err)
		}
	}
}
