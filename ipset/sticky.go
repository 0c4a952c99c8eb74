package ipset

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/block"
)

// readLast reads what the handle had last. The commit verifies it, because the memo is replaced.
func (p *assignPlan) readLast(t *txn) error {
	key := kindSticky + p.Handle
	value, ok, err := t.Get(key)
	if err == nil {
		p.last, err = decodeMemo(key, value, ok)
	}
	return err
}

// pickSticky picks the addresses that the handle had last, where they are free, or cooling from its own use.
func (p *assignPlan) pickSticky(t *txn, s *search) error {
	err := t.fetchAt(p.cat, func(yield func(netip.Addr) bool) {
		for _, id := range p.last.ids {
			if !yield(id.Addr()) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	for _, id := range p.last.ids {
		a := id.Addr()
		i := p.cat.containing(a)
		if s.want == 0 || !s.serves(i) || slices.Contains(p.Addresses, a) {
			continue
		}
		be, err := t.block(p.cat, netip.PrefixFrom(a, p.cat.Pools[i].BlockBits).Masked())
		if err != nil {
			return err
		}
		if be.Block == nil || p.cat.Config.Strict && be.Owner() != p.Owner {
			continue
		}
		if err := t.ready(be, a); err != nil {
			return err
		}
		x, _ := be.Ordinal(a)
		if _, avoided := block.Within(be.avoid(p.cat, i), x); avoided || be.CanHold(x, p.Handle) != nil {
			continue
		}
		p.picks = append(p.picks, pick{be: be, ordinals: []uint64{x}})
		p.sticky = len(p.picks)
		s.want--
	}
	return nil
}

// stick notes the addresses that the handle has been given, for the next time. Those of a family of which it was given none stay.
func (p *assignPlan) stick(t *txn) {
	given := [2][]Allocation{p.result.V4, p.result.V6}
	if p.Num4 == 0 {
		given[0] = nil
	}
	if p.Num6 == 0 {
		given[1] = nil
	}
	if len(given[0])+len(given[1]) == 0 {
		return
	}
	last := p.last
	p.last.ids, p.last.seqs = nil, nil
	for i, id := range last.ids {
		if len(given[family(id)/6]) == 0 {
			p.last.ids, p.last.seqs = append(p.last.ids, id), append(p.last.seqs, last.seqs[i])
		}
	}
	t.remember(&p.last, given[0], given[1])
}
