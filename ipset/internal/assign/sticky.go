package assign

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A machine that comes back finds its old address while that is free. The memo is a wish and no claim: the address stays free for
// others meanwhile.

// readLast reads what the handle had last. The commit verifies it, because the memo is replaced.
func (p *AssignPlan) readLast(t *txn.Txn) (err error) {
	p.last, err = t.Memo(record.KindSticky + p.Handle)
	return err
}

// preferred yields the address that the caller wishes for, then those that the handle had last.
func (p *AssignPlan) preferred(yield func(netip.Addr) bool) {
	if p.Wish.IsValid() && !yield(p.Wish) {
		return
	}
	if p.mode == exactly {
		return
	}
	for _, id := range p.last.Ids {
		if a := id.Addr(); a != p.Wish && !yield(a) {
			return
		}
	}
}

// pickSticky picks the preferred addresses, where they are free, or cooling from the handle's own use. A block is made for a wish
// alone.
func (p *AssignPlan) pickSticky(t *txn.Txn, s *Search) error {
	if err := t.FetchAt(p.cat, p.preferred); err != nil {
		return err
	}
	for a := range p.preferred {
		i := p.cat.Containing(a)
		if s.want == 0 || !s.Serves(i) || slices.Contains(p.Named, a) {
			continue
		}
		be, err := p.locate(t, a)
		if err != nil {
			return err
		}
		if be.Block != nil && !p.serves(i, be.At) {
			continue
		}
		if k := p.madeFor(a); k >= 0 {
			p.pickMade(s, i, k, a)
			continue
		}
		if be.Block == nil && a == p.Wish {
			if err := p.pickWish(t, s, i, be); err != nil {
				return err
			}
			continue
		}
		if be.Block != nil && a == p.Wish && p.cat.Config.Strict && be.Owner() != p.Owner {
			if err := p.pickStrict(t, s, i, be); err != nil {
				return err
			}
			continue
		}
		if be.Block == nil || p.cat.Config.Strict && be.Owner() != p.Owner {
			continue
		}
		if err := t.Ready(be, a); err != nil {
			return err
		}
		x, _ := be.Ordinal(a)
		if _, avoided := block.Within(be.Avoid(p.cat, i), x); avoided || be.CanHold(x, p.Handle) != nil {
			continue
		}
		p.picks = append(p.picks, pick{be: be, ordinals: []uint64{x}})
		p.sticky = len(p.picks)
		s.want--
	}
	return nil
}

// pickMade picks a preferred address from the block that pick k makes, if automatic assignment may give it.
func (p *AssignPlan) pickMade(s *Search, i, k int, a netip.Addr) {
	b := p.picks[k].fresh
	x, _ := b.Ordinal(a)
	if _, avoided := block.Within(txn.Avoided(b, p.cat, i), x); avoided || b.CanHold(x, p.Handle) != nil {
		return
	}
	p.picks[k].ordinals = append(p.picks[k].ordinals, x)
	s.want--
}

// pickWish makes the block of a wish for the owner, unless something that limits automatic assignment keeps the address or the block.
func (p *AssignPlan) pickWish(t *txn.Txn, s *Search, i int, be *txn.BlockEntry) error {
	if may, err := p.mayClaim(t, i); !may || err != nil {
		return err
	}
	b, err := block.New(be.At, p.blockOptions())
	if err != nil {
		return err
	}
	x, err := b.Ordinal(p.Wish)
	if err != nil {
		return err
	}
	if _, avoided := block.Within(txn.Avoided(b, p.cat, i), x); avoided || b.CanHold(x, p.Handle) != nil {
		return nil
	}
	gone, err := t.MakeRoom(p.cat, i, be.At, p.mayGo(t))
	if errors.Is(err, cause.Covered) {
		return p.timed(t, s) // time may delete what is in the way
	}
	if err != nil {
		return err
	}
	p.gone = append(p.gone, gone...)
	if b, err = t.NewBlock(p.cat, be.At, p.blockOptions()); err != nil {
		return err
	}
	p.picks = append(p.picks, pick{be: be, fresh: b, ordinals: []uint64{x}})
	p.sticky = len(p.picks)
	s.want--
	return nil
}

// pickStrict picks the wish from a block of another, which becomes the owner's, if strict affinity lets it: one that has been left empty or
// has no owner.
func (p *AssignPlan) pickStrict(t *txn.Txn, s *Search, i int, be *txn.BlockEntry) error {
	is := p.standing(t, be)
	if is == foreign {
		return nil
	}
	if may, err := p.mayClaim(t, i); !may || err != nil {
		return err
	}
	if err := t.Ready(be, p.Wish); err != nil {
		return err
	}
	k, b := pick{be: be}, be.Block
	if is == idle {
		fresh, err := p.emptied(t, be)
		if err != nil {
			return nil // the ends to reserve leave nothing of it
		}
		k.fresh, b = fresh, fresh
	}
	x, err := b.Ordinal(p.Wish)
	if _, avoided := block.Within(txn.Avoided(b, p.cat, i), x); err != nil || avoided || b.CanHold(x, p.Handle) != nil {
		return err
	}
	if k.ordinals = []uint64{x}; is == orphan {
		err = p.adopt(t, &k)
	} else {
		err = p.acquire(t, be)
	}
	if err != nil {
		return err
	}
	p.picks = append(p.picks, k)
	p.sticky = len(p.picks)
	s.want--
	return nil
}

// stick notes the addresses that the handle has been given, for the next time. Those of a family of which it was given none stay.
func (p *AssignPlan) stick(t *txn.Txn) {
	given := [2][]alloc.Allocation{p.result.V4, p.result.V6}
	if len(given[0])+len(given[1]) == 0 {
		return
	}
	last := p.last
	p.last.Ids, p.last.Seqs = nil, nil
	for i, id := range last.Ids {
		if len(given[record.Family(id)/6]) == 0 {
			p.last.Ids, p.last.Seqs = append(p.last.Ids, id), append(p.last.Seqs, last.Seqs[i])
		}
	}
	t.Remember(&p.last, given[0], given[1])
}
