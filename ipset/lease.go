package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// The calls for a DHCP server or a VPN: DISCOVER is Offer, REQUEST is RenewIP, RELEASE is ReleaseIPs with the client as the
// Guard, DECLINE is Decline. A lease ends by itself: from its end on no call takes the address for held, and the next call that
// changes its block, an assignment that would fall short, or Sweep writes it.

// Offer assigns what a handle may want to keep, for the short time TTL: the addresses that it holds, else those that it had last
// as far as they are free, else others. It is AutoAssign with Existing and Sticky, and an address that the handle holds for less
// than TTL is held for TTL. An offer that is taken is a lease: RenewIP or Renew moves its end. One that is not taken ends by
// itself.
//
// Errors as for AutoAssign; [ipalloc.ErrInvalid] without TTL or handle, and with a Request.
func (e *Engine) Offer(ctx context.Context, a AssignArgs) (Assigned, error) {
	if a.TTL <= 0 {
		return Assigned{}, wrap(ipalloc.Error{Op: "offer", Owner: a.Owner.String(), Err: fmt.Errorf("%w: an offer for %v", errBadArgument, a.TTL)})
	}
	a.Existing, a.Sticky, a.offer = true, true, true
	return e.AutoAssign(ctx, a)
}

// Renew moves the end of all leases of a handle to ttl from now and returns them with their new end. Addresses that it holds
// without a lease stay as they are and are not among them. It returns [ipalloc.ErrNotHeld] if the handle has no lease, because
// there is none or because it has ended, [ipalloc.ErrInvalid], or an error of the store with the leases renewed so far.
func (e *Engine) Renew(ctx context.Context, handle string, ttl time.Duration) ([]Allocation, error) {
	if err := block.CheckName("handle", handle); err != nil || ttl <= 0 {
		return nil, wrap(ipalloc.Error{Op: "renew", Owner: handle, Err: errors.Join(err, errBadArgument)})
	}
	var renewed []Allocation
	err := e.eachAddressOf(ctx, handle, stepCost{opsPerLease, 1}, func(ids []netip.Prefix) error {
		p := renewPlan{handle: handle, ttl: ttl, ids: ids}
		err := e.do(ctx, &p)
		if err == nil { // else a batch may still be at it
			renewed = append(renewed, p.renewed...)
		}
		return err
	})
	if err == nil && len(renewed) == 0 {
		err = ipalloc.ErrNotHeld
	}
	if err != nil {
		return renewed, wrap(ipalloc.Error{Op: "renew", Owner: handle, Err: err})
	}
	return renewed, nil
}

// renewPlan moves the ends of some leases of a handle.
type renewPlan struct {
	handle  string
	ttl     time.Duration
	ids     []netip.Prefix // addresses with the prefix lengths of their blocks
	renewed []Allocation
}

// Plan implements [occ.Plan].
func (p *renewPlan) Plan(t *txn) (err error) {
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	held, err := t.heldAt(cat, p.ids, nil, p.handle)
	if err != nil {
		return err
	}
	p.renewed, err = t.extend(held, block.Later(t.now, int64(p.ttl)))
	return err
}

// extend moves the ends of those of some addresses that are held under a lease, and returns these.
func (t *txn) extend(held []place, until int64) ([]Allocation, error) {
	n := 0
	for i, h := range held {
		if i == 0 || held[i-1].be != h.be {
			n += t.blockOps(h.be, 0, true, false)
		}
		n++
	}
	if err := t.Room(n); err != nil {
		return nil, err
	}
	var extended []Allocation
	for _, h := range held {
		if h.be.Extend(h.x, h.Seq, until) {
			_, a := h.be.Look(h.x)
			h.Until = until
			extended = append(extended, a.AllocationOf(h.be.Addr(h.x), h.be.at.Bits(), h.Holder))
			t.Change(h.be)
		}
	}
	return extended, nil
}

// RenewIP moves the end of the lease of one address to ttl from now and returns the allocation with its new end. An address that is
// held without a lease stays as it is and is returned without one. Fields of the guard that are set must be those of the
// holder.
//
// Errors, nothing changed, each a refusal for a client: [ipalloc.ErrMismatch] with the holder if the guard names another,
// [ipalloc.ErrCooling] with the time, and [ipalloc.ErrNotHeld]. [ipalloc.ErrInvalid] and errors of the store as elsewhere. One commit.
func (e *Engine) RenewIP(ctx context.Context, a netip.Addr, g Guard, ttl time.Duration) (Allocation, error) {
	var renewed Allocation
	if ttl <= 0 {
		return renewed, wrap(ipalloc.Error{Op: "renew", Addr: a, Owner: g.Handle, Err: fmt.Errorf("%w: renewed for %v", errBadArgument, ttl)})
	}
	err := e.doHeld(ctx, a, g, func(t *txn, h place) error {
		_, was := h.be.Look(h.x)
		if renewed = was.AllocationOf(a, h.be.at.Bits(), h.Holder); h.Until == 0 {
			return nil
		}
		als, err := t.extend([]place{h}, block.Later(t.now, int64(ttl)))
		if err == nil {
			renewed = als[0]
		}
		return err
	}, nil)
	if err != nil {
		return Allocation{}, wrap(ipalloc.Error{Op: "renew", Addr: a, Owner: g.Handle, Err: err})
	}
	return renewed, nil
}

// DeclineArgs are the arguments of [Engine.Decline].
type DeclineArgs struct {
	Address netip.Addr
	// Guard is the holder that declines the address. It must be the only one: without a Guard, all holders lose the address.
	Guard
	// For is how long the address stays out of use.
	For time.Duration
	// Reason is kept with the address for that time; see [Allocation].Declined.
	Reason string
}

// Decline takes an address from its holder and out of use for a time, in one commit, as after a DHCPDECLINE: something else on the
// network answers for it. Until then it cools and no call assigns it, its former
// holder included. [Engine.Lookup] and Allocations show it with the reason. To repeat a Decline with the same handle is no error
// and changes nothing.
//
// Errors, nothing changed: [ipalloc.ErrMismatch] with the holder if the guard names another, [ipalloc.ErrInUse] if others hold the
// address beside the one that the guard names, [ipalloc.ErrCooling] with the time if the address cools for another reason, [ipalloc.ErrNotHeld], and [ipalloc.ErrInvalid]; [ipalloc.ErrLimit] for a reason of more
// than some 64 KiB; errors of the store as elsewhere.
func (e *Engine) Decline(ctx context.Context, a DeclineArgs) (Allocation, error) {
	fail := func(err error) (Allocation, error) {
		return Allocation{}, wrap(ipalloc.Error{Op: "decline", Addr: a.Address, Owner: a.Handle, Err: err})
	}
	if a.For <= 0 {
		return fail(fmt.Errorf("%w: declined for %v", errBadArgument, a.For))
	}
	var declined Allocation
	decline := func(t *txn, h place) error {
		_, was := h.be.Look(h.x)
		if a.Guard != (Guard{}) && was.Count() > 1 {
			return errCoHeld
		}
		why, err := block.DeclineAttributes(h.Handle, a.Reason)
		if err != nil {
			return err
		}
		if err := t.fetchCooling(h.be); err != nil {
			return err
		}
		if err := t.Room(t.blockOps(h.be, recordsOf(was), true, true)); err != nil {
			return err
		}
		h.be.Decline(h.x, t.now, block.Later(t.now, int64(a.For)), why)
		t.Change(h.be)
		_, is := h.be.Look(h.x)
		declined = h.be.Allocation(h.x, is)
		return nil
	}
	again := func(al Allocation) bool {
		by, _, ok := al.Declined()
		if ok = ok && a.Handle != "" && by == a.Handle && (a.Seq == 0 || a.Seq == al.Seq); ok {
			declined = al
		}
		return ok
	}
	if err := e.doHeld(ctx, a.Address, a.Guard, decline, again); err != nil {
		return fail(err)
	}
	return declined, nil
}

// heldPlan changes one address that must be held as a guard says.
type heldPlan struct {
	at    netip.Addr
	guard Guard
	do    func(*txn, place) error
	done  func(Allocation) bool // reports whether an address that cools is what the call would have made of it
}

// doHeld carries out a heldPlan.
func (e *Engine) doHeld(ctx context.Context, a netip.Addr, g Guard, do func(*txn, place) error, done func(Allocation) bool) error {
	if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
		return errBadAddress
	}
	return e.do(ctx, &heldPlan{a, g, do, done})
}

// Plan implements [occ.Plan].
func (p *heldPlan) Plan(t *txn) error {
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	be, err := t.locate(cat, p.at)
	if err != nil {
		return err
	}
	if be == nil || be.Block == nil {
		return ipalloc.ErrNotHeld
	}
	if err := t.ready(be, p.at); err != nil {
		return err
	}
	x, err := be.Ordinal(p.at)
	if err != nil {
		return ipalloc.ErrNotHeld
	}
	al, busy := be.Lookup(p.at)
	switch be.CanDrop(x, p.guard) {
	case OwnerChanged:
		return inTheWay(al, ipalloc.ErrMismatch)
	case Released:
		_, a := be.Look(x)
		h, _ := a.Find(p.guard)
		return p.do(t, place{be, x, h})
	}
	switch {
	case !busy:
		return ipalloc.ErrNotHeld
	case p.done != nil && p.done(al):
		return nil
	}
	return inTheWay(al, ipalloc.ErrCooling)
}

// inTheWay is the error for an address that is as al says: who has it, until when, and why if it was declined.
func inTheWay(al Allocation, err error) error {
	e := ipalloc.Error{Op: "find", Addr: al.Address, Holder: al.Holder(), Until: al.Until, Err: err}
	if handle, reason, ok := al.Declined(); ok {
		e.Holder, e.Reason = "", fmt.Sprintf("%v: declined by %q: %s", err, handle, reason)
	}
	return wrap(e)
}
