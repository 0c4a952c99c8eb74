package ipset

import (
	"context"
	"math/bits"
	"net/netip"

	"github.com/ipalloc/ipalloc"
)

// SetOwnerArgs are the arguments of [Engine.SetAttributes].
type SetOwnerArgs struct {
	Address netip.Addr
	// Guard names the handle, and perhaps the allocation, that must hold the address, and selects that holder of a shared
	// address. Without it the first holder is meant.
	Guard
	// Active and Alternate replace the attributes where they are not nil.
	Active, Alternate *Attributes
	// Host, if not nil, becomes the host that the address is held for: the one that a virtual machine has moved to.
	Host *Owner
	// Swap exchanges active and alternate before they are replaced.
	Swap bool
	// IfActive and IfAlternate, if not nil, must equal the present attributes, before the swap.
	IfActive, IfAlternate *Attributes
}

// detach copies what the arguments refer to, because the plan may outlive the call.
func (a *SetOwnerArgs) detach() {
	for _, p := range []**Attributes{&a.Active, &a.Alternate, &a.IfActive, &a.IfAlternate} {
		if *p != nil {
			c := **p
			*p = &c
		}
	}
	if a.Host != nil {
		c := *a.Host
		a.Host = &c
	}
}

// SetAttributes changes what one holder of one address has: the attributes of the owner that is active and of the one that may
// take over, which it can swap, and the host that the address is held for. Other holders of the address and other addresses of
// the handle keep theirs.
//
// Errors, nothing changed: [ipalloc.ErrInvalid] for an address or a host that cannot be; [ipalloc.ErrNotHeld]; [ipalloc.ErrCooling]
// with the time; [ipalloc.ErrMismatch] with the holder if the guard names another, or if one of the expected attributes is
// different; [ipalloc.ErrLimit] if the record of a shared address would take more than 256 KiB; errors of the store as elsewhere. One commit.
func (e *Engine) SetAttributes(ctx context.Context, a SetOwnerArgs) error {
	var err error
	if a.Host != nil {
		err = a.Host.Check()
	}
	if err == nil {
		a.detach()
		err = e.doHeld(ctx, a.Address, a.Guard, a.apply, nil)
	}
	if err != nil {
		return wrap(ipalloc.Error{Op: "set attributes", Addr: a.Address, Owner: a.Handle, Err: err})
	}
	return nil
}

// apply changes a holder.
func (a *SetOwnerArgs) apply(t *txn, at place) error {
	h := at.Holder
	if a.IfActive != nil && *a.IfActive != h.Active || a.IfAlternate != nil && *a.IfAlternate != h.Alternate {
		return errOwner
	}
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	if a.Swap {
		h.Active, h.Alternate = h.Alternate, h.Active
	}
	if a.Active != nil {
		h.Active = *a.Active
	}
	if a.Alternate != nil {
		h.Alternate = *a.Alternate
	}
	index := cat.index(at.be.at)
	h.Indexed = h.Active.Mark(index)
	if a.Host != nil {
		h.Host, h.Borrowed = *a.Host, *a.Host != at.be.Owner()
	}
	if _, is := at.be.Look(at.x); is.Count() > 1 {
		if err := at.be.CanGrow(at.x, h, t.e.limits.Value); err != nil {
			return err
		}
	}
	if err := t.Room(t.blockOps(at.be, opsPerAddress+len(index)+bits.OnesCount64(at.Indexed), false, false)); err != nil {
		return err
	}
	at.be.Replace(at.x, h)
	t.Change(at.be)
	return nil
}
