package world

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// damages are what can happen to a record. Each returns the op that does it.
var damages = map[string]func(r store.Record) store.Op{
	"removed": func(r store.Record) store.Op { return store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev} },
	"cut short": func(r store.Record) store.Op {
		return store.Op{Kind: store.Put, Key: r.Key, Value: r.Value[:len(r.Value)/2], Expect: r.Rev}
	},
	"longer": func(r store.Record) store.Op {
		return store.Op{Kind: store.Put, Key: r.Key, Value: r.Value + "\xff", Expect: r.Rev}
	},
}

// lossless are the kinds of records that a repair rebuilds from others.
const lossless = "sowunfredhti"

// A record of any kind that is removed or damaged is named by Check. Repair brings the records that follow from others back
// and releases nothing that is in use, on a store of any limits.
func TestDamageIsFoundAndMended(t *testing.T) {
	w := New(t)
	uses := w.uses(t, w.DB, "")
	want := w.Look(t, w.DB, "")
	recs, _, err := w.DB.List(t.Context(), store.Range{To: "x"})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, r := range recs {
		if r.Key[0] < 'a' {
			continue // of other packages
		}
		if seen[r.Key[:1]]++; testing.Short() && seen[r.Key[:1]] > 2 {
			continue
		}
		for name, damage := range damages {
			op := damage(r)
			if op.Kind == store.Put && op.Value == r.Value {
				continue
			}
			for _, l := range []store.Limits{{}, {Ops: 24}} {
				w := w.Copy(t)
				if _, err := w.DB.Commit(t.Context(), []store.Op{op}); err != nil {
					t.Fatal(err)
				}
				db := faults.NewLimited(w.DB, l)
				what := fmt.Sprintf("record %q %s, limits %v", r.Key, name, l)
				if r.Key[0] == 'c' {
					// Nothing else says what the pools were: only a backup brings them back.
					if r := w.check(t, db, "", slices.Values(uses)); len(r.Problems) == 0 {
						t.Errorf("%s: Check finds nothing", what)
					}
					continue
				}
				lost := netip.Addr{} // the record of an address alone says whose it is: it stays held, by nobody
				if r.Key[0] == 'a' {
					lost, _ = netip.AddrFromSlice([]byte(r.Key[2:]))
				}
				w.repair(t, db, what, uses, lost)
				if !strings.Contains(lossless, r.Key[:1]) {
					continue
				}
				for _, line := range Diff(want, w.Look(t, w.DB, "")) {
					t.Errorf("%s: after the repair %s", what, line)
				}
			}
		}
	}
}

// repair checks and repairs until there is nothing to do. It fails the test if nothing is found, if the repair does not end,
// or if an address that is in use is not held any more, but for the one whose record was lost by the handle that had it.
func (w *World) repair(t *testing.T, db store.Store, what string, uses []audit.InUse, lost netip.Addr) {
	t.Helper()
	for round := range 5 {
		r, err := w.Engine(t, db, "", 0).Operator().Check(t.Context(), slices.Values(uses))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		if round == 0 && len(r.Problems) == 0 {
			t.Errorf("%s: Check finds nothing", what)
			return
		}
		if len(r.Repair) == 0 {
			break
		}
		if round == 4 {
			t.Errorf("%s: the repair does not end: %v", what, r.Repair)
		}
		if _, err := w.Engine(t, db, "", 0).Operator().Repair(t.Context(), r.Repair); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	e := w.Engine(t, w.DB, "", 0)
	for _, u := range uses {
		if al, err := e.Lookup(t.Context(), u.Address); err != nil || u.Handle != "" && u.Address != lost && !slices.ContainsFunc(slices.Collect(al.Holders()), func(h alloc.Allocation) bool { return h.Handle == u.Handle }) {
			t.Errorf("%s: %v is in use by %q and is after the repair %+v, %v", what, u.Address, u.Handle, al.Handle, err)
		}
	}
}
