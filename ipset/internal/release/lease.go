package release

import (
	"context"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/holder"
	"github.com/ipalloc/ipalloc/ipset/internal/keep"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A lease is moved, ended early or refused by its holder alone. The calls therefore name the holder in a guard, and what has
// changed hands since is an error and not a release.

// Renew carries out the call of that name.
func (e *Releaser) Renew(ctx context.Context, handle string, ttl time.Duration) ([]alloc.Allocation, error) {
	err := cause.Name("handle", handle)
	if err == nil && ttl < 0 {
		err = cause.Invalid("ttl", "%v is negative", ttl)
	}
	if err != nil {
		return nil, cause.Of("renew", handle, err)
	}
	ids, err := e.IDs(ctx, nil, record.HandleRange(handle))
	if err != nil {
		return nil, cause.Of("renew", handle, err)
	}
	var renewed []alloc.Allocation
	err = e.InSteps(ids, func(part []netip.Prefix) (int, error) {
		p := renewPlan{handle: handle, ttl: ttl, ids: part}
		if err := e.Do(ctx, &p); err != nil {
			return 0, err // a batch may still be at it
		}
		renewed = append(renewed, p.renewed...)
		return p.done, nil
	})
	if err == nil && len(renewed) == 0 {
		err = ipalloc.ErrNotHeld
	}
	return renewed, cause.Of("renew", handle, err)
}

// renewPlan moves the ends of some leases of a handle.
type renewPlan struct {
	handle  string
	ttl     time.Duration
	ids     []netip.Prefix // addresses with the prefix lengths of their blocks
	done    int            // how many of them
	renewed []alloc.Allocation
}

// Plan implements [occ.Plan].
func (p *renewPlan) Plan(t *txn.Txn) (err error) {
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	return occ.Fit(t, len(p.ids), func(n int) error {
		p.done = n
		held, err := t.HeldAt(cat, p.ids[:n], nil, p.handle)
		if err == nil {
			err = cat.CheckOpen(held...)
		}
		if err == nil {
			p.renewed = t.Extend(held, block.LeaseEnd(t.Now, p.ttl))
		}
		return err
	})
}

// RenewIP carries out the call of that name.
func (e *Releaser) RenewIP(ctx context.Context, a netip.Addr, g alloc.Guard, ttl time.Duration) (alloc.Allocation, error) {
	var renewed alloc.Allocation
	if ttl < 0 {
		return renewed, cause.Wrap(ipalloc.Error{Op: "renew", Addr: a, Handle: g.Handle, Err: cause.Invalid("ttl", "%v is negative", ttl)})
	}
	err := e.doHeld(ctx, a, g, func(t *txn.Txn, h txn.Place) error {
		_, was := h.Be.Look(h.X)
		if renewed = was.AllocationOf(a, h.Be.At.Bits(), h.Holder); h.Until == 0 {
			return nil
		}
		cat, err := t.Catalog()
		if err == nil {
			err = cat.CheckOpen(h)
		}
		if err != nil {
			return err
		}
		renewed = t.Extend([]txn.Place{h}, block.LeaseEnd(t.Now, ttl))[0]
		return nil
	}, nil)
	if err != nil {
		return alloc.Allocation{}, cause.Wrap(ipalloc.Error{Op: "renew", Addr: a, Handle: g.Handle, Err: err})
	}
	return renewed, nil
}

// declineAttributes returns the attributes of an address that a handle declines for a reason, which [alloc.Allocation.Declined] reads.
func declineAttributes(handle, reason string) (alloc.Attributes, error) {
	m := map[string]string{holder.AttrReason: reason}
	if handle != "" {
		m[holder.AttrBy] = handle
	}
	return alloc.NewAttributes(m)
}

// Decline carries out the call of that name.
func (e *Releaser) Decline(ctx context.Context, a alloc.DeclineArgs) (alloc.Allocation, error) {
	fail := func(err error) (alloc.Allocation, error) {
		return alloc.Allocation{}, cause.Wrap(ipalloc.Error{Op: "decline", Addr: a.Address, Handle: a.Handle, Err: err})
	}
	if a.For <= 0 {
		return fail(cause.Invalid("For", "%v is not above 0", a.For))
	}
	var declined alloc.Allocation
	decline := func(t *txn.Txn, h txn.Place) error {
		_, was := h.Be.Look(h.X)
		if a.Guard != (alloc.Guard{}) && was.Count() > 1 {
			return cause.CoHeld
		}
		why, err := declineAttributes(h.Handle, a.Reason)
		if err != nil {
			return err
		}
		if err := t.FetchCooling(h.Be); err != nil {
			return err
		}
		t.Change(h.Be)
		h.Be.Decline(h.X, t.Now, block.Later(t.Now, int64(a.For)), why)
		_, is := h.Be.Look(h.X)
		declined = h.Be.Allocation(h.X, is)
		return nil
	}
	again := func(al alloc.Allocation) bool {
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
	guard alloc.Guard
	do    func(*txn.Txn, txn.Place) error
	done  func(alloc.Allocation) bool // reports whether an address that cools is what the call would have made of it
}

// doHeld carries out a heldPlan.
func (e *Releaser) doHeld(ctx context.Context, a netip.Addr, g alloc.Guard, do func(*txn.Txn, txn.Place) error, done func(alloc.Allocation) bool) error {
	if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
		return cause.BadAddress
	}
	if err := keep.Check(ctx, "Handle", g.Handle); err != nil {
		return err
	}
	return e.Do(ctx, &heldPlan{a, g, do, done})
}

// Plan implements [occ.Plan].
func (p *heldPlan) Plan(t *txn.Txn) error {
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	be, err := t.Locate(cat, p.at)
	if err != nil {
		return err
	}
	if be == nil || be.Block == nil {
		return ipalloc.ErrNotHeld
	}
	if err := t.Ready(be, p.at); err != nil {
		return err
	}
	x, err := be.Ordinal(p.at)
	if err != nil {
		return ipalloc.ErrNotHeld
	}
	al, busy := be.Lookup(p.at)
	switch be.CanDrop(x, p.guard) {
	case alloc.OwnerChanged:
		return txn.InTheWay(al, ipalloc.ErrMismatch)
	case alloc.Released:
		_, a := be.Look(x)
		h, _ := a.Find(p.guard)
		return p.do(t, txn.Place{Be: be, X: x, Holder: h})
	}
	switch {
	case !busy:
		return ipalloc.ErrNotHeld
	case p.done != nil && p.done(al):
		return nil
	}
	return txn.InTheWay(al, ipalloc.ErrCooling)
}
