package assign

import (
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A caller that repeats a call must not be given more, so the plan first looks up what the handle holds. The record of the first holding
// of the handle, which every such call reads and every one that assigns writes, makes two concurrent calls conflict.

// existing puts what the handle holds into the result, the first holding first, and reports whether that is anything. If the handle
// has no first holding, the first address of the result becomes it, or the first one that the call assigns.
func (p *AssignPlan) existing(t *txn.Txn) (bool, error) {
	if t.Changes(p.Handle) {
		return false, occ.ErrFirst // the index does not show it yet
	}
	cat, err := t.Catalog()
	if err != nil {
		return false, err
	}
	p.cat = cat
	held, err := t.HeldBy(cat, p.Handle)
	if err != nil {
		return false, err
	}
	first := slices.IndexFunc(held, func(h txn.Place) bool { return h.First })
	if first < 0 {
		if p.ended, err = t.EndedFirst(cat, p.Handle); err != nil {
			return false, err
		}
	}
	if first > 0 {
		h := held[first]
		copy(held[1:], held[:first])
		held[0] = h
	}
	if len(p.Pools) > 0 {
		held = slices.DeleteFunc(held, func(h txn.Place) bool { return !p.names(cat.Containing(h.Be.At.Addr())) })
	}
	if err := cat.CheckOpen(held...); err != nil {
		return false, err
	}
	if len(held) == 0 {
		p.first, p.again = first < 0, first >= 0 // in another pool
		return false, nil
	}
	for _, h := range held {
		if err := p.mayMove(t, h); err != nil {
			return false, err
		}
	}
	if first < 0 {
		if p.ended != nil {
			t.Change(p.ended)
		}
		t.Change(held[0].Be)
		t.MakeFirst(held[0].Be, held[0].X, held[0].Seq, p.Handle)
	}
	for i := range held {
		held[i] = p.move(t, held[i])
	}
	if p.mode == offered {
		short := slices.DeleteFunc(slices.Clone(held), func(h txn.Place) bool {
			return h.Until == 0 || h.Until >= block.LeaseEnd(t.Now, p.TTL)
		})
		t.Extend(short, block.LeaseEnd(t.Now, p.TTL))
	}
	p.answer(held)
	return true, nil
}

// names reports whether pool i is one of those that the caller names.
func (p *AssignPlan) names(i int) bool {
	return i >= 0 && slices.Contains(p.Pools, p.cat.Pools[i].Name)
}

// answer puts what the handle holds already into the result.
func (p *AssignPlan) answer(held []txn.Place) {
	for _, h := range held {
		al := h.Be.AllocationOf(h.X, p.Handle)
		al.MovedFrom = h.From
		add(&p.result, al)
	}
}

func add(r *alloc.Assigned, al alloc.Allocation) {
	if al.Address.Is4() {
		r.V4 = append(r.V4, al)
	} else {
		r.V6 = append(r.V6, al)
	}
}

// mayMove returns the error for a holding that is to move to the owner of the call and may not: under strict affinity an address stays with
// the owner of its block.
func (p *AssignPlan) mayMove(t *txn.Txn, h txn.Place) error {
	if h.Host == p.Owner {
		return nil
	}
	if of := h.Be.Owner(); p.cat.Config.Strict && of != p.Owner && of.Kind != alloc.Nobody {
		al := h.Be.AllocationOf(h.X, p.Handle)
		al.Handle = "" // the error names the host
		return txn.InTheWay(al, cause.Strict)
	}
	if _, a := h.Be.Look(h.X); a.Count() < 2 {
		return nil
	}
	is := h.Holder
	is.Host, is.Borrowed = p.Owner, true
	return h.Be.CanGrow(h.X, is, t.E.Limits.Value)
}

// move makes the owner of the call the host of a holding, in the commit of the answer. The sequence number is a new one, so no guard
// of the former host matches.
func (p *AssignPlan) move(t *txn.Txn, h txn.Place) txn.Place {
	if h.Host == p.Owner {
		return h
	}
	t.Change(h.Be)
	h.From, h.Host = h.Host, p.Owner
	h.Holder = h.Be.Move(h.X, h.Holder)
	return h
}

// answerHeld puts a named address that the handle holds already into the result. If the host is another one, commit moves the holding.
func (p *AssignPlan) answerHeld(t *txn.Txn, be *txn.BlockEntry, x uint64) error {
	_, a := be.Look(x)
	h := txn.Place{Be: be, X: x}
	h.Holder, _ = a.Find(alloc.Guard{Handle: p.Handle})
	if err := p.mayMove(t, h); err != nil {
		return err
	}
	if h.Host != p.Owner {
		p.moves = append(p.moves, h)
	}
	add(&p.result, be.AllocationOf(x, p.Handle))
	return nil
}

// moveHeld carries out the moves that answerHeld has noted.
func (p *AssignPlan) moveHeld(t *txn.Txn) {
	for _, h := range p.moves {
		h = p.move(t, h)
		for _, als := range [...][]alloc.Allocation{p.result.V4, p.result.V6} {
			for i := range als {
				if als[i].Address == h.Be.Addr(h.X) {
					als[i] = h.Be.AllocationOf(h.X, p.Handle)
					als[i].MovedFrom = h.From
				}
			}
		}
	}
}
