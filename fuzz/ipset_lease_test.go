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
		until, why := r.m.RenewIP(a, handle, 35*time.Second)
		al, err := e.RenewIP(ctx, a, alloc.Guard{Handle: handle}, 35*time.Second)
		if !errors.Is(err, ipamRefused[why]) || err == nil && !al.Until.Equal(until) {
			r.t.Fatalf("renew %s of %q: %+v, %v, want %q, %v", a, handle, al, err, why, until)
		}
	case 2:
		host := r.host(tr)
		if handle == "" {
			return
		}
		args := alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: 1 + int(tr.Below(2)), Partial: true, Handle: handle, TTL: 40 * time.Second}
		held, why := r.m.Offer(handle, args.Owner.String(), 40*time.Second)
		if !held {
			r.offering, args.Sticky = true, true
			r.autoAssign(e, args, netip.Addr{}, true, false)
			r.offering = false
			return
		}
		got, err := e.Offer(ctx, args)
		var want []netip.Addr
		for _, b := range r.m.Sorted() {
			want = append(want, b.HeldBy(handle)...)
		}
		if why != "" {
			if !ipamRefusals[why].is(err) {
				r.t.Fatalf("offer for %s: %v, want %q", handle, err, why)
			}
			return
		}
		same := func(al alloc.Allocation, a netip.Addr) bool { return al.Address == a }
		all := append(got.V4, got.V6...)
		slices.SortFunc(all, func(x, y alloc.Allocation) int { return x.Address.Compare(y.Address) }) // the first holding comes first
		if err != nil || !slices.EqualFunc(all, want, same) {
			r.t.Fatalf("offer for %s: %v, %v, want %v", handle, all, err, want)
		}
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
