package ipset

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
)

// Each reason has a state that is built by hand, and the error, the shortages, Explain and Utilization agree about it.
func TestEveryReason(t *testing.T) {
	host := alloc.HostOwner
	pool := func(change func(*alloc.Pool)) alloc.Pool {
		p := poolOf("p", "10.0.0.0/28", 30)
		change(&p)
		return p
	}
	plain := pool(func(*alloc.Pool) {})
	one := alloc.AssignArgs{Owner: host("h"), Num4: 1, Handle: "x"}
	asks := func(change func(*alloc.AssignArgs)) alloc.AssignArgs {
		a := one
		change(&a)
		return a
	}
	hold := func(w *world, o alloc.Owner, n int) {
		for range n {
			if got, err := w.AutoAssign(bg, alloc.AssignArgs{Owner: o, Num4: 1, Handle: "held"}); err != nil || len(got.V4) != 1 {
				w.t.Fatal(err)
			}
		}
	}
	zone := selector.Selector{{Labels: []selector.Requirement{{Key: "zone", Op: selector.In, Values: []string{"a"}}}}}
	rows := map[alloc.Reason]struct {
		strict    bool
		pool      alloc.Pool
		build     func(*world)
		args      alloc.AssignArgs
		is        error
		available uint64
	}{
		alloc.ReasonFull: {false, plain, func(w *world) { hold(w, host("g"), 16) }, one, ipalloc.ErrFull, 0},
		alloc.ReasonReservedLeft: {false, plain, func(w *world) {
			hold(w, host("h"), 4)
			set := &netipx.IPSetBuilder{}
			set.AddPrefix(plain.Prefix)
			all, _ := set.IPSet()
			if _, err := w.Operator().SetReservations(bg, reservations(all)); err != nil {
				w.t.Fatal(err)
			}
		}, one, ipalloc.ErrReserved, 0},
		alloc.ReasonDrainingLeft: {false, poolOf("p", "10.0.0.0/25", 32), func(w *world) {
			hold(w, host("h"), 1)
			if err := w.UpdatePool(bg, poolOf("p", "10.0.0.0/25", 25)); err != nil {
				w.t.Fatal(err)
			}
		}, one, ipalloc.ErrFull, 0},
		alloc.ReasonCoolingLeft: {false, pool(func(p *alloc.Pool) { p.Cooldown = time.Hour }), func(w *world) {
			hold(w, host("h"), 16)
			w.releaseHandle("held")
		}, one, ipalloc.ErrCooling, 0},
		alloc.ReasonForeignLeft:  {true, plain, func(w *world) { hold(w, host("g"), 1); hold(w, host("f"), 12) }, one, ipalloc.ErrFull, 3},
		alloc.ReasonLimitReached: {true, pool(func(p *alloc.Pool) { p.MaxBlocksPerHost = 1 }), func(w *world) { hold(w, host("h"), 4) }, one, ipalloc.ErrLimit, 12},
		alloc.ReasonFragmented: {false, plain, func(w *world) {
			for i := range 4 { // one in each block
				a := netip.AddrFrom4([4]byte{10, 0, 0, byte(4 * i)})
				if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: a, Owner: host("g")}); err != nil {
					w.t.Fatal(err)
				}
			}
		}, asks(func(a *alloc.AssignArgs) { a.Num4, a.Choose = 4, alloc.Aligned() }), ipalloc.ErrFull, 12},
		alloc.ReasonTooSmall: {false, plain, func(*world) {}, asks(func(a *alloc.AssignArgs) { a.Num4, a.Choose = 5, alloc.Contiguous() }), ipalloc.ErrFull, 16},
		alloc.ReasonOutsideLeft: {false, pool(func(p *alloc.Pool) { p.Ranges = []netipx.IPRange{netipx.MustParseIPRange("10.0.0.4-10.0.0.7")} }),
			func(w *world) { hold(w, host("h"), 4) }, one, ipalloc.ErrFull, 0},
		alloc.ReasonBelowFrom: {false, pool(func(p *alloc.Pool) { p.Order = alloc.Lowest }), func(w *world) {
			if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.15"), Owner: host("h")}); err != nil {
				w.t.Fatal(err)
			}
		}, asks(func(a *alloc.AssignArgs) { a.Choose = alloc.From(ip("10.0.0.15")) }), ipalloc.ErrFull, 15},
		alloc.ReasonCommitFull: {false, pool(func(p *alloc.Pool) { p.BlockBits = 32 }), func(w *world) {
			w.Engine = w.engine(faults.NewLimited(w.store, store.Limits{Ops: 48}))
		}, asks(func(a *alloc.AssignArgs) { a.Num4 = 16 }), ipalloc.ErrLimit, 16},
		alloc.ReasonOtherFamily:    {false, plain, func(*world) {}, asks(func(a *alloc.AssignArgs) { a.Num4, a.Num6 = 0, 1 }), ipalloc.ErrNotFound, 16},
		alloc.ReasonNotNamed:       {false, pool(func(p *alloc.Pool) { p.Manual = true }), func(*world) {}, one, ipalloc.ErrNotFound, 16},
		alloc.ReasonDisabled:       {false, pool(func(p *alloc.Pool) { p.Disabled = true }), func(*world) {}, one, ipalloc.ErrNotFound, 16},
		alloc.ReasonOtherUse:       {false, pool(func(p *alloc.Pool) { p.Uses = alloc.Tunnel }), func(*world) {}, one, ipalloc.ErrNotFound, 16},
		alloc.ReasonEndsTooLarge:   {true, plain, func(*world) {}, asks(func(a *alloc.AssignArgs) { a.Blocks.Head, a.Blocks.Tail = 2, 2 }), ipalloc.ErrNotFound, 16},
		alloc.ReasonNotOfHost:      {false, pool(func(p *alloc.Pool) { p.Nodes = zone }), func(*world) {}, one, ipalloc.ErrNotFound, 16},
		alloc.ReasonNotOfNamespace: {false, pool(func(p *alloc.Pool) { p.Namespaces = zone }), func(*world) {}, one, ipalloc.ErrNotFound, 16},
	}
	for r := alloc.ReasonFull; !strings.HasPrefix(r.String(), "reason "); r++ {
		row, ok := rows[r]
		if !ok {
			t.Errorf("%s has no row", r)
			continue
		}
		t.Run(r.String(), func(t *testing.T) {
			w := newWorld(t, alloc.Config{Strict: row.strict}, row.pool)
			row.build(w)
			us, err := w.Utilization(bg)
			if err != nil || us[0].Available.Lo != row.available {
				t.Errorf("%v available, want %d: %v", us[0].Available, row.available, err)
			}
			explained, err := w.Explain(bg, row.args)
			if err != nil || len(explained) != 1 || explained[0].Reason != r || len(explained[0].Gives) > 0 {
				t.Errorf("Explain: %+v, %v", explained, err)
			}
			got, err := w.AutoAssign(bg, row.args)
			if !errors.Is(err, row.is) || len(got.V4)+len(got.V6) > 0 {
				t.Errorf("%+v, %v, want %v", got, err, row.is)
			}
			if r == alloc.ReasonCommitFull { // the error has the numbers, and Partial gives what fits
				row.args.Partial = true
				got, err = w.AutoAssign(bg, row.args)
			} else if !strings.Contains(err.Error(), r.String()) {
				t.Errorf("%v, want %s", err, r)
			}
			if len(got.Short) != 1 || got.Short[0].Pool != "p" || got.Short[0].Reason != r {
				t.Errorf("short: %+v, %v", got.Short, err)
			}
		})
	}
}
