package release

import (
	"context"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A virtual machine that migrates changes host and attributes in one step, without a moment at which its address has no holder.
// Conditions on the present attributes let two controllers agree on who makes the step.

// update is one call of Update.
type update struct{ alloc.UpdateArgs }

// detach copies what the arguments refer to, because the plan may outlive the call.
func (a *update) detach() {
	for _, p := range []**alloc.Attributes{&a.Active, &a.Alternate, &a.IfActive, &a.IfAlternate} {
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

// Update carries out the call of that name.
func (e *Releaser) Update(ctx context.Context, a alloc.UpdateArgs) error {
	var err error
	if a.Host != nil {
		err = cause.As("Host", a.Host.Check())
	}
	if err == nil {
		p := update{a}
		p.detach()
		err = e.doHeld(ctx, a.Address, a.Guard, p.apply, nil)
	}
	if err != nil {
		return cause.Wrap(ipalloc.Error{Op: "update", Addr: a.Address, Handle: a.Handle, Err: err})
	}
	return nil
}

// apply changes a holder.
func (a *update) apply(t *txn.Txn, at txn.Place) error {
	h := at.Holder
	if a.IfActive != nil && *a.IfActive != h.Active || a.IfAlternate != nil && *a.IfAlternate != h.Alternate {
		return cause.Owner
	}
	cat, err := t.Catalog()
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
	h.Indexed = block.Marks(h.Active, cat.Index(at.Be.At))
	if a.Host != nil {
		h.Host, h.Borrowed = *a.Host, *a.Host != at.Be.Owner()
	}
	_, is := at.Be.Look(at.X)
	if is.Count() > 1 {
		if err := at.Be.CanGrow(at.X, h, t.E.Limits.Value); err != nil {
			return err
		}
	}
	t.Change(at.Be)
	at.Be.Replace(at.X, h)
	return nil
}
