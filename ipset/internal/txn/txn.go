package txn

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A transaction is a plan's view of the store: cells that it reads, guards and changes. The runner of package occ commits it; the
// plan never calls the store itself.
//
// For example, engines e and f share a store, and host h has the block B of four addresses, .176 to .179. The catalog c has
// revision 2, h's record o revision 3 and B revision 3, with .176 held by handle "a". In a commit, B 3 is a record that is written if it has revision
// 3, and (c 2) one that must have revision 2 and stays as it is:
//
//	call                  reads             commit                           outcome    B then holds
//	e Assign "b"          the records of    B 3, .177, "b" 0, (c 2), (o 3)   4          .176 .177
//	                      handle "b": none
//	f AutoAssign "c"      c, o, B           B 4, .178, (c 2), (o 3)          5          .176 .177 .178
//	e AutoAssign "d"      nothing           B 4, .178, (c 2), (o 3)          conflict
//	  the second attempt  c, o, B           B 5, .179, (c 2), (o 3)          6          all four
//	e ReleaseByHandle "a" "a"'s records,    B 6, (c 2)                       7          .177 .178 .179
//	                      B, .176
//
// Records of addresses and index records are written without an expected revision, because every change of an address writes its
// block. e plans "d" on B as its cache has it, and the conflict makes it read again. "b" 0 is the record of the first holding of the
// handle: a concurrent Assign "b" on another engine expects the same, so one of the two fails and then finds .177.

// Txn is one commit in the making. Plans change the cached blocks, owners and pages in place; see package occ. Blocks are
// changed last, when the plan can no longer fail but for what it writes.
type Txn struct {
	occ.Txn
	E      *Engine
	Now    int64
	Past   int64 // what ends at this moment or before has ended by every engine's clock
	Cat    catalogKind
	Blocks occ.Cache[netip.Prefix, *BlockEntry]
	Owners occ.Cache[alloc.Owner, *OwnerEntry]
	Pages  occ.Cache[record.PageID, *pageEntry]
	firsts occ.Cache[string, *firstEntry]
	scan   blockPages // of the search or change of pages that is under way
	// aged are the blocks met whose cached state has ended leases or cooldowns that are not written yet.
	aged []netip.Prefix
	by   *pool.Catalog // of the last plan
	// Room for what a plan looks up.
	fetch Fetch
	ids   []netip.Prefix
	held  []Place
	memo  []byte
}

// Start makes the transaction of an engine on its store, and what carries out its plans.
func (e *Engine) Start() {
	t := &Txn{
		E:      e,
		Owners: occ.NewCache(e.Keep, record.ParseOwnerKey, readOwner),
		Pages:  occ.NewCache(e.Keep, record.ParsePageKey, readPage),
	}
	t.Blocks = occ.NewCache(e.Keep, ParseBlockKey, t.readBlock)
	t.firsts = occ.NewCache(e.Keep, parseFirst, readFirst)
	t.Cat.e = e
	t.Register(record.KindBlock, &t.Blocks)
	t.Register(record.CatalogKey, &t.Cat)
	t.Register(record.KindPage, &t.Pages)
	t.Register(record.KindOwner, &t.Owners)
	t.Register(record.KindHandle, &t.firsts)
	e.Run = occ.New(t, occ.Config{Package: "ipset", Store: e.DB, Keep: e.Keep, Attempts: e.Tries, Wait: occ.Backoff(e.Retry), Fence: fence})
	e.Txn, e.Store = t, Settled(e.DB, e.Run)
	e.Hints.last = occ.NewRecent[alloc.Owner, *[2]netip.Prefix](e.Keep)
}

// Begin implements [occ.Transaction].
func (t *Txn) Begin() (err error) {
	t.Now, err = t.E.Clock()
	t.Past = t.Now - t.E.Skew
	t.aged = t.aged[:0]
	return err
}

// fence ranks the expectations of a lost commit. A record that the commit writes is the best one to make false, because engines
// that do other things do not rest on it; the catalog is the last resort. Records that should not exist do not serve, because a
// fence that made one could be deleted.
func fence(op store.Op) (rank int, value string) {
	switch {
	case record.IsForeign(op.Key): // the caller rests on the revisions of its own records
	case op.Key == record.CatalogKey:
		return 1, pool.RootOf(0, "")
	case op.Expect != 0 && op.Kind == store.Guard:
		return 2, ""
	case op.Expect != 0:
		return 3, ""
	}
	return 0, ""
}

// Catalog returns the catalog.
func (t *Txn) Catalog() (*CatalogEntry, error) {
	if t.Cat.entry == nil {
		keys := []string{record.CatalogKey, record.PoolsKey} // in one round trip
		if t.E.Decoded.Load() != nil {
			keys = keys[:1]
		}
		recs, err := t.Records(keys...)
		if err != nil {
			return nil, err
		}
		if len(recs) > 1 {
			if _, err := t.E.decodePools(recs[0], recs[1]); err != nil {
				return nil, err
			}
		}
		if err := t.See(recs[0]); err != nil {
			return nil, err
		}
	}
	t.Guard(&t.Cat.entry.Cell)
	if t.by != t.Cat.entry.Catalog {
		t.refresh()
	}
	return t.Cat.entry, nil
}

// refresh drops the cached blocks in which leases have ended that are not written. The catalog by which they ended was another one, and
// may have had another cooldown.
func (t *Txn) refresh() {
	t.by = t.Cat.entry.Catalog
	for p, be := range t.Blocks.All() {
		if len(be.Changes.List) > 0 && !t.Changed(&be.Cell) && !t.Guarded(&be.Cell) {
			t.Blocks.Drop(p)
		}
	}
}

// SetCatalog changes the catalog.
func (t *Txn) SetCatalog(c *pool.Catalog, value string) {
	t.Change(t.Cat.entry)
	t.Cat.entry.Catalog, t.Cat.entry.value = c, value
}

// Page returns a page.
func (t *Txn) Page(id record.PageID) (*pageEntry, error) {
	pe := t.Pages.Get(id)
	if pe == nil || !t.Sure(&pe.Cell) {
		if err := t.Read(id.Key()); err != nil {
			return nil, err
		}
		pe = t.Pages.Get(id)
		t.Sure(&pe.Cell)
	}
	return pe, nil
}

// blockPages are the pages of one block size; they implement [space.Pages].
type blockPages struct {
	t    *Txn
	pool netip.Prefix // of a search: its pages are read together with those above, up to the one that spans the pool
	v6   bool
	bits uint8

	vacate bool   // the mark of the page of level 0 is raised to seq
	mark   uint64 // of that page
	seq    uint64
}

// Word returns the word of a page.
func (p *blockPages) Word(id space.ID) (uint64, error) {
	at := record.PageID{V6: p.v6, Bits: p.bits, ID: id}
	if p.pool.IsValid() && p.t.Pages.Get(at) == nil {
		if err := p.t.Load(p.t.PageKeys(nil, p.pool, at)...); err != nil {
			return 0, err
		}
	}
	pe, err := p.t.Page(at)
	if err != nil {
		return 0, err
	}
	return pe.Get().Word, nil
}

// SetWord changes the word of a page, which Word has read.
func (p *blockPages) SetWord(id space.ID, word uint64) (err error) {
	at := record.PageID{V6: p.v6, Bits: p.bits, ID: id}
	pe := p.t.Pages.Get(at)
	pg := record.Page{Word: word, Mark: pe.Get().Mark}
	if id.Level == 0 && p.vacate {
		pg.Mark = max(pg.Mark, p.seq)
	}
	came, goes := pe.Get().Word == 0, word == 0
	switch {
	case id.Level > 0 && goes:
		pg = record.Page{}
	case id.Level == 0 && came != goes:
		if pg, err = p.pass(at.Floor(), pg); err != nil {
			return err
		}
	}
	if id.Level == 0 {
		p.mark = pg.Mark
	}
	occ.Set(&p.t.Txn, pe, pg)
	return nil
}

// pass copies the mark of a new page from its floor, and the mark of a removed page to the floor. The commit that removes a page writes
// the floor, and the commit that makes a page verifies it, because the page may have been made and removed unseen in between.
func (p *blockPages) pass(floor record.PageID, pg record.Page) (record.Page, error) {
	fe, err := p.t.Page(floor)
	if err != nil {
		return pg, err
	}
	if pg.Word != 0 {
		p.t.Guard(&fe.Cell)
		return record.Page{Word: pg.Word, Mark: max(pg.Mark, fe.Get().Mark)}, nil
	}
	occ.Set(&p.t.Txn, fe, record.Page{Mark: max(pg.Mark, fe.Get().Mark, 1)})
	return record.Page{}, nil
}

// Free returns the first block of a pool, of the given size and with an ordinal of from to to, that does not exist. It reads
// each page on its way at most once, in one round trip with those above.
func (t *Txn) Free(pool netip.Prefix, size int, from, to addr.U128) (netip.Prefix, bool, error) {
	t.scan = blockPages{t: t, pool: pool, v6: pool.Addr().Is6(), bits: uint8(size)}
	n, ok, err := space.Find(t.scan.Word, from, to)
	if !ok || err != nil {
		return netip.Prefix{}, false, err
	}
	return record.BlockAt(t.scan.v6, size, n), true, nil
}

// Occupy marks a block as existing and returns the mark of its page, the sequence number to start after.
func (t *Txn) Occupy(block netip.Prefix) (mark uint64, err error) {
	t.scan = blockPages{t: t, v6: block.Addr().Is6(), bits: uint8(block.Bits())}
	err = space.Mark(&t.scan, block.Bits(), record.OrdinalOf(block), true)
	return t.scan.mark, err
}

// WarmPages reads those pages of level 0 of blocks, and their floors, that the cache lacks, in one round trip.
func (t *Txn) WarmPages(blocks []netip.Prefix) error {
	var keys []string
	for _, p := range blocks {
		leaf, _ := record.LeafOf(p)
		for _, id := range [...]record.PageID{leaf, leaf.Floor()} {
			if t.Pages.Get(id) == nil {
				keys = append(keys, id.Key())
			}
		}
	}
	slices.Sort(keys)
	return t.Load(slices.Compact(keys)...)
}

// Vacate marks a block as not existing and raises the mark that the next one there starts after.
func (t *Txn) Vacate(be *BlockEntry) error {
	t.scan = blockPages{t: t, v6: be.At.Addr().Is6(), bits: uint8(be.At.Bits()), vacate: true, seq: be.Seq()}
	return space.Mark(&t.scan, be.At.Bits(), record.OrdinalOf(be.At), false)
}
