package ipset

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// used returns the addresses that are held, each in use by its holders.
func (w *world) used() []InUse {
	w.t.Helper()
	var uses []InUse
	for al, err := range w.Allocations(bg, netip.Prefix{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		if al.Cooling {
			continue
		}
		for h := range al.Holders() {
			uses = append(uses, InUse{Address: al.Address, Handle: h.Handle})
		}
	}
	return uses
}

// keeps fails the test if one of the addresses in use is not held by its handle.
func (w *world) keeps(what string, uses []InUse) {
	w.t.Helper()
	for _, u := range uses {
		al, err := w.Lookup(bg, u.Address)
		if err != nil || !slices.ContainsFunc(slices.Collect(al.Holders()), func(h Allocation) bool { return h.Handle == u.Handle }) {
			w.t.Fatalf("%s: %s in use by %q is held by %v, %v", what, u.Address, u.Handle, al, err)
		}
	}
}

// TestUsesBesideAnAssignment compares a right list of uses while another engine starts a pod before the n-th list of the check,
// for every n: the repair leaves what is in use.
func TestUsesBesideAnAssignment(t *testing.T) {
	for n, more := 1, true; more; n++ {
		w := newWorld(t, Config{}, pool("a", "10.0.0.0/24", 26))
		for i := range 10 {
			w.assign(want("h", 1, fmt.Sprint("p", i)))
		}
		uses := w.used()
		f := storetest.NewFaulty(w.store)
		more = false
		f.Script(func(_ context.Context, c storetest.Call) storetest.Outcome {
			if c.Kind == storetest.List && c.Nth == n {
				more = true
				w.assign(want("h", 1, "new"))
			}
			return storetest.Outcome{}
		})
		rep, err := w.engine(f).Check(bg, slices.Values(uses))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Repair(bg, rep.Repair); err != nil {
			t.Fatal(err)
		}
		w.keeps(fmt.Sprintf("assignment before list %d", n), uses)
		w.check()
	}
}

// TestUsesBesideALostRecord compares a right list of uses with each record of an index lost in turn.
func TestUsesBesideALostRecord(t *testing.T) {
	w := busy(t)
	uses := w.used()
	for _, r := range w.list(store.Range{}) {
		if k := r.Key[:1]; k == kindCatalog || k == kindMemo || k == kindBlock || k == kindAddress {
			continue
		}
		if _, err := w.store.Commit(bg, []store.Op{{Kind: store.Delete, Key: r.Key, Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
		for round := 0; ; round++ {
			rep, err := w.Check(bg, slices.Values(uses))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range rep.Problems {
				if p.Kind == Unused || p.Kind == NotHeld {
					t.Fatalf("%q lost: %s", r.Key, p)
				}
			}
			if len(rep.Problems) == 0 && round > 0 {
				break
			}
			if n, err := w.Repair(bg, rep.Repair); err != nil || n == 0 {
				t.Fatalf("%q lost: %d steps, %v: %v", r.Key, n, err, rep.Problems)
			}
		}
		w.keeps(r.Key, uses)
	}
}
