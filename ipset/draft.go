package ipset

import (
	"math/bits"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// draft is what one plan would change of owners and pages. A plan looks and picks first and changes nothing that
// others see until it cannot fail any more; then apply hands the draft to the transaction.
type draft struct {
	owners map[Owner][]netip.Prefix
	pages  map[pageID]page
}

// blocksOf returns the blocks of an owner as the draft has them.
func (d *draft) blocksOf(t *txn, o Owner) ([]netip.Prefix, error) {
	if blocks, ok := d.owners[o]; ok {
		return blocks, nil
	}
	oe, err := t.owner(o)
	if err != nil {
		return nil, err
	}
	return oe.blocks, nil
}

// give adds a block to those of an owner; take removes it. Nobody has no list.
func (d *draft) give(t *txn, o Owner, p netip.Prefix) error {
	return d.setBlocks(t, o, p, insertBlock)
}

func (d *draft) take(t *txn, o Owner, p netip.Prefix) error {
	return d.setBlocks(t, o, p, removeBlock)
}

func (d *draft) setBlocks(t *txn, o Owner, p netip.Prefix, change func([]netip.Prefix, netip.Prefix) []netip.Prefix) error {
	if o.Kind == Nobody {
		return nil
	}
	blocks, err := d.blocksOf(t, o)
	if err != nil {
		return err
	}
	if d.owners == nil {
		d.owners = make(map[Owner][]netip.Prefix)
	}
	d.owners[o] = change(blocks, p)
	return nil
}

// page returns a page as the draft has it.
func (d *draft) page(t *txn, id pageID) (page, error) {
	if p, ok := d.pages[id]; ok {
		return p, nil
	}
	pe, err := t.page(id)
	if err != nil {
		return page{}, err
	}
	return pe.page, nil
}

func (d *draft) setPage(id pageID, p page) {
	if d.pages == nil {
		d.pages = make(map[pageID]page)
	}
	d.pages[id] = p
}

// free returns the first block of a pool, of the given size and with an ordinal of from to to, that does not exist. It reads
// each page on its way at most once, in one round trip with those above:
//
//	climb while a page has no clear bit left of what may be searched, descend to the first clear one
func (d *draft) free(t *txn, pool netip.Prefix, size int, from, to addr.U128) (netip.Prefix, bool, error) {
	id := pageID{v6: pool.Addr().Is6(), bits: uint8(size)}
	at, level := from, uint(0) // at is the next child to look at, in units of its level
	for {
		last := to.Shr(pageBits * level)
		if at.Cmp(last) > 0 {
			return netip.Prefix{}, false, nil
		}
		id.level, id.index = uint8(level), at.Shr(pageBits)
		if t.e.cache.pages.get(id) == nil {
			if err := t.load(t.pageKeys(nil, pool, id)...); err != nil {
				return netip.Prefix{}, false, err
			}
		}
		p, err := d.page(t, id)
		if err != nil {
			return netip.Prefix{}, false, err
		}
		free := ^p.word & (^uint64(0) << (at.Lo & 63))
		if free == 0 {
			if id.index.Cmp(last.Shr(pageBits)) >= 0 {
				return netip.Prefix{}, false, nil // to is in this page or before it
			}
			at, level = id.index.Add(addr.U128{Lo: 1}), level+1
			continue
		}
		at = id.index.Shl(pageBits).Or(addr.U128{Lo: uint64(bits.TrailingZeros64(free))})
		if at.Cmp(last) > 0 {
			return netip.Prefix{}, false, nil
		}
		if level == 0 {
			return blockAt(id.v6, size, at), true, nil
		}
		at, level = at.Shl(pageBits), level-1
	}
}

// occupy marks a block as existing and returns the mark of its page, the sequence number to start after. A page that
// becomes full marks its parent.
func (d *draft) occupy(t *txn, block netip.Prefix) (mark uint64, err error) {
	id, i := leafOf(block)
	for ok := true; ok; {
		p, err := d.page(t, id)
		if err != nil {
			return 0, err
		}
		if id.level == 0 {
			mark = p.mark
		}
		p.word |= 1 << i
		d.setPage(id, p)
		if p.word != ^uint64(0) {
			break
		}
		id, i, ok = id.parent()
	}
	return mark, nil
}

// vacate marks a block as not existing and raises the mark of its page to seq. A page that was full clears its mark in
// its parent.
func (d *draft) vacate(t *txn, block netip.Prefix, seq uint64) error {
	id, i := leafOf(block)
	for ok := true; ok; {
		p, err := d.page(t, id)
		if err != nil {
			return err
		}
		full := p.word == ^uint64(0)
		p.word &^= 1 << i
		if id.level == 0 {
			p.mark = max(p.mark, seq)
		}
		d.setPage(id, p)
		if !full {
			break
		}
		id, i, ok = id.parent()
	}
	return nil
}

// size returns the number of records that apply adds to the commit.
func (d *draft) size(t *txn) int {
	n := 0
	for o := range d.owners {
		if oe := t.e.cache.owners.get(o); oe == nil || oe.dirty != t.id {
			n++
		}
	}
	for id := range d.pages {
		if pe := t.e.cache.pages.get(id); pe == nil || pe.dirty != t.id {
			n++
		}
	}
	return n
}

// apply hands the draft to the transaction. Everything in it has been read, so that it cannot fail.
func (d *draft) apply(t *txn) {
	for o, blocks := range d.owners {
		t.setOwner(t.e.cache.owners.get(o), blocks)
	}
	for id, p := range d.pages {
		t.setPage(t.e.cache.pages.get(id), p)
	}
}
