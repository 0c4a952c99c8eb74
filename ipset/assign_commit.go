package ipset

import "net/netip"

// opsPerBlock bounds the records that an assignment writes for a block: itself, room, empty, orphan, two of due and one each
// of its handle and its host. dropOps is what giving back an address may cost: the same, the owner's record and some pages.
const (
	opsPerBlock = 8
	dropOps     = opsPerBlock + 4
)

// commit carries out the picks. All that can fail is asked first; then blocks, owners and pages are changed and the
// result is complete.
func (p *assignPlan) commit(t *txn) error {
	n := p.draft.size() + opsPerBlock*len(p.picks) + memoOps + 6 // and a sticky handle's families, each with its age
	for _, k := range p.picks {
		n += len(k.be.touches)
	}
	if len(p.picks) == 0 {
		n = 0 // guards only
	}
	if err := t.room(n); err != nil {
		return err
	}
	p.draft.apply(t)
	for _, k := range p.picks {
		switch {
		case k.fresh != nil:
			k.be.set(k.fresh)
		case k.adopt:
			k.be.setOwner(p.Owner)
			k.be.claimed = t.now
		}
		id, until := p.identity(k.be.Block, p.Owner), p.until(t.now)
		for _, x := range k.ordinals {
			al := Allocation{
				Address: k.be.addr(x), Block: k.be.prefix, Host: p.Owner, Handle: p.Handle, Attributes: p.Attributes,
				Seq: k.be.hold(x, id, until), Until: unstamp(until),
			}
			if al.Address.Is4() {
				p.result.V4 = append(p.result.V4, al)
			} else {
				p.result.V6 = append(p.result.V6, al)
			}
		}
		t.changed(k.be)
	}
	if p.Sticky {
		p.stick(t, p.result.V4)
		p.stick(t, p.result.V6)
	}
	if len(p.picks) == 0 {
		return nil
	}
	t.remember(&p.memo, p.result.V4, p.result.V6)
	return nil
}

// unusable reports whether a block has no address that automatic assignment may take.
func (p *assignPlan) unusable(i int, block netip.Prefix) bool {
	avoid := p.cat.avoid[i]
	if !avoid.overlap(block) {
		return false
	}
	b, err := NewBlock(block, BlockOptions{Head: p.Head, Tail: p.Tail})
	return err != nil || len(b.free.peek(nil, 1, b.spansOf(avoid))) == 0
}

// avoided returns the ordinals of the block that automatic assignment may not take.
func (b *Block) avoided(cat *catalogEntry, i int) []span {
	if cat.avoid[i] == nil {
		return nil
	}
	return b.spansOf(cat.avoid[i])
}

// avoid is the same, kept for as long as the catalog stays.
func (be *blockEntry) avoid(cat *catalogEntry, i int) []span {
	if cat.avoid[i] == nil {
		return nil
	}
	if be.of != cat.catalog {
		be.spans, be.of = be.avoided(cat, i), cat.catalog
	}
	return be.spans
}
