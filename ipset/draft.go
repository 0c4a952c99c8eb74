package ipset

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
)

// draft is what one plan would change of owners and pages. A plan looks and picks first and changes nothing that
// others see until it cannot fail any more; then apply hands the draft to the transaction.
type draft struct {
	owners map[Owner]blockList
	pages  map[pageID]page
}

// blocksOf returns the blocks of an owner as the draft has them.
func (d *draft) blocksOf(t *txn, o Owner) (blockList, error) {
	if blocks, ok := d.owners[o]; ok {
		return blocks, nil
	}
	oe, err := t.owner(o)
	if err != nil {
		return blockList{}, err
	}
	return oe.blocks, nil
}

// give adds a block to those of an owner; take removes it. Nobody has no list.
func (d *draft) give(t *txn, o Owner, p netip.Prefix) error {
	return d.setBlocks(t, o, p, blockList.with)
}

func (d *draft) take(t *txn, o Owner, p netip.Prefix) error {
	return d.setBlocks(t, o, p, blockList.without)
}

func (d *draft) setBlocks(t *txn, o Owner, p netip.Prefix, change func(blockList, netip.Prefix) blockList) error {
	if o.Kind == Nobody {
		return nil
	}
	blocks, err := d.blocksOf(t, o)
	if err != nil {
		return err
	}
	if d.owners == nil {
		d.owners = make(map[Owner]blockList)
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

// draftPages are the pages of one block size as a draft has them; they implement [space.Pages].
type draftPages struct {
	d    *draft
	t    *txn
	pool netip.Prefix // of a search: its pages are read together with those above, up to the one that spans the pool
	v6   bool
	bits uint8

	vacate bool   // the mark of the leaf is raised to seq
	mark   uint64 // of the leaf
	seq    uint64
}

// Word returns the word of a page.
func (p *draftPages) Word(id space.ID) (uint64, error) {
	at := pageID{p.v6, p.bits, id}
	if p.pool.IsValid() && p.t.e.cache.pages.get(at) == nil {
		if err := p.t.load(p.t.pageKeys(nil, p.pool, at)...); err != nil {
			return 0, err
		}
	}
	pg, err := p.d.page(p.t, at)
	if id.Level == 0 {
		p.mark = pg.mark
	}
	return pg.word, err
}

// SetWord changes the word of a page. Word has read it, so it cannot fail.
func (p *draftPages) SetWord(id space.ID, word uint64) error {
	at := pageID{p.v6, p.bits, id}
	pg, _ := p.d.page(p.t, at)
	pg.word = word
	if id.Level == 0 && p.vacate {
		pg.mark = max(pg.mark, p.seq)
	}
	p.d.setPage(at, pg)
	return nil
}

// free returns the first block of a pool, of the given size and with an ordinal of from to to, that does not exist. It reads
// each page on its way at most once, in one round trip with those above.
func (d *draft) free(t *txn, pool netip.Prefix, size int, from, to addr.U128) (netip.Prefix, bool, error) {
	p := draftPages{d: d, t: t, pool: pool, v6: pool.Addr().Is6(), bits: uint8(size)}
	n, ok, err := space.Find(p.Word, from, to)
	if !ok || err != nil {
		return netip.Prefix{}, false, err
	}
	return blockAt(p.v6, size, n), true, nil
}

// occupy marks a block as existing and returns the mark of its page, the sequence number to start after.
func (d *draft) occupy(t *txn, block netip.Prefix) (mark uint64, err error) {
	p := draftPages{d: d, t: t, v6: block.Addr().Is6(), bits: uint8(block.Bits())}
	err = space.Mark(&p, block.Bits(), ordinalOf(block), true)
	return p.mark, err
}

// vacate marks a block as not existing and raises the mark of its page to seq.
func (d *draft) vacate(t *txn, block netip.Prefix, seq uint64) error {
	p := draftPages{d: d, t: t, v6: block.Addr().Is6(), bits: uint8(block.Bits()), vacate: true, seq: seq}
	return space.Mark(&p, block.Bits(), ordinalOf(block), false)
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
