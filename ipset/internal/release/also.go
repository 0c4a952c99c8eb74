package release

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// ReleaseArgs are the arguments of [Engine.Release].
type ReleaseArgs struct {
	// Handle, if not empty, releases all of its addresses.
	Handle string
	// Addresses are released if their guards hold.
	Addresses []Release
	// Also are records of yours that are written in the same commit. Their keys begin with an upper-case letter.
	Also []store.Op
}

// Release carries out the call of that name.
func (e *Releaser) Release(ctx context.Context, a ReleaseArgs) ([]netip.Addr, error) {
	fail := func(err error) ([]netip.Addr, error) {
		return nil, cause.Wrap(ipalloc.Error{Op: "release", Owner: a.Handle, Err: occ.Conflict("ipset", err)})
	}
	if a.Handle != "" {
		if err := block.CheckName("handle", a.Handle); err != nil {
			return fail(err)
		}
	}
	for _, r := range a.Addresses {
		if !r.Address.IsValid() || r.Address.Is4In6() || r.Address.Zone() != "" {
			return fail(cause.Wrap(ipalloc.Error{Op: "release", Addr: r.Address, Err: cause.BadAddress}))
		}
	}
	if err := e.CheckAlso(a.Also); err != nil {
		return fail(err)
	}
	p := ReleaseAllPlan{Args: a, also: txn.Also{Ops: a.Also}}
	if err := e.Do(ctx, &p); err != nil {
		return fail(err)
	}
	return p.Released, nil
}

// ReleaseAllPlan releases addresses, all or none.
type ReleaseAllPlan struct {
	Args     ReleaseArgs
	also     txn.Also
	Guards   []store.Op // of the records of the addresses
	Released []netip.Addr
}

// Detach implements [occ.Detacher].
func (p *ReleaseAllPlan) Detach() {
	p.Args.Addresses, p.also.Ops, p.Guards = slices.Clone(p.Args.Addresses), slices.Clone(p.also.Ops), slices.Clone(p.Guards)
}

// Plan implements plan.
func (p *ReleaseAllPlan) Plan(t *txn.Txn) error {
	p.also.Runs++
	p.Released = nil
	if len(p.Guards) > 0 && t.Pending() {
		return occ.ErrFirst // the records may change in this commit
	}
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	var held []txn.Place
	if p.Args.Handle != "" {
		if t.Changes(p.Args.Handle) {
			return occ.ErrFirst // the index does not show it yet
		}
		if held, err = t.HeldBy(cat, p.Args.Handle); err != nil {
			return err
		}
	}
	err = t.FetchAt(cat, func(yield func(netip.Addr) bool) {
		for _, r := range p.Args.Addresses {
			if !yield(r.Address) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	for _, r := range p.Args.Addresses {
		h, ok, err := guarded(t, cat, r)
		if err != nil {
			return err
		}
		if ok {
			held = append(held, h)
		}
	}
	slices.SortStableFunc(held, func(a, b txn.Place) int { return a.Be.At.Addr().Compare(b.Be.At.Addr()) })
	var drops []txn.Drop
	for _, h := range held {
		if n := len(drops); n == 0 || drops[n-1].Be != h.Be {
			drops = append(drops, txn.Drop{Be: h.Be})
		}
		d := &drops[len(drops)-1]
		if d.Has(h.X, h.Seq) {
			continue // named twice
		}
		d.Add(h.X, h.Seq)
		if at := h.Be.Addr(h.X); !d.Shared || !slices.Contains(p.Released, at) {
			p.Released = append(p.Released, at)
		}
	}
	// What writes the record of an address writes the block's, which was read before: its guard is one of these too.
	if err := t.Expect(p.Guards); err != nil {
		return err
	}
	if err := p.also.Reserve(t); err != nil {
		return err
	}
	if err := t.Drop(cat, drops); err != nil {
		return err
	}
	p.also.Write(t)
	return nil
}

// guarded returns the place of an address that is to be released and the holder that goes, none for all of them; ok is false if the
// address is not held.
func guarded(t *txn.Txn, cat *txn.CatalogEntry, r Release) (h txn.Place, ok bool, err error) {
	be, err := t.Locate(cat, r.Address)
	if err != nil || be == nil || be.Block == nil {
		return txn.Place{}, false, err
	}
	if err := t.Ready(be, r.Address); err != nil {
		return txn.Place{}, false, err
	}
	x, err := be.Ordinal(r.Address)
	if err != nil {
		return txn.Place{}, false, nil
	}
	if be.CanDrop(x, r.Guard) == block.OwnerChanged {
		al, _ := be.Lookup(r.Address)
		return txn.Place{}, false, txn.InTheWay(al, ipalloc.ErrMismatch)
	}
	st, a := be.Look(x)
	if st != block.Held {
		return txn.Place{}, false, nil
	}
	h = txn.Place{Be: be, X: x}
	if r.Guard != (block.Guard{}) {
		h.Holder, _ = a.Find(r.Guard)
	}
	return h, true, nil
}
