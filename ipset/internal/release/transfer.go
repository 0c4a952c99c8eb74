package release

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/keep"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A transfer changes the handle of a holding, so there is no moment at which the address is free. The new sequence number ends every guard
// of the former handle.

// Transfer carries out the call of that name.
func (e *Releaser) Transfer(ctx context.Context, a alloc.TransferArgs) ([]alloc.Allocation, error) {
	moved, err := e.transfer(ctx, a)
	if err != nil {
		err = cause.Wrap(ipalloc.Error{Op: "transfer", Addr: a.Address, Handle: a.From, Err: occ.Conflict("ipset", err)})
	}
	return moved, err
}

func (e *Releaser) transfer(ctx context.Context, a alloc.TransferArgs) (moved []alloc.Allocation, err error) {
	err = cmp.Or(cause.Name("From", a.From), cause.Name("To", a.To), keep.Check(ctx, "From", a.From), keep.Check(ctx, "To", a.To))
	switch {
	case err != nil:
	case a.From == a.To:
		err = cause.Invalid("To", "it is the present handle")
	case a.Address != netip.Addr{} && addr.CheckAddr(a.Address) != nil:
		err = cause.BadAddress
	default:
		err = e.CheckAlso(a.Also)
	}
	if err != nil {
		return nil, err
	}
	if a.Address.IsValid() || len(a.Also) > 0 {
		p := transferPlan{TransferArgs: a, also: txn.Also{Ops: a.Also}}
		if err := e.Do(ctx, &p); err != nil {
			return nil, err // a batch may still be at it
		}
		return p.moved, nil
	}
	ids, err := e.IDs(ctx, nil, record.HandleRange(a.From))
	if err != nil {
		return nil, err
	}
	err = e.InSteps(ids, func(part []netip.Prefix) (int, error) {
		p := transferPlan{TransferArgs: a, places: part}
		if err := e.Do(ctx, &p); err != nil {
			return 0, err // a batch may still be at it
		}
		moved = append(moved, p.moved...)
		return p.done, nil
	})
	return moved, err
}

// transferPlan gives the addresses of a handle to another: one, those in places as far as the commit takes them, or all.
type transferPlan struct {
	alloc.TransferArgs
	places []netip.Prefix // addresses with the prefix lengths of their blocks
	done   int            // how many of them
	also   txn.Also
	moved  []alloc.Allocation
}

// Detach implements [occ.Detacher].
func (p *transferPlan) Detach() { p.also.Ops = append(p.also.Ops[:0:0], p.also.Ops...) }

// Plan implements [occ.Plan].
func (p *transferPlan) Plan(t *txn.Txn) error {
	p.also.Runs++
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	switch {
	case p.Address.IsValid():
		return p.one(t, cat)
	case p.places == nil && t.Changes(p.From):
		return occ.ErrFirst // the index does not show it yet
	case p.places == nil:
		held, err := t.HeldBy(cat, p.From)
		if err == nil {
			err = p.move(t, cat, held)
		}
		return err
	}
	return occ.Fit(t, len(p.places), func(n int) error {
		p.done = n
		held, err := t.HeldAt(cat, p.places[:n], nil, p.From)
		if err == nil {
			err = p.move(t, cat, held)
		}
		return err
	})
}

// one transfers one address, which may be held or cool.
func (p *transferPlan) one(t *txn.Txn, cat *txn.CatalogEntry) error {
	p.moved = nil
	be, err := t.Locate(cat, p.Address)
	if err != nil {
		return err
	}
	if be == nil || be.Block == nil {
		return ipalloc.ErrNotHeld
	}
	if err := t.Ready(be, p.Address); err != nil {
		return err
	}
	x, err := be.Ordinal(p.Address)
	if err != nil {
		return ipalloc.ErrNotHeld
	}
	switch st, a := be.Look(x); {
	case st == block.Cooling && a.Handle == p.From:
		return p.again(t, cat, be, x)
	case st == block.Cooling:
		return txn.InTheWay(be.Allocation(x, a), ipalloc.ErrCooling)
	case st != block.Held:
		return ipalloc.ErrNotHeld
	case be.HasHolder(x, p.From):
		if a.IsKept() {
			return txn.InTheWay(be.AllocationOf(x, p.From), cause.IsKept)
		}
		h, _ := a.Find(alloc.Guard{Handle: p.From})
		return p.move(t, cat, []txn.Place{{Be: be, X: x, Holder: h}})
	case be.HasHolder(x, p.To): // the call was made before
		p.moved = append(p.moved, be.AllocationOf(x, p.To))
		return nil
	default:
		return txn.InTheWay(be.Allocation(x, a), ipalloc.ErrMismatch)
	}
}

// move transfers what the former handle holds, but for kept addresses.
func (p *transferPlan) move(t *txn.Txn, cat *txn.CatalogEntry, held []txn.Place) error {
	p.moved = nil
	if err := cat.CheckOpen(held...); err != nil {
		return err
	}
	moves := make([]txn.Place, 0, len(held))
	for _, h := range held {
		_, a := h.Be.Look(h.X)
		if a.IsKept() {
			continue
		}
		if h.Be.HasHolder(h.X, p.To) {
			return txn.InTheWay(h.Be.AllocationOf(h.X, p.To), ipalloc.ErrOccupied)
		}
		h.Handle, h.First, h.Since = p.To, false, wire.Seconds(t.Now)
		is := h.Holder
		if is.Borrowed = true; a.Count() > 1 {
			if err := h.Be.CanGrow(h.X, is, t.E.Limits.Value); err != nil {
				return err
			}
		}
		moves = append(moves, h)
	}
	if err := p.finish(t, len(moves) > 0); err != nil {
		return err
	}
	for _, h := range moves {
		t.Change(h.Be)
		is := h.Be.Move(h.X, h.Holder)
		_, a := h.Be.Look(h.X)
		p.moved = append(p.moved, a.AllocationOf(h.Be.Addr(h.X), h.Be.At.Bits(), is))
	}
	return nil
}

// again has the new handle hold an address that cools for the former one, for the same host.
func (p *transferPlan) again(t *txn.Txn, cat *txn.CatalogEntry, be *txn.BlockEntry, x uint64) error {
	_, a := be.Look(x)
	i, id := cat.Containing(p.Address), a.Identity
	switch {
	case i < 0:
		return cause.Outside
	case cat.Closed(i):
		return cause.Closed
	case cat.Pools[i].Disabled:
		return cause.NoPool
	case cat.Config.Strict && be.Owner() != id.Host && be.Owner().Kind != alloc.Nobody:
		return cause.Wrap(ipalloc.Error{Op: "transfer", Prefix: be.At, Holder: be.Owner().String(), Err: cause.Strict})
	}
	if err := p.finish(t, true); err != nil {
		return err
	}
	t.Change(be)
	id.Handle, id.Indexed = p.To, block.Marks(id.Active, cat.Index(be.At))
	be.Hold(x, id, t.Now, 0)
	p.moved = append(p.moved, be.AllocationOf(x, p.To))
	return nil
}

// finish writes the caller's records, and ends what the former handle would get back, if anything moves.
func (p *transferPlan) finish(t *txn.Txn, moves bool) error {
	if err := p.also.Join(t); err != nil || !moves {
		return err
	}
	m, err := t.Memo(record.KindSticky + p.From)
	if err != nil || m.At == 0 {
		return err
	}
	left := record.Memo{Key: m.Key, At: m.At}
	for i, id := range m.Ids {
		if p.Address.IsValid() && id.Addr() != p.Address {
			left.Ids, left.Seqs = append(left.Ids, id), append(left.Seqs, m.Seqs[i])
		}
	}
	switch {
	case len(left.Ids) == 0:
		t.ForgetMemo(&m)
	case len(left.Ids) < len(m.Ids):
		t.Remember(&left)
	}
	return nil
}
