package assign

import (
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A caller that repeats a call must not be given more, so the plan first looks up what the handle holds. The record of the first holding
// of the handle, which every such call reads and every one that assigns writes, makes two concurrent calls conflict.

// existing puts what the handle holds into the result, the first holding first, and reports whether that is all that is asked for. If
// the handle has no first holding, the first address of the result becomes it, or the first one that the call assigns.
func (p *AssignPlan) existing(t *txn.Txn) (bool, error) {
	held, err := p.holdings(t)
	if err != nil || len(held) == 0 {
		return false, err
	}
	var left [2]int
	for _, shown := range [...]bool{true, false} {
		left = p.asked()
		for _, h := range held {
			n := &left[record.Family(h.Be.At)/6]
			if *n--; shown == (*n >= 0 || p.mode == whatever) {
				p.moves = append(p.moves, h)
			}
		}
		if shown {
			p.shown = len(p.moves)
		}
	}
	if p.WithinRules {
		q := p.choice(p.node, 0)
		if err := p.cat.RefuseHeld(&q, p.moves[:p.shown]...); err != nil {
			return false, err
		}
	}
	for i, h := range p.moves {
		if err := p.mayMove(t, h, i < p.shown); err != nil {
			return false, err
		}
	}
	p.answer(p.moves[:p.shown])
	if p.mode == whatever || left[0] <= 0 && left[1] <= 0 {
		p.moveHeld(t)
		return true, nil
	}
	if p.again = true; p.inRow() {
		return false, cause.Torn
	}
	return false, nil
}

// holdings returns what the handle holds, the first holding first, until the next call. With Pools it is what they have.
func (p *AssignPlan) holdings(t *txn.Txn) ([]txn.Place, error) {
	if t.Changes(p.Handle) {
		return nil, occ.ErrFirst // the index does not show it yet
	}
	cat, err := t.Catalog()
	if err != nil {
		return nil, err
	}
	p.cat = cat
	held, err := t.HeldBy(cat, p.Handle)
	if err != nil {
		return nil, err
	}
	first := slices.IndexFunc(held, func(h txn.Place) bool { return h.First })
	if first < 0 {
		if p.ended, err = t.EndedFirst(cat, p.Handle); err != nil {
			return nil, err
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
	if len(held) == 0 {
		p.first, p.again = first < 0, first >= 0 // in another pool
	}
	p.marks = len(held) > 0 && first < 0
	return held, cat.CheckOpen(held...)
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

// mayMove returns the error for a holding that is to move to the owner of the call, or to get its attributes, and may not: under strict
// affinity an address stays with the owner of its block.
func (p *AssignPlan) mayMove(t *txn.Txn, h txn.Place, shown bool) error {
	of, is := h.Be.Owner(), h.Holder
	if h.Host != p.Owner && p.cat.Config.Strict && of != p.Owner && of.Kind != alloc.Nobody {
		al := h.Be.AllocationOf(h.X, p.Handle)
		al.Handle = "" // the error names the host
		return txn.InTheWay(al, cause.Strict)
	}
	if is.Host != p.Owner {
		is.Host, is.Borrowed = p.Owner, true
	}
	if shown {
		is = p.relabel(h, is)
	}
	if _, a := h.Be.Look(h.X); is == h.Holder || a.Count() < 2 {
		return nil
	}
	return h.Be.CanGrow(h.X, is, t.E.Limits.Value)
}

// relabel returns a holder with the attributes of the call, if it has any.
func (p *AssignPlan) relabel(h txn.Place, is block.Holder) block.Holder {
	if p.Attributes != (alloc.Attributes{}) && is.Active != p.Attributes {
		is.Active, is.Indexed = p.Attributes, block.Marks(p.Attributes, p.cat.Index(h.Be.At))
	}
	return is
}

// answerHeld puts a named address that the handle holds already into the result, if the rules of q allow it. Its host and attributes are
// those of the call after the commit.
func (p *AssignPlan) answerHeld(t *txn.Txn, be *txn.BlockEntry, x uint64, q *pool.Choice) error {
	_, a := be.Look(x)
	h := txn.Place{Be: be, X: x}
	h.Holder, _ = a.Find(alloc.Guard{Handle: p.Handle})
	err := p.mayMove(t, h, true)
	if err == nil && p.WithinRules {
		err = p.cat.RefuseHeld(q, h)
	}
	if err != nil {
		return err
	}
	p.moves = append(p.moves, h)
	p.shown = len(p.moves)
	p.answer(p.moves[p.shown-1:])
	return nil
}

// moveHeld makes the owner of the call the host of what the handle holds, in the commit of the answer, with a new sequence number, so no guard
// of the former host matches. What the result shows gets the attributes of the call, and the end of an offer.
func (p *AssignPlan) moveHeld(t *txn.Txn) {
	if p.marks {
		if p.ended != nil {
			t.Change(p.ended)
		}
		h := p.moves[0]
		t.Change(h.Be)
		t.MakeFirst(h.Be, h.X, h.Seq, p.Handle)
		p.moves[0].First = true
	}
	end := block.LeaseEnd(t.Now, p.TTL)
	for i, h := range p.moves {
		was := h.Holder
		if h.Host != p.Owner {
			t.Change(h.Be)
			h.From, h.Host = h.Host, p.Owner
			h.Holder = h.Be.Move(h.X, h.Holder)
		}
		if is := p.relabel(h, h.Holder); i < p.shown && is != h.Holder {
			t.Change(h.Be)
			h.Holder = is
			h.Be.Replace(h.X, is)
		}
		if i < p.shown && p.mode == offered && h.Until != 0 && h.Until < end {
			t.Extend([]txn.Place{h}, end)
			h.Until = end
		}
		if h.Holder == was {
			continue
		}
		for _, als := range [...][]alloc.Allocation{p.result.V4, p.result.V6} {
			for k := range als {
				if als[k].Address == h.Be.Addr(h.X) {
					als[k] = h.Be.AllocationOf(h.X, p.Handle)
					als[k].MovedFrom = h.From
				}
			}
		}
	}
}
