package ipset

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// TestWishWhoseStoreFails: an assignment that one failed call of the store ends while it makes the block of the wish returns that error
// and assigns nothing.
func TestWishWhoseStoreFails(t *testing.T) {
	for k := 1; ; k++ {
		w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
		w.assign(want("other", 1, "q"))
		if err := w.UpdatePool(bg, poolOf("p", "10.0.0.0/24", 26)); err != nil { // blocks of the former size are looked for
			t.Fatal(err)
		}
		wish := ip("10.0.0.7")
		if w.blocksOf("other")[0].Overlaps(netip.MustParsePrefix("10.0.0.0/26")) {
			wish = ip("10.0.0.77")
		}
		f := scripted(w.store, faults.At(k, faults.Fail(errDown)))
		got, err := w.engine(f).AutoAssign(bg, alloc.AssignArgs{
			Owner: alloc.HostOwner("h"), Num4: 1, Choose: alloc.Prefer(wish), Handle: "c", Partial: true,
		})
		held, lookErr := w.IPsByHandle(bg, "c")
		if lookErr != nil {
			t.Fatal(lookErr)
		}
		w.check()
		if f.Counts().Calls() < k {
			if err != nil || len(held) != 1 || held[0].Address != wish || k < 4 {
				t.Errorf("%v, %v, %d calls", got, err, k-1)
			}
			return
		}
		if !errors.Is(err, errDown) || len(held) != 0 {
			t.Errorf("call %d fails: %v, %v; held %v", k, got, err, held)
		}
	}
}

// An address that another host reserved at the end of a block which it has left is given to a caller that prefers or names it, with and
// without strict affinity: automatic assignment takes the block over and may give it.
func TestWishInTheEndsOfAnIdleBlock(t *testing.T) {
	for _, strict := range []bool{true, false} {
		for name, ask := range map[string]func(w *world) (alloc.Allocation, error){
			"preferred": func(w *world) (alloc.Allocation, error) {
				a := want("b", 1, "y")
				a.Choose = alloc.Prefer(ip("10.0.0.1"))
				return w.assign(a).V4[0], nil
			},
			"within rules": func(w *world) (alloc.Allocation, error) {
				return w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.1"), Owner: alloc.HostOwner("b"), Handle: "y", WithinRules: true})
			},
		} {
			w := newWorld(t, alloc.Config{Strict: true}, poolOf("p", "10.0.0.0/28", 28))
			ends := want("a", 1, "x")
			ends.Blocks = alloc.BlockArgs{Head: 2}
			w.assign(ends)
			w.releaseHandle("x")
			w.clock.add(time.Hour)
			if err := w.Operator().SetConfig(bg, alloc.Config{Strict: strict}); err != nil {
				t.Fatal(err)
			}
			if al, err := ask(w); err != nil || al.Address != ip("10.0.0.1") || len(w.blocksOf("b")) != 1 {
				t.Errorf("%s, strict %v: %+v, %v", name, strict, al, err)
			}
		}
	}
}
