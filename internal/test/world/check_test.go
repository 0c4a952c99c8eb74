package world

import (
	"iter"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// uses returns every address that is held in a space, by each of its holders.
func (w *World) uses(t *testing.T, db store.Store, space string) (uses []audit.InUse) {
	t.Helper()
	for al, err := range w.Engine(t, db, space, 0).Allocations(t.Context(), netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		if al.Cooling {
			continue
		}
		for h := range al.Holders() {
			uses = append(uses, audit.InUse{Address: h.Address, Handle: h.Handle})
		}
	}
	return uses
}

// addressesOf returns uses that do not say by which handle: each address once.
func addressesOf(uses []audit.InUse) (only []audit.InUse) {
	for _, u := range uses {
		if n := len(only); n == 0 || only[n-1].Address != u.Address {
			only = append(only, audit.InUse{Address: u.Address})
		}
	}
	return only
}

func (w *World) check(t *testing.T, db store.Store, space string, uses iter.Seq[audit.InUse]) *audit.Report {
	t.Helper()
	r, err := w.Engine(t, db, space, 0).Operator().Check(t.Context(), uses)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Check of each package finds nothing wrong with the world, alone and with all that is in use, on every store.
func TestCheckIsSilent(t *testing.T) {
	w := New(t)
	for _, l := range limits {
		db := faults.NewLimited(w.DB, l)
		for _, space := range Spaces {
			uses := w.uses(t, db, space)
			for _, uses := range []iter.Seq[audit.InUse]{nil, slices.Values(uses), slices.Values(addressesOf(uses))} {
				if r := w.check(t, db, space, uses); len(r.Problems)+len(r.Repair)+r.Unsettled > 0 || r.Allocations == 0 {
					t.Errorf("space %q: %+v", space, r)
				}
			}
			in, err := In(db, space)
			if err != nil {
				t.Fatal(err)
			}
			a, err := prefixes.New(in, prefixes.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r, err := a.Check(t.Context()); err != nil || len(r.Problems) > 0 || r.Holdings == 0 {
				t.Error(space, r, err)
			}
			for _, network := range []string{"plain", "keyed", "shared"} {
				e, err := hostlocal.New(in, hostlocal.Config{Network: network, Keys: network == "keyed"})
				if err != nil {
					t.Fatal(err)
				}
				if err := e.Check(t.Context()); err != nil {
					t.Error(space, err)
				}
			}
		}
	}
}

// While another engine assigns, releases and renews between the lists of a check, the check stays silent, and its repair
// has nothing to do.
func TestCheckIsSilentBesideWriters(t *testing.T) {
	w := New(t)
	uses := w.uses(t, w.DB, "")
	for i, c := range Calls() {
		switch c.Method {
		case "ReleaseByHandle", "Release", "ReleaseIPs", "ReleaseByHost", "RemoveHost", "Decline", "NewCollector", "Withdraw", "Transfer":
			continue // ends a use that the list of uses has
		}
		for list := 1; ; list++ {
			w := w.Copy(t)
			db := faults.NewFaulty(w.DB)
			met := false
			db.Script(func(ctx ctx, call faults.Call) faults.Outcome {
				if call.Kind == faults.List && call.Nth == list {
					met = true
					if _, err := c.Do(t.Context(), w.Engine(t, w.DB, "", 0)); err != nil {
						t.Log(c.Method, err)
					}
				}
				return faults.Outcome{}
			})
			r, err := w.Engine(t, db, "", 0).Operator().Check(t.Context(), slices.Values(uses))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range r.Problems {
				if p.Kind != audit.Unused && p.Kind != audit.NoPool { // the call assigned what the list cannot know, or removed the pool
					t.Errorf("%s (%d) before list %d: %v", c.Method, i, list, p)
				}
			}
			if _, err := w.Engine(t, w.DB, "", 0).Operator().Repair(t.Context(), r.Repair); err != nil {
				t.Error(err)
			}
			held := w.uses(t, w.DB, "")
			for _, u := range uses {
				if !slices.Contains(held, u) {
					t.Errorf("%s (%d) before list %d: %v is in use and not held after the repair of %v", c.Method, i, list, u, r.Problems)
				}
			}
			if !met {
				break
			}
			if testing.Short() {
				list += 2
			}
		}
	}
}
