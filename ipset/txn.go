package ipset

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// txn is one commit in the making. Plans change the cached blocks, owners and pages in place; see package occ. Blocks are
// changed last, when the plan can no longer fail.
type txn struct {
	occ.Txn
	e      *Engine
	now    int64
	past   int64 // what ends at this moment or before has ended by every engine's clock
	cat    catalogKind
	blocks *occ.Cache[netip.Prefix, *blockEntry]
	owners *occ.Cache[Owner, *ownerEntry]
	pages  *occ.Cache[pageID, *pageEntry]
	scan   blockPages // of the search or change of pages that is under way
	// aged are the blocks met whose cached state has ended leases or cooldowns that are not written yet.
	aged []netip.Prefix
}

// start makes the transaction of an engine on its store, and what carries out its plans.
func (e *Engine) start() {
	t := &txn{
		e:      e,
		blocks: occ.NewCache(e.keep, parseBlockKey, readBlock),
		owners: occ.NewCache(e.keep, parseOwnerKey, readOwner),
		pages:  occ.NewCache(e.keep, parsePageKey, readPage),
	}
	t.cat.e = e
	t.Register(kindBlock, t.blocks)
	t.Register(catalogKey, &t.cat)
	t.Register(kindPage, t.pages)
	t.Register(kindOwner, t.owners)
	e.run = occ.New(t, occ.Config{Package: "ipset", Store: e.db, Attempts: e.tries, Wait: occ.Backoff(e.retry), Fence: fence})
	e.txn = t
	e.store = &settledStore{e.db, e.run}
}

// Begin implements [occ.Transaction].
func (t *txn) Begin() (err error) {
	t.now, err = t.e.clock()
	t.past = t.now - t.e.skew
	t.aged = t.aged[:0]
	return err
}

// fence ranks the expectations of a lost commit. A record that the commit writes is the best one to make false, because engines
// that do other things do not rest on it; the catalog is the last resort. Records that should not exist do not serve, because a
// fence that made one could be deleted.
func fence(op store.Op) (rank int, value string) {
	switch {
	case isForeign(op.Key): // the caller rests on the revisions of its own records
	case op.Key == catalogKey:
		return 1, rootOf(0, "")
	case op.Expect != 0 && op.Kind == store.Guard:
		return 2, ""
	case op.Expect != 0:
		return 3, ""
	}
	return 0, ""
}

// opsPerBlock bounds the records of a block itself: the block, its room and empty entries, that of its owner or as an orphan,
// and two
// of due.
const opsPerBlock = 6

// opsPerLease bounds the records of a block in which leases get other ends: the block, its empty entry, and two of due.
const opsPerLease = 4

// opsPerAddress bounds the records of an address, but for its indexed attributes: its own, its handle and its host.
const opsPerAddress = 3

// ownerOps bounds the records that a change of a block's owner adds: that addresses are held for the former one and no longer for
// the new one, and that one has room and the other not.
const ownerOps = 4

// blockOps bounds the records that a plan adds to the commit by changing a block; n is how many those of its addresses are, timed
// says that it may end a time or begin one, a lease or a cooldown, and fills that the block may get room or lose it. A block that
// another plan of the transaction has changed costs no more than those.
func (t *txn) blockOps(be *blockEntry, n int, timed, fills bool) int {
	if !t.Changed(&be.Cell) {
		n += 2 // the block, its empty entry
		for _, c := range be.changes.List {
			n += recordsOf(c.Was) // time takes away, and adds none but the address as it cools
		}
		timed = timed || be.shown.due != 0 || be.Block != nil && (be.NextLease() != 0 || be.Cooling() > 0)
		fills = fills || be.Block == nil || !be.shown.room || be.shown.ready != 0 || be.Owner().Kind == Nobody
	}
	if timed {
		n += 2 // the entries of the former and the next time
	}
	if fills {
		n += 2 // the room entries of the block, and of its owner or as an orphan
	}
	return n
}

// catalog returns the catalog.
func (t *txn) catalog() (*catalogEntry, error) {
	if t.cat.entry == nil {
		keys := []string{catalogKey}
		if t.e.decoded.Load() == nil {
			keys = append(keys, poolsKey) // in the same round trip
		}
		recs, err := t.Records(keys...)
		if err != nil {
			return nil, err
		}
		if len(recs) > 1 {
			if _, err := t.e.decodePools(recs[0], recs[1]); err != nil {
				return nil, err
			}
		}
		if err := t.See(recs[0]); err != nil {
			return nil, err
		}
	}
	t.Guard(&t.cat.entry.Cell)
	return t.cat.entry, nil
}

// setCatalog changes the catalog.
func (t *txn) setCatalog(c *catalog, value string) {
	t.cat.entry.catalog, t.cat.entry.value = c, value
	t.Change(t.cat.entry)
}

// owner returns the blocks of an owner.
func (t *txn) owner(o Owner) (*ownerEntry, error) {
	oe := t.owners.Get(o)
	if oe == nil {
		if err := t.Load(ownerKey(o)); err != nil {
			return nil, err
		}
		oe = t.owners.Get(o)
	}
	t.Guard(&oe.Cell)
	return oe, nil
}

// blocksOf returns the blocks of an owner.
func (t *txn) blocksOf(o Owner) (blockList, error) {
	oe, err := t.owner(o)
	if err != nil {
		return blockList{}, err
	}
	return oe.Get(), nil
}

// give adds a block to those of an owner; take removes it. Orphan blocks are in no owner's record.
func (t *txn) give(o Owner, p netip.Prefix) error { return t.setBlocks(o, p, blockList.with) }

func (t *txn) take(o Owner, p netip.Prefix) error { return t.setBlocks(o, p, blockList.without) }

func (t *txn) setBlocks(o Owner, p netip.Prefix, change func(blockList, netip.Prefix) blockList) error {
	if o.Kind == Nobody {
		return nil
	}
	oe, err := t.owner(o)
	if err == nil {
		occ.Set(&t.Txn, oe, change(oe.Get(), p))
	}
	return err
}

// page returns a page.
func (t *txn) page(id pageID) (*pageEntry, error) {
	pe := t.pages.Get(id)
	if pe == nil || !t.Sure(&pe.Cell) {
		if err := t.Read(id.key()); err != nil {
			return nil, err
		}
		pe = t.pages.Get(id)
		t.Sure(&pe.Cell)
	}
	return pe, nil
}

// blockPages are the pages of one block size; they implement [space.Pages].
type blockPages struct {
	t    *txn
	pool netip.Prefix // of a search: its pages are read together with those above, up to the one that spans the pool
	v6   bool
	bits uint8

	vacate bool   // the mark of the page of level 0 is raised to seq
	mark   uint64 // of that page
	seq    uint64
}

// Word returns the word of a page.
func (p *blockPages) Word(id space.ID) (uint64, error) {
	at := pageID{p.v6, p.bits, id}
	if p.pool.IsValid() && p.t.pages.Get(at) == nil {
		if err := p.t.Load(p.t.pageKeys(nil, p.pool, at)...); err != nil {
			return 0, err
		}
	}
	pe, err := p.t.page(at)
	if err != nil {
		return 0, err
	}
	return pe.Get().word, nil
}

// SetWord changes the word of a page, which Word has read.
func (p *blockPages) SetWord(id space.ID, word uint64) error {
	pe, err := p.t.page(pageID{p.v6, p.bits, id})
	if err != nil {
		return err
	}
	pg := page{word, pe.Get().mark}
	if id.Level == 0 && p.vacate {
		pg.mark = max(pg.mark, p.seq)
	}
	came, goes := pe.Get().word == 0, word == 0
	switch {
	case id.Level > 0 && goes:
		pg = page{}
	case id.Level == 0 && came != goes:
		if pg, err = p.pass(pageID{p.v6, p.bits, id}.floor(), pg); err != nil {
			return err
		}
	}
	if id.Level == 0 {
		p.mark = pg.mark
	}
	occ.Set(&p.t.Txn, pe, pg)
	return nil
}

// pass has a page that comes take its mark from its floor, and one that goes leave it there. The commit of a page that goes writes the
// floor and that of one that comes verifies it, because the page may come and go unseen in between.
func (p *blockPages) pass(floor pageID, pg page) (page, error) {
	fe, err := p.t.page(floor)
	if err != nil {
		return pg, err
	}
	if pg.word != 0 {
		p.t.Guard(&fe.Cell)
		return page{pg.word, max(pg.mark, fe.Get().mark)}, nil
	}
	occ.Set(&p.t.Txn, fe, page{mark: max(pg.mark, fe.Get().mark, 1)})
	return page{}, nil
}

// free returns the first block of a pool, of the given size and with an ordinal of from to to, that does not exist. It reads
// each page on its way at most once, in one round trip with those above.
func (t *txn) free(pool netip.Prefix, size int, from, to addr.U128) (netip.Prefix, bool, error) {
	t.scan = blockPages{t: t, pool: pool, v6: pool.Addr().Is6(), bits: uint8(size)}
	n, ok, err := space.Find(t.scan.Word, from, to)
	if !ok || err != nil {
		return netip.Prefix{}, false, err
	}
	return blockAt(t.scan.v6, size, n), true, nil
}

// occupy marks a block as existing and returns the mark of its page, the sequence number to start after.
func (t *txn) occupy(block netip.Prefix) (mark uint64, err error) {
	t.scan = blockPages{t: t, v6: block.Addr().Is6(), bits: uint8(block.Bits())}
	err = space.Mark(&t.scan, block.Bits(), ordinalOf(block), true)
	return t.scan.mark, err
}

// warmPages reads those pages of level 0 of blocks, and their floors, that the cache lacks, in one round trip.
func (t *txn) warmPages(blocks []netip.Prefix) error {
	var keys []string
	for _, p := range blocks {
		leaf, _ := leafOf(p)
		for _, id := range [...]pageID{leaf, leaf.floor()} {
			if t.pages.Get(id) == nil {
				keys = append(keys, id.key())
			}
		}
	}
	slices.Sort(keys)
	return t.Load(slices.Compact(keys)...)
}

// vacate marks a block as not existing and raises the mark of its page to seq.
func (t *txn) vacate(block netip.Prefix, seq uint64) error {
	t.scan = blockPages{t: t, v6: block.Addr().Is6(), bits: uint8(block.Bits()), vacate: true, seq: seq}
	return space.Mark(&t.scan, block.Bits(), ordinalOf(block), false)
}
