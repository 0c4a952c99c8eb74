package txn

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The cells are what the cache holds and what a commit writes: the catalog, blocks, owners and pages. A block is changed in
// place, because copying it for each assignment would cost more than the assignment; only where a store limits commits, and is
// far away, a copy is kept while a plan changes it.

// Avoid returns the ordinals that automatic assignment may not take, kept for as long as the catalog stays.
func (be *BlockEntry) Avoid(cat *CatalogEntry, i int) []block.Span {
	if cat.Pools[i].Avoid == nil {
		return nil
	}
	if be.of != cat.Catalog {
		be.spans, be.of = Avoided(be.Block, cat, i), cat.Catalog
	}
	return be.spans
}

// CatalogEntry is the cell of the catalog.
type CatalogEntry struct {
	occ.Cell
	*pool.Catalog
	value string // the record of the pools if it changes
}

// Write implements [occ.Entry].
func (ce *CatalogEntry) Write(o *occ.Ops) {
	o.Put(&ce.Cell)
	o.Buf = append(o.Buf, pool.RootOf(ce.Generation, ce.value)...)
	o.Value()
	if ce.value != "" {
		o.Add(store.Op{Kind: store.Put, Key: record.PoolsKey, Value: ce.value, Expect: store.AnyRevision})
	}
}

// Keep implements [occ.Keeper].
func (ce *CatalogEntry) Keep() func() {
	c, value := ce.Catalog, ce.value
	return func() { ce.Catalog, ce.value = c, value }
}

// catalogKind is the catalog as a kind of one record.
type catalogKind struct {
	e     *Engine
	entry *CatalogEntry
}

// Known implements [occ.Kind].
func (k *catalogKind) Known(string) *occ.Cell {
	if k.entry == nil {
		return nil
	}
	return &k.entry.Cell
}

// See implements [occ.Kind].
func (k *catalogKind) See(r store.Record) (*occ.Cell, error) {
	c, err := k.e.DecodeCatalog(k.e.Txn.Ctx, r)
	if err != nil {
		return nil, err
	}
	k.entry = &CatalogEntry{Cell: occ.Cell{Key: r.Key, Rev: r.Rev}, Catalog: c}
	return &k.entry.Cell, nil
}

// Forget implements [occ.Kind].
func (k *catalogKind) Forget(string) { k.entry = nil }

// Age implements [occ.Kind]. The catalog is always kept.
func (k *catalogKind) Age() {}

// Reset implements [occ.Kind].
func (k *catalogKind) Reset() { k.entry = nil }

// BlockEntry is the cell of a block, with what its index and address records say in the store.
type BlockEntry struct {
	occ.Cell
	t            *Txn
	At           netip.Prefix
	codec        addr.Codec
	*block.Block                   // nil if there is none
	Shown        record.BlockIndex // what the index records say
	written      record.BlockIndex // what they say after the commit that is being made
	Changes      block.Changes     // what the address records say where they may differ
	keys         [2]string         // of the room and empty records
	spans        []block.Span      // ordinals that automatic assignment may not take, by the catalog of
	of           *pool.Catalog
}

// ParseBlockKey returns the block that the key of its record names.
func ParseBlockKey(key string) (netip.Prefix, bool) { return record.ParseBlockID(key[1:]) }

// readBlock makes the entry of a block.
func (t *Txn) readBlock(p netip.Prefix, r store.Record) (*BlockEntry, error) {
	if !p.IsValid() {
		return nil, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, r.Key)
	}
	codec, err := addr.NewCodec(p, p.Addr().BitLen())
	if err != nil {
		return nil, fmt.Errorf("%w: block %s has more than 2^64 addresses", cause.BadBlockSize, p)
	}
	be := &BlockEntry{Cell: occ.Cell{Key: r.Key, Rev: r.Rev}, t: t, At: p, codec: codec}
	if r.Rev != 0 {
		b, err := block.Decode(p, r.Value)
		if err != nil {
			return nil, cause.Wrap(ipalloc.Error{Op: "read", Prefix: p, Err: err})
		}
		be.Set(b)
		be.Shown = record.IndexOf(b)
	}
	return be, nil
}

// indexKey returns the key of one of the block's index records; those of the block are built once.
func (be *BlockEntry) indexKey(kind byte) string {
	k := &be.keys[0]
	if kind == record.KindEmpty[0] {
		k = &be.keys[1]
	}
	if *k == "" {
		*k = record.BlockKey(string(kind), be.At)
	}
	return *k
}

// Set makes b the block of the entry.
func (be *BlockEntry) Set(b *block.Block) {
	be.Block, be.of = b, nil
	if b != nil {
		b.Track(&be.Changes)
	}
}

// Keep implements [occ.Keeper].
func (be *BlockEntry) Keep() func() {
	b, changes := be.Block, be.Changes.Clone()
	if b != nil {
		b = b.Clone()
	}
	return func() { be.Changes = changes; be.Set(b) }
}

// Settle implements [occ.Entry].
func (be *BlockEntry) Settle() {
	be.Shown = be.written
	if invariant.Enabled && be.Block != nil {
		err := be.Block.Check()
		invariant.Assert(err == nil && be.Shown == record.IndexOf(be.Block), "%v", err)
	}
	be.Changes.Settle()
}

// pageEntry is the cell of a page of a pool.
type pageEntry struct{ occ.Var[record.Page] }

// readPage makes the entry of a page.
func readPage(id record.PageID, r store.Record) (*pageEntry, error) {
	p, err := record.DecodePage(r)
	if err != nil {
		return nil, err
	}
	return &pageEntry{occ.NewVar(r, p)}, nil
}

// Write implements [occ.Entry].
func (pe *pageEntry) Write(o *occ.Ops) {
	if pe.Get() == (record.Page{}) {
		o.Delete(&pe.Cell)
		return
	}
	o.Put(&pe.Cell)
	o.Buf = pe.Get().Append(o.Buf)
	o.Value()
}

// Avoided returns the ordinals of the block that automatic assignment may not take.
func Avoided(b *block.Block, cat *CatalogEntry, i int) []block.Span {
	if cat.Pools[i].Avoid == nil {
		return nil
	}
	return b.Spans(cat.Pools[i].Avoid)
}
