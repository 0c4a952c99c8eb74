package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// used returns the addresses that are held, each in use by its holders.
func (w *world) used() []audit.InUse {
	w.t.Helper()
	var uses []audit.InUse
	for al, err := range w.Allocations(bg, netip.Prefix{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		if al.Cooling {
			continue
		}
		for h := range al.Holders() {
			uses = append(uses, audit.InUse{Address: al.Address, Handle: h.Handle})
		}
	}
	return uses
}

// keeps fails the test if one of the addresses in use is not held by its handle.
func (w *world) keeps(what string, uses []audit.InUse) {
	w.t.Helper()
	for _, u := range uses {
		al, err := w.Lookup(bg, u.Address)
		if err != nil || !slices.ContainsFunc(slices.Collect(al.Holders()), func(h alloc.Allocation) bool { return h.Handle == u.Handle }) {
			w.t.Fatalf("%s: %s in use by %q is held by %v, %v", what, u.Address, u.Handle, al, err)
		}
	}
}

// TestUsesBesideAnAssignment compares a right list of uses while another engine starts a pod and ends one before the n-th call of
// the check, for every n: the repair leaves what is in use. A list that is made when the check asks for it shows no problem; one
// that was made before lacks the new pod.
func TestUsesBesideAnAssignment(t *testing.T) {
	for n, more := 1, true; more; n++ {
		for _, live := range []bool{true, false} {
			more = assignBeside(t, n, live)
		}
	}
}

func assignBeside(t *testing.T, n int, live bool) (more bool) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	for i := range 10 {
		w.assign(want("h", 1, fmt.Sprint("p", i)))
	}
	w.assign(want("h", 1, "ends"))
	uses := w.used()
	f := faults.NewFaulty(w.store)
	f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.N == n {
			more = true
			w.assign(want("h", 1, "new"))
			w.releaseHandle("ends")
		}
		return faults.Outcome{}
	})
	list := slices.Values(uses)
	if live {
		list = func(yield func(audit.InUse) bool) { slices.Values(w.used())(yield) }
	}
	rep, err := w.engine(f).Operator().Check(bg, list)
	if err != nil {
		t.Fatal(err)
	}
	if live && len(rep.Problems) > 0 {
		t.Fatalf("assignment before call %d: %v", n, rep.Problems)
	}
	uses = slices.DeleteFunc(uses, func(u audit.InUse) bool { return u.Handle == "ends" })
	if _, err := w.Operator().Repair(bg, rep.Repair); err != nil {
		t.Fatal(err)
	}
	w.keeps(fmt.Sprintf("assignment before call %d", n), uses)
	w.check()
	return more
}

// TestUsesBesideALostRecord compares a right list of uses with each record of an index lost in turn.
func TestUsesBesideALostRecord(t *testing.T) {
	w := busy(t)
	uses := w.used()
	for _, r := range w.list(store.Range{}) {
		if k := r.Key[:1]; k == record.KindCatalog || k == record.KindMemo || k == record.KindBlock || k == record.KindAddress {
			continue
		}
		if _, err := w.store.Commit(bg, []store.Op{{Kind: store.Delete, Key: r.Key, Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
		for round := 0; ; round++ {
			rep, err := w.Operator().Check(bg, slices.Values(uses))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range rep.Problems {
				if p.Kind == audit.Unused || p.Kind == audit.NotHeld {
					t.Fatalf("%q lost: %s", r.Key, p)
				}
			}
			if len(rep.Problems) == 0 && round > 0 {
				break
			}
			if n, err := w.Operator().Repair(bg, rep.Repair); err != nil || n == 0 {
				t.Fatalf("%q lost: %d steps, %v: %v", r.Key, n, err, rep.Problems)
			}
		}
		w.keeps(r.Key, uses)
	}
}

// TestCheckOnAFailingStore: a check that one failed call of the store ends returns that error, also where only a use shows what is wrong.
func TestCheckOnAFailingStore(t *testing.T) {
	w := busy(t)
	w.leaves(audit.MissingIndex)
	uses := append(w.used()[1:], audit.InUse{Address: ip("10.0.0.3"), Handle: "nobody"})
	w.remove(w.list(store.Range{From: record.KindHandle, To: record.EndOf(record.KindHandle), Limit: 1})[0].Key)
	for k := 1; ; k++ {
		f := scripted(w.store, faults.At(k, faults.Fail(errDown)))
		rep, err := w.engine(f).Operator().Check(bg, slices.Values(uses))
		if f.Counts().Calls() < k {
			if err != nil || len(rep.Problems) < 3 || k < 6 {
				t.Errorf("%+v, %v, %d calls", rep, err, k-1)
			}
			return
		}
		if !errors.Is(err, errDown) {
			t.Errorf("call %d fails: %+v, %v", k, rep, err)
		}
	}
}

// TestUsesOfLostRecords: an address whose record is lost has an unknown holder, so no use contradicts it and none is missed.
func TestUsesOfLostRecords(t *testing.T) {
	for _, uses := range [][]audit.InUse{{}, nil} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
		al := w.assign(want("h", 1, "p")).V4[0]
		if uses == nil {
			uses = w.used()
		}
		w.remove(record.AddressKey(al.Address))
		rep, err := w.Operator().Check(bg, slices.Values(uses))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range rep.Problems {
			if p.Kind != audit.LostAddress && p.Kind != audit.StaleIndex {
				t.Errorf("%d uses: %s", len(uses), p)
			}
		}
		if _, err := w.Operator().Repair(bg, rep.Repair); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Lookup(bg, al.Address); err != nil {
			t.Error(err)
		}
	}
}
