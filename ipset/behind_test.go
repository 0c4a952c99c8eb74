package ipset

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A cache that is behind in many blocks costs one conflict and not one a block, whatever it knows of them: each call makes at most
// three round trips more than on blocks that nobody has changed. On a store with limits that holds for each of its commits.
func TestManyStaleBlocksCostOneConflict(t *testing.T) {
	const n = 40
	calls := map[string]func(ctx context.Context, e *Engine, at []netip.Addr) error{
		"ReleaseByHandle": func(ctx context.Context, e *Engine, _ []netip.Addr) error {
			as, err := e.ReleaseByHandle(ctx, "wide")
			return counted(len(as), n, err)
		},
		"ReleaseIPs": func(ctx context.Context, e *Engine, at []netip.Addr) error {
			var rs []alloc.Release
			for _, a := range at {
				rs = append(rs, alloc.Release{Address: a})
			}
			as, err := e.ReleaseIPs(ctx, rs...)
			return counted(len(as), n, err)
		},
		"Release": func(ctx context.Context, e *Engine, at []netip.Addr) error {
			var a alloc.ReleaseArgs
			for _, x := range at[:n/4] {
				a.Addresses = append(a.Addresses, alloc.Release{Address: x})
			}
			as, err := e.Release(ctx, a)
			return counted(len(as), n/4, err)
		},
		"RemoveHost": func(ctx context.Context, e *Engine, _ []netip.Addr) error {
			as, _, err := e.RemoveHost(ctx, alloc.HostOwner("wide"))
			return counted(len(as), n, err)
		},
		"RenameHost": func(ctx context.Context, e *Engine, _ []netip.Addr) error {
			as, _, err := e.Operator().RenameHost(ctx, alloc.RenameArgs{From: alloc.HostOwner("wide"), To: alloc.HostOwner("new")})
			return counted(len(as), n, err)
		},
		"Reindex": func(ctx context.Context, e *Engine, _ []netip.Addr) error {
			_, err := e.Operator().Reindex(ctx, "p")
			return err
		},
		"named": func(ctx context.Context, e *Engine, at []netip.Addr) error {
			_, err := e.AssignIPs(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("wide"), Handle: "wide"}, at[:n/4]...)
			return err
		},
		"Renew": func(ctx context.Context, e *Engine, _ []netip.Addr) error {
			_, err := e.Renew(ctx, "leased", alloc.RenewArgs{TTL: 1})
			return err
		},
	}
	for name, call := range calls {
		for _, limit := range []int{0, 127} {
			var trips, commits [2]int
			for stale := range 2 {
				w, at := wideWorld(t, n, name != "RemoveHost" && name != "RenameHost")
				db := faults.NewLimited(w.store, store.Limits{Ops: limit})
				e := w.engine(db)
				for i := range n { // it knows all blocks, of a third of them all addresses
					a := want(fmt.Sprint("h", i), 1, fmt.Sprint("y", i))
					if _, err := e.AutoAssign(bg, a); err != nil {
						t.Fatal(err)
					}
					if i%3 == 0 {
						if _, err := e.ReleaseIPs(bg, alloc.Release{Address: at[i], Guard: alloc.Guard{Handle: "nobody"}}, alloc.Release{Address: at[i].Next(), Guard: alloc.Guard{Handle: "nobody"}}); err != nil {
							t.Fatal(err)
						}
					}
				}
				for i := range n * stale {
					w.releaseHandle(fmt.Sprint("own", i))
				}
				db.Reset()
				if err := call(bg, e, at); err != nil {
					t.Errorf("%s, %d records: %v", name, limit, err)
				}
				trips[stale], commits[stale] = db.Counts().Calls(), db.Counts().Commits
				w.check()
			}
			most := 3
			if limit > 0 {
				most *= commits[0]
			}
			if trips[1] > trips[0]+most {
				t.Errorf("%s, %d records: %d round trips over stale blocks, %d over fresh ones", name, limit, trips[1], trips[0])
			}
		}
	}
}

// wideWorld has n blocks of as many hosts; the host wide holds the returned address of each, and with leases the one after it.
func wideWorld(t *testing.T, n int, leases bool) (w *world, at []netip.Addr) {
	w = newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/16", 29))
	for i := range n {
		a := w.assign(want(fmt.Sprint("h", i), 1, fmt.Sprint("own", i))).V4[0].Block.Addr().Next().Next()
		at = append(at, a)
		claims := []alloc.Claim{{Handle: "wide"}}
		if leases {
			claims = append(claims, alloc.Claim{Handle: "leased", TTL: time.Hour})
		}
		for _, c := range claims {
			if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: a, Owner: alloc.HostOwner("wide"), Handle: c.Handle, TTL: c.TTL}); err != nil {
				t.Fatal(err)
			}
			a = a.Next()
		}
	}
	return w, at
}

// counted returns an error if a call did not do all it should.
func counted(got, want int, err error) error {
	if err == nil && got != want {
		return fmt.Errorf("%d done, want %d", got, want)
	}
	return err
}
