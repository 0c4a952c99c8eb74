package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/selector"
)

// within are the calls that apply the rules of now to an address that a handle holds: each for the host "dhcp", to an hour from now.
var within = map[string]func(ctx context.Context, e *Engine, a netip.Addr, handle string) error{
	"RenewIP": func(ctx context.Context, e *Engine, a netip.Addr, handle string) error {
		_, err := e.RenewIP(ctx, a, alloc.Guard{Handle: handle}, alloc.RenewArgs{TTL: time.Hour, WithinRules: true, Owner: alloc.HostOwner("dhcp")})
		return err
	},
	"Renew": func(ctx context.Context, e *Engine, _ netip.Addr, handle string) error {
		_, err := e.Renew(ctx, handle, alloc.RenewArgs{TTL: time.Hour, WithinRules: true, Owner: alloc.HostOwner("dhcp")})
		return err
	},
	"Offer": func(ctx context.Context, e *Engine, _ netip.Addr, handle string) error {
		a := offer(handle)
		a.TTL, a.WithinRules = time.Hour, true
		_, err := e.Offer(ctx, a)
		return err
	},
	"Existing": func(ctx context.Context, e *Engine, _ netip.Addr, handle string) error {
		a := offer(handle)
		a.Existing, a.WithinRules = true, true
		_, err := e.AutoAssign(ctx, a)
		return err
	},
	"AssignIP": func(ctx context.Context, e *Engine, a netip.Addr, handle string) error {
		_, err := e.AssignIP(ctx, alloc.AssignIPArgs{Address: a, Owner: alloc.HostOwner("dhcp"), Handle: handle, WithinRules: true})
		return err
	},
	"AssignIPs": func(ctx context.Context, e *Engine, a netip.Addr, handle string) error {
		_, err := e.AssignIPs(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("dhcp"), Handle: handle, WithinRules: true}, a)
		return err
	},
}

// A call that asks for it applies the rules of now to a held address and fails with the error that an assignment of the address has; nothing
// changes then. Without the rules every call renews.
func TestRulesOfNow(t *testing.T) {
	a := ip("10.0.0.1")
	update := func(change func(p *alloc.Pool)) func(w *world) error {
		return func(w *world) error {
			ps, err := w.Pools(bg)
			if err == nil {
				change(&ps[0])
				err = w.UpdatePool(bg, ps[0])
			}
			return err
		}
	}
	for name, tt := range map[string]struct {
		change  func(w *world) error
		want    error
		spares  string // calls whose address names the pool
		without bool   // calls without the rules fail, too
	}{
		"nothing": {change: func(*world) error { return nil }},
		"reserved": {change: func(w *world) error {
			return w.Operator().ChangePools(bg, alloc.PoolChanges{Reserve: alloc.Reservations(netipx.IPRangeFrom(a, a))})
		}, want: ipalloc.ErrReserved},
		"out of range": {change: update(func(p *alloc.Pool) { p.Ranges = []netipx.IPRange{netipx.MustParseIPRange("10.0.0.4-10.0.0.7")} }), want: ipalloc.ErrReserved},
		"subnet":       {change: update(func(p *alloc.Pool) { p.Subnet = true })},
		"disabled":     {change: update(func(p *alloc.Pool) { p.Disabled = true }), want: ipalloc.ErrNotFound},
		"drained": {change: func(w *world) error {
			_, err := w.Operator().Drain(bg, "p")
			return err
		}, want: ipalloc.ErrNotFound},
		"not selected": {change: update(func(p *alloc.Pool) {
			p.Nodes = selector.Selector{{Labels: []selector.Requirement{{Key: "rack", Op: selector.Exists}}}}
		}), want: ipalloc.ErrNotFound},
		"for another use": {change: update(func(p *alloc.Pool) { p.Uses = alloc.Tunnel }), want: ipalloc.ErrNotFound},
		"manual":          {change: update(func(p *alloc.Pool) { p.Manual = true }), want: ipalloc.ErrNotFound, spares: "RenewIP Renew AssignIP AssignIPs"},
		"removed":         {change: func(w *world) error { return w.RemovePool(bg, "p") }, want: ipalloc.ErrNotFound},
		"in a block of two pools": {change: func(w *world) error {
			err := w.UpdatePool(bg, poolOf("p", "10.0.0.0/29", 30))
			if err == nil {
				err = w.AddPool(bg, poolOf("inner", "10.0.0.4/30", 30))
			}
			return err
		}, want: ipalloc.ErrFull},
		"closed": {change: update(func(p *alloc.Pool) { p.Closed = true }), want: ipalloc.ErrReserved, without: true},
		"strict": {change: func(w *world) error {
			if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("dhcp")}); err != nil {
				return err
			}
			if _, _, err := w.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.0/29"), alloc.HostOwner("other")); err != nil {
				return err
			}
			return w.Operator().SetConfig(bg, alloc.Config{Strict: true})
		}, want: ipalloc.ErrOccupied},
	} {
		for call, do := range within {
			w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/29", 29))
			w.leaves(audit.NoPool)
			al, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: a, Owner: alloc.HostOwner("dhcp"), Handle: "c", TTL: time.Minute})
			if err == nil {
				err = tt.change(w)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			before, _ := w.store.MarshalBinary()
			err = do(bg, w.Engine, a, "c")
			want := tt.want
			if slices.Contains(strings.Fields(tt.spares), call) {
				want = nil
			}
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%s, %s: %v, want %v", name, call, err, want)
			}
			if after, _ := w.store.MarshalBinary(); want != nil && string(after) != string(before) {
				t.Errorf("%s, %s: a refusal changed the store", name, call)
			}
			if _, err := w.RenewIP(bg, a, alloc.Guard{Handle: "c"}, alloc.RenewArgs{TTL: time.Hour}); (err != nil) != tt.without {
				t.Errorf("%s: without the rules: %v", name, err)
			}
			if found, err := w.Lookup(bg, a); err != nil || tt.without != found.Until.Equal(al.Until) {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
			if name != "removed" { // Check reports a block without pool
				w.check()
			}
		}
	}
}

// A pool of leases that is drained becomes empty when each call that extends a lease asks for the rules; its clients go to the next pool.
// Without the rules they stay.
func TestDrainedPoolOfLeasesDrains(t *testing.T) {
	for _, rules := range []bool{true, false} {
		w := newWorld(t, alloc.Config{}, poolOf("old", "10.0.0.0/28", 28))
		held := func(prefix string) (n int) {
			for al, err := range w.Allocations(bg, netip.MustParsePrefix(prefix)) {
				if err != nil {
					t.Fatal(err)
				}
				if !al.Cooling {
					n++
				}
			}
			return n
		}
		at := map[string]netip.Addr{}
		serve := func() {
			for i := range 10 {
				client := fmt.Sprint("c", i)
				renew := alloc.RenewArgs{TTL: time.Hour}
				if rules {
					renew = alloc.RenewArgs{TTL: time.Hour, WithinRules: true, Owner: alloc.HostOwner("dhcp")}
				}
				al, err := w.RenewIP(bg, at[client], alloc.Guard{Handle: client}, renew)
				if errors.Is(err, ipalloc.ErrNotFound) {
					continue // the client keeps its lease to its end, and then asks again
				}
				if err != nil {
					o := offer(client)
					o.WithinRules = rules
					got, offered := w.Offer(bg, o)
					if err = offered; err == nil {
						al, err = w.RenewIP(bg, got.V4[0].Address, alloc.Guard{Handle: client}, renew)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				at[client] = al.Address
			}
			w.check()
			w.clock.add(40 * time.Minute)
		}
		for i := range 10 {
			at[fmt.Sprint("c", i)] = ip("10.0.0.15")
		}
		serve()
		if err := w.AddPool(bg, poolOf("new", "10.0.1.0/28", 28)); err != nil {
			t.Fatal(err)
		}
		if left, err := w.Operator().Drain(bg, "old"); err != nil || len(left) != 10 {
			t.Fatalf("%v, %v", left, err)
		}
		for range 4 {
			serve()
		}
		if old, moved := held("10.0.0.0/28"), held("10.0.1.0/28"); rules != (old == 0) || rules != (moved == 10) {
			t.Errorf("within the rules %v: %d in the drained pool, %d in the new one", rules, old, moved)
		}
		if err := w.Operator().ChangePools(bg, alloc.PoolChanges{Remove: []string{"old"}, IfEmpty: true}); (err == nil) != rules {
			t.Errorf("within the rules %v: removed: %v", rules, err)
		}
	}
}

// Renew within the rules extends all leases of a handle or none; an address without a lease is not its matter.
func TestRenewWithinRulesIsAllOrNone(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 28), poolOf("b", "10.0.1.0/28", 28))
	host := alloc.HostOwner("dhcp")
	one := func(address string, ttl time.Duration) {
		if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip(address), Owner: host, Handle: "c", TTL: ttl}); err != nil {
			t.Fatal(err)
		}
	}
	one("10.0.0.1", time.Minute)
	one("10.0.1.1", time.Minute)
	one("10.0.1.2", 0)
	rules := alloc.RenewArgs{TTL: time.Hour, WithinRules: true, Owner: host}
	for _, reserve := range []string{"10.0.1.2", "10.0.1.1"} {
		if err := w.Operator().ChangePools(bg, alloc.PoolChanges{Reserve: alloc.Reservations(netipx.IPRangeFrom(ip(reserve), ip(reserve)))}); err != nil {
			t.Fatal(err)
		}
		before := w.rev()
		als, err := w.Renew(bg, "c", rules)
		if reserve == "10.0.1.2" {
			if err != nil || len(als) != 2 {
				t.Errorf("the one without a lease is reserved: %v, %v", als, err)
			}
			if al, err := w.RenewIP(bg, ip(reserve), alloc.Guard{Handle: "c"}, rules); err != nil || !al.Until.IsZero() {
				t.Errorf("%+v, %v", al, err)
			}
		} else if e := (*ipalloc.Error)(nil); !errors.Is(err, ipalloc.ErrReserved) || !errors.As(err, &e) || e.Addr != ip(reserve) || e.Name != "b" || len(als) != 0 || w.rev() != before {
			t.Errorf("%v, %v", als, err)
		}
	}
	for field, bad := range map[string]alloc.RenewArgs{
		"WithinRules": {TTL: 1, Owner: host}, "Owner": {TTL: 1, WithinRules: true}, "Use": {TTL: 1, WithinRules: true, Owner: host, Use: 64}, "TTL": {TTL: -1},
	} {
		_, err := w.Renew(bg, "c", bad)
		_, err2 := w.RenewIP(bg, ip("10.0.0.1"), alloc.Guard{}, bad)
		for _, err := range []error{err, err2} {
			if e := (*ipalloc.Error)(nil); !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
}
