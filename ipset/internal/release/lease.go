package release

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/holder"
	"github.com/ipalloc/ipalloc/ipset/internal/keep"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A lease is moved, ended early or refused by its holder alone. The calls therefore name the holder in a guard, and what has
// changed hands since is an error and not a release.

// rules returns the rules that a renewal applies, nil for none.
func (e *Releaser) rules(a *alloc.RenewArgs) (*pool.Choice, error) {
	switch {
	case a.TTL < 0:
		return nil, cause.Invalid("TTL", "%v is negative", a.TTL)
	case !a.WithinRules && (a.Owner != alloc.Owner{} || a.Use != 0 || a.Namespace != nil):
		return nil, cause.Invalid("WithinRules", "is not set, and Owner, Use and Namespace are for it")
	case !a.WithinRules:
		return nil, nil
	case a.Use&^pool.AllUses != 0 || a.Use&(a.Use-1) != 0:
		return nil, cause.UnknownUse
	}
	if err := a.Owner.Check(); err != nil {
		return nil, err
	}
	labels, ok := e.Labels(a.Owner)
	if !ok {
		return nil, cause.UnknownOwner
	}
	return &pool.Choice{Use: cmp.Or(a.Use, alloc.Workload), Owner: a.Owner, Node: labels, Space: maps.Clone(a.Namespace), Named: true, Both: true}, nil
}

// Renew carries out the call of that name.
func (e *Releaser) Renew(ctx context.Context, handle string, a alloc.RenewArgs) ([]alloc.Allocation, error) {
	err := cause.Name("handle", handle)
	var rules *pool.Choice
	if err == nil {
		rules, err = e.rules(&a)
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
		p := renewPlan{handle: handle, ttl: a.TTL, rules: rules, ids: part}
		if err := e.Do(ctx, &p); err != nil {
			return 0, err // a batch may still be at it
		}
		renewed = append(renewed, p.renewed...)
		return p.done, nil
	})
	if err == nil && len(renewed) == 0 {
		err = ipalloc.ErrNotHeld
	}
	return renewed, refusal(ipalloc.Error{Op: "renew", Handle: handle}, err)
}

// refusal returns the error of a renewal, with what the rules name, nil for nil.
func refusal(e ipalloc.Error, err error) error {
	if e.Err = err; err == nil {
		return nil
	}
	pool.Describe(err, &e)
	return cause.Wrap(e)
}

// renewPlan moves the ends of some leases of a handle.
type renewPlan struct {
	handle  string
	ttl     time.Duration
	rules   *pool.Choice
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
			p.renewed, err = renew(t, cat, p.rules, p.ttl, held)
		}
		return err
	})
}

// renew moves the ends of those of some addresses that are leases, as far as the rules allow all of them.
func renew(t *txn.Txn, cat *txn.CatalogEntry, rules *pool.Choice, ttl time.Duration, held []txn.Place) ([]alloc.Allocation, error) {
	if err := cat.CheckOpen(held...); err != nil {
		return nil, err
	}
	held = slices.DeleteFunc(held, func(h txn.Place) bool { return h.Until == 0 })
	if rules != nil {
		if err := cat.RefuseHeld(rules, held...); err != nil {
			return nil, err
		}
	}
	return t.Extend(held, block.LeaseEnd(t.Now, ttl)), nil
}

// RenewIP carries out the call of that name.
func (e *Releaser) RenewIP(ctx context.Context, at netip.Addr, g alloc.Guard, a alloc.RenewArgs) (alloc.Allocation, error) {
	var renewed alloc.Allocation
	rules, err := e.rules(&a)
	if err == nil {
		err = e.doHeld(ctx, at, g, func(t *txn.Txn, h txn.Place) error {
			_, was := h.Be.Look(h.X)
			if renewed = was.AllocationOf(at, h.Be.At.Bits(), h.Holder); h.Until == 0 {
				return nil
			}
			cat, err := t.Catalog()
			if err != nil {
				return err
			}
			all, err := renew(t, cat, rules, a.TTL, []txn.Place{h})
			if err == nil {
				renewed = all[0]
			}
			return err
		}, nil)
	}
	if err != nil {
		return alloc.Allocation{}, refusal(ipalloc.Error{Op: "renew", Addr: at, Handle: g.Handle}, err)
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
