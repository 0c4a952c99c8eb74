package fuzz

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// given is what a call with a request key was given.
type given struct {
	args alloc.AssignArgs
	all  []alloc.Allocation
}

// move is the operations by which a handle or a host gives up what it has to another, and by which a request ends.
func (r *ipamReplay) move(op int, e *ipset.Engine, tr *model.Trace) {
	ctx := context.Background()
	switch op {
	case 0:
		r.transfer(e, tr)
	case 1:
		a := alloc.RenameArgs{From: alloc.HostOwner(r.host(tr)), To: alloc.HostOwner(r.host(tr)), Merge: tr.Below(3) > 0}
		if a.From == a.To {
			return
		}
		want, ok := r.m.RenameHost(a.From.String(), a.To.String(), a.Merge)
		moved, _, err := e.Operator().RenameHost(ctx, a)
		if ok != (err == nil) || !ok && !errors.Is(err, ipalloc.ErrExists) || len(moved) != want {
			r.t.Fatalf("rename %+v: %v, %v, want %d", a, moved, err, want)
		}
		for _, al := range moved {
			r.fresh(al)
		}
	case 2:
		if len(r.given) == 0 {
			return
		}
		g := r.given[tr.Below(uint64(len(r.given)))]
		var want []netip.Addr
		for _, al := range g.all {
			is, _ := r.e[0].Lookup(ctx, al.Address)
			for h := range is.Holders() {
				if h.Seq == al.Seq && !h.Cooling {
					want = append(want, al.Address)
				}
			}
		}
		slices.SortFunc(want, netip.Addr.Compare)
		for _, a := range want {
			r.m.ReleaseOf(a, g.args.Handle)
		}
		got, err := e.Withdraw(ctx, g.args.Request)
		if slices.SortFunc(got, netip.Addr.Compare); err != nil || !slices.Equal(got, want) {
			r.t.Fatalf("withdraw %q: %v, %v, want %v", g.args.Request, got, err, want)
		}
		if late, err := e.AutoAssign(ctx, g.args); !errors.Is(err, ipalloc.ErrMismatch) {
			r.t.Fatalf("a late request: %+v, %v", late, err)
		}
	}
}

func (r *ipamReplay) transfer(e *ipset.Engine, tr *model.Trace) {
	ctx := context.Background()
	a := alloc.TransferArgs{From: fmt.Sprint("p", tr.Below(6)), To: fmt.Sprint("p", tr.Below(6))}
	switch tr.Below(3) {
	case 0:
		a.Address = r.address(tr)
	case 1:
		a.Address = r.address(tr)
		if als, err := e.IPsByHandle(ctx, a.From); err == nil && len(als) > 0 {
			a.Address = als[0].Address
		}
	}
	if a.From == a.To {
		return
	}
	had := a.Address.IsValid() && r.m.Has(a.Address, a.To)
	want, why := r.m.Transfer(a.Address, a.From, a.To)
	got, err := e.Transfer(ctx, a)
	refused, ok := ipamRefusals[why]
	if ok = ok && refused.is(err) || !ok && errors.Is(err, ipamRefused[why]); !ok {
		r.t.Fatalf("transfer %+v: %v, want %q", a, err, why)
	}
	if err == nil && !slices.EqualFunc(got, want, func(al alloc.Allocation, a netip.Addr) bool { return al.Address == a }) {
		r.t.Fatalf("transferred %+v: %v, want %v", a, got, want)
	}
	for _, al := range got {
		if al.Handle != a.To {
			r.t.Fatalf("transferred %+v: %+v", a, al)
		}
		if !had {
			r.fresh(al)
		}
	}
}
