package ipset

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// pickOwn picks from the blocks that the owner has, in address order. What follows rests on those passed over having no
// room, which the commit verifies. Of very many it cannot: then an index says which of them have room.
func (p *assignPlan) pickOwn(t *txn, s *search) error {
	n := p.own.Get().len()
	if n > t.MostGuards() {
		return p.pickOwnOfMany(t, s)
	}
	for k := range n {
		if t.blocks.Get(p.own.Get().at(k)) == nil {
			if err := t.warm(p.own.Get().slice()); err != nil {
				return err
			}
			break
		}
	}
	for k := 0; k < n && s.want > 0; k++ {
		if _, err := p.pickOwned(t, s, p.own.Get().at(k)); err != nil {
			return err
		}
	}
	return nil
}

// pickOwned picks from one of the owner's blocks and reports whether it found any.
func (p *assignPlan) pickOwned(t *txn, s *search, block netip.Prefix) (bool, error) {
	i := p.cat.containing(block.Addr())
	if !s.serves(i) || block.Bits() != p.cat.Pools[i].BlockBits {
		return false, nil // another family or pool, or a size that the pool no longer has: left to drain
	}
	be, err := t.peek(p.cat, block)
	if err != nil {
		return false, err
	}
	if p.own.Get().len() <= t.MostGuards() {
		t.Guard(&be.Cell)
	}
	if be.Block == nil {
		return p.pickMore(s, i, be), nil
	}
	return be.Owner() == p.Owner && p.pickFrom(t, s, i, be), nil
}

// pickOwnOfMany is pickOwn for an owner of more blocks than a commit can verify. It begins with the block that had room last; the
// index is read only if that does not suffice.
func (p *assignPlan) pickOwnOfMany(t *txn, s *search) error {
	from := codeRange(kindOwnRoom, p.Owner)
	last := t.e.hints.get(p.Owner, s.family)
	if last.IsValid() {
		if _, err := p.pickOwned(t, s, last); err != nil || s.want == 0 {
			return err
		}
	}
	rest := []store.Range{from}
	if last.IsValid() {
		at := string(appendBlockID([]byte(from.From), last))
		rest = []store.Range{{From: at + "\x00", To: from.To}, {From: from.From, To: at}}
	}
	for _, r := range rest {
		for r.Limit = firstList; ; r.Limit = listPage {
			recs, err := t.List(r)
			if err != nil {
				return err
			}
			if err := p.pickListed(t, s, recs, len(from.From)); err != nil || s.want == 0 {
				return err
			}
			if len(recs) < r.Limit {
				break
			}
			r.From = recs[len(recs)-1].Key + "\x00"
		}
	}
	return nil
}

// hint notes the block of the owner that had room last, if it may have too many to look at each.
func (p *assignPlan) hint(t *txn, block netip.Prefix) {
	if p.own.Get().len() >= t.MostGuards() {
		t.e.hints.set(p.Owner, block)
	}
}

// pickListed picks from the owner's blocks that the index lists. Blocks that are not as it says are read again.
func (p *assignPlan) pickListed(t *txn, s *search, recs []store.Record, at int) error {
	blocks, err := idsIn(recs, at)
	if err != nil {
		return err
	}
	var old []string
	for i, block := range blocks {
		if be := t.blocks.Get(block); be == nil || !be.shown.says(kindRoom, parseIndexValue(recs[i].Value)) {
			old = append(old, blockKey(kindBlock, block))
		}
	}
	if len(old) > 0 {
		if err := t.Read(old...); err != nil {
			return err
		}
	}
	for _, block := range blocks {
		found, err := p.pickOwned(t, s, block)
		if err != nil {
			return err
		}
		if found {
			p.hint(t, block)
		}
		if s.want == 0 {
			return nil
		}
	}
	return nil
}
