package world

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// replica is the state of a space, put together from its changes.
type replica map[string]string

func (r replica) set(key string, value any, present bool) {
	if delete(r, key); present {
		r[key] = fmt.Sprintf("%+v", value)
	}
}

func (r replica) apply(c alloc.Change) {
	switch k := c.Kind; {
	case k <= alloc.HostChanged:
		for _, al := range []alloc.Allocation{c.Was, c.Is} {
			if al.Address.IsValid() {
				r.set(holderKey(al), fields(al), al.Seq == c.Is.Seq && al.Cooling == c.Is.Cooling)
			}
		}
	case k <= alloc.BlockReturned:
		r.set("block "+c.Block.String(), c.Owner, k != alloc.BlockReturned)
	case k <= alloc.PoolRemoved:
		if c.FormerPool != nil {
			delete(r, "pool "+c.FormerPool.Name)
		}
		if c.Pool != nil {
			r.set("pool "+c.Pool.Name, *c.Pool, true)
		}
	case k == alloc.ReservationsChanged:
		r.set("reservations", c.Reserved, true)
	default:
		r.set("config", *c.Config, true)
	}
}

func holderKey(a alloc.Allocation) string {
	if a.Cooling {
		return "cooling " + a.Address.String()
	}
	return fmt.Sprintf("address %v %d", a.Address, a.Seq)
}

// state reads what a replica should be.
func state(t *testing.T, e *ipset.Engine) replica {
	t.Helper()
	ctx := t.Context()
	r := replica{}
	for al, err := range e.Allocations(ctx, netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		for h := range al.Holders() {
			r.set(holderKey(h), fields(h), true)
		}
	}
	for b, err := range e.Operator().Blocks(ctx, netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		r.set("block "+b.Prefix().String(), b.Owner(), true)
	}
	pools, err := e.Pools(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pools {
		r.set("pool "+p.Name, p, true)
	}
	reserved, err := e.Operator().Reservations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r.set("reservations", reserved, true)
	cfg, err := e.Operator().Config(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r.set("config", cfg, true)
	return r
}

// The changes of a space, from the present state on and through every call, rebuild what the space is. Records do not say
// that time has passed, so the clock stands before the first lease ends.
func TestChangesRebuildTheWorld(t *testing.T) {
	for _, space := range Spaces {
		for _, l := range limits {
			w := New(t)
			w.Clock.t = start
			db := faults.NewLimited(w.DB, l)
			e := w.Engine(t, db, space, 0)
			next, stop := iter.Pull2(w.Engine(t, w.DB, space, 0).Changes(context.Background(), 0))
			defer stop()
			got := replica{}
			follow := func(present bool) {
				for {
					c, err, ok := next()
					if !ok || err != nil || c.Present != present {
						t.Fatal(c, err)
					}
					for _, ch := range c.Changes {
						got.apply(ch)
					}
					if !present && c.Rev >= revision(t, w) || present && !c.More {
						return
					}
				}
			}
			follow(true)
			same := func(after string) {
				want := state(t, w.Engine(t, w.DB, space, 0))
				for k, v := range want {
					if got[k] != v {
						t.Fatalf("after %s in %q: the changes say of %s\n%s\nit is\n%s", after, space, k, got[k], v)
					}
				}
				for k := range maps.Keys(got) {
					if _, is := want[k]; !is {
						t.Fatalf("after %s in %q: the changes say that there is %s", after, space, k)
					}
				}
			}
			same("the start")
			for n, c := range Calls() {
				before := revision(t, w)
				_, _ = c.Do(t.Context(), e)
				if revision(t, w) > before { // maybe only by a record of a request, which is no change
					last := alloc.Reservations(netipx.MustParseIPRange("203.0.113.0-203.0.113.255"))
					last[0].By, last[0].Note = "reader", fmt.Sprint("after call ", n)
					if err := w.Engine(t, w.DB, space, 0).Operator().ChangePools(t.Context(), alloc.PoolChanges{Unreserve: last, Reserve: last}); err != nil {
						t.Fatal(err)
					}
					follow(false)
				}
				same(c.Method)
			}
		}
	}
}

// revision returns the revision of the last commit in the store.
func revision(t *testing.T, w *World) uint64 {
	t.Helper()
	_, rev, err := w.DB.List(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}
