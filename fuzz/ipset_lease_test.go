package fuzz

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// ipamRefused are the errors of the calls for one held address.
var ipamRefused = map[string]error{"": nil, "free": ipalloc.ErrNotHeld, "cooling": ipalloc.ErrCooling, "other": ipalloc.ErrMismatch, "shared": ipalloc.ErrInUse}

// lease is the operations of a DHCP server.
func (r *ipamReplay) lease(op int, e *ipset.Engine, tr *model.Trace) {
	ctx := context.Background()
	a, handle := r.address(tr), ""
	if n := tr.Below(7); n > 0 {
		handle = fmt.Sprint("p", n-1)
	}
	if b := tr.Below(2); b == 0 && handle != "" { // one that it holds
		if als, err := e.IPsByHandle(ctx, handle); err == nil && len(als) > 0 {
			a = als[0].Address
		}
	}
	switch op {
	case 3:
		r.both(e, a, handle, tr)
	case 0:
		d := time.Duration(1+tr.Below(60)) * time.Second
		want := ipamRefused[r.m.Decline(a, handle, d)]
		al, err := e.Decline(ctx, alloc.DeclineArgs{Address: a, Guard: alloc.Guard{Handle: handle}, For: d, Reason: "duplicate"})
		if !errors.Is(err, want) {
			r.t.Fatalf("decline %s by %q: %v, want %v", a, handle, err, want)
		}
		if by, reason, ok := al.Declined(); want == nil && (!ok || reason != "duplicate" || handle != "" && by != handle) {
			r.t.Fatalf("declined %s by %q: %+v", a, handle, al)
		}
	case 1:
		rules, within := r.renewal(tr, 35*time.Second)
		until, why := r.m.RenewIP(a, handle, rules.TTL, within)
		al, err := e.RenewIP(ctx, a, alloc.Guard{Handle: handle}, rules)
		want, held := ipamRefused[why]
		if held && !errors.Is(err, want) || !held && !ipamRefusals[why].is(err) || err == nil && !al.Until.Equal(until) {
			r.t.Fatalf("renew %s of %q within the rules for %q: %+v, %v, want %q, %v", a, handle, within, al, err, why, until)
		}
	case 2:
		if handle != "" {
			r.offer(e, handle, alloc.HostOwner(r.host(tr)), tr.Below(4))
		}
	}
}

// renewal returns the arguments of a renewal, and the host for which the rules of now apply, if they do.
func (r *ipamReplay) renewal(tr *model.Trace, ttl time.Duration) (alloc.RenewArgs, string) {
	if n := tr.Below(6); n < 3 {
		host := alloc.HostOwner(fmt.Sprint("h", n))
		return alloc.RenewArgs{TTL: ttl, WithinRules: true, Owner: host}, host.String()
	}
	return alloc.RenewArgs{TTL: ttl}, ""
}

// offer offers a handle one or two addresses that it holds, within the rules from n = 2 on, or others if it holds none.
func (r *ipamReplay) offer(e *ipset.Engine, handle string, host alloc.Owner, n uint64) {
	args := alloc.AssignArgs{Owner: host, Num4: 1 + int(n%2), Partial: true, Handle: handle, TTL: 40 * time.Second, WithinRules: n >= 2}
	all := r.m.Holds(handle)
	if len(all) == 0 {
		r.offering, args.Sticky = true, true
		r.autoAssign(e, args, netip.Addr{}, true, false)
		r.offering = false
		return
	}
	four := 0
	for four < len(all) && all[four].Is4() {
		four++
	}
	if args.Num4 = min(args.Num4, four); four == 0 {
		args.Num6 = 1
	}
	got, err := e.Offer(context.Background(), args)
	var given []netip.Addr
	for _, al := range append(got.V4, got.V6...) {
		if !slices.Contains(all, al.Address) || slices.Contains(given, al.Address) {
			r.t.Fatalf("offer for %s: %v, which holds %v", handle, al, all)
		}
		given = append(given, al.Address)
	}
	if err == nil {
		why := r.m.Offer(handle, host.String(), args.TTL, given, args.WithinRules)
		if why != "" || len(got.V4) != args.Num4 || len(got.V6) != args.Num6 {
			r.t.Fatalf("offer %+v: %v, want %q", args, given, why)
		}
		return
	}
	if !slices.ContainsFunc(all, func(a netip.Addr) bool {
		obstacles := []string{r.m.MayMove(a, handle, host.String())}
		if args.WithinRules {
			obstacles = append(obstacles, r.m.Refuses(a, host.String())) // either may be named
		}
		return slices.ContainsFunc(obstacles, func(why string) bool { return why != "" && ipamRefusals[why].is(err) })
	}) {
		r.t.Fatalf("offer %+v of %v: %v", args, all, err)
	}
}

// both asks for named addresses, a few IPv4 ones in a row, and automatic IPv6 ones.
func (r *ipamReplay) both(e *ipset.Engine, a netip.Addr, handle string, tr *model.Trace) {
	args, named := alloc.AssignArgs{Owner: alloc.HostOwner(r.host(tr)), Num6: int(tr.Below(3)), Handle: handle}, []netip.Addr{a}
	if tr.Below(2) == 0 {
		named = append(named, a.Next())
	}
	w := r.wanted(args.Owner, args.Handle, args.Share, 0)
	w.N, w.All = [2]int{0, args.Num6}, true
	got, err := e.AssignIPs(context.Background(), args, named...)
	r.m.Choose = chooseOf(append(slices.Clone(got.V4), got.V6...))
	want, why := r.m.AssignBoth(named, w)
	if why == "short" {
		why = onlyReason(got.Short)
	}
	if !ipamRefusals[why].is(err) {
		r.t.Fatalf("assign %v and %+v: %v, want %q", named, args, err, why)
	}
	all := append(got.V4, got.V6...)
	slices.SortStableFunc(all, func(x, y alloc.Allocation) int { return x.Address.Compare(y.Address) })
	slices.SortFunc(want, netip.Addr.Compare)
	if !slices.EqualFunc(all, want, func(al alloc.Allocation, a netip.Addr) bool { return al.Address == a }) {
		r.t.Fatalf("assign %v and %+v: %v, want %v", named, args, all, want)
	}
}
