package ipset

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

type catalogEntry struct {
	occ.Cell
	*catalog
	value string // the record of the pools if it changes
}

// Write implements [occ.Entry].
func (ce *catalogEntry) Write(o *occ.Ops) {
	o.Put(&ce.Cell)
	o.Buf = append(o.Buf, rootOf(ce.Generation, ce.value)...)
	o.Value()
	o.Add(store.Op{Kind: store.Put, Key: poolsKey, Value: ce.value, Expect: store.AnyRevision})
}

// catalogKind is the catalog as a kind of one record.
type catalogKind struct {
	e     *Engine
	entry *catalogEntry
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
	c, err := k.e.decodeCatalog(k.e.txn.Ctx, r)
	if err != nil {
		return nil, err
	}
	k.entry = &catalogEntry{Cell: occ.Cell{Key: r.Key, Rev: r.Rev}, catalog: c}
	return &k.entry.Cell, nil
}

// Forget implements [occ.Kind].
func (k *catalogKind) Forget(string) { k.entry = nil }

// Age implements [occ.Kind]. The catalog is always kept.
func (k *catalogKind) Age() {}

// Reset implements [occ.Kind].
func (k *catalogKind) Reset() { k.entry = nil }

type blockEntry struct {
	occ.Cell
	at           netip.Prefix
	codec        addr.Codec
	*block.Block               // nil if there is none
	shown        blockIndex    // what the index records say
	written      blockIndex    // what they say after the commit that is being made
	changes      block.Changes // what the address records say where they may differ
	keys         [2]string     // of the room and empty records
	spans        []block.Span  // ordinals that automatic assignment may not take, by the catalog of
	of           *catalog
}

func parseBlockKey(key string) (netip.Prefix, bool) { return parseBlockID(key[1:]) }

// readBlock makes the entry of a block.
func readBlock(p netip.Prefix, r store.Record) (*blockEntry, error) {
	if !p.IsValid() {
		return nil, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, r.Key)
	}
	codec, err := addr.NewCodec(p, p.Addr().BitLen())
	if err != nil {
		return nil, fmt.Errorf("%w: block %s has more than 2^64 addresses", errBadBlockSize, p)
	}
	be := &blockEntry{Cell: occ.Cell{Key: r.Key, Rev: r.Rev}, at: p, codec: codec}
	if r.Rev != 0 {
		b, err := block.Decode(p, r.Value)
		if err != nil {
			return nil, wrap(ipalloc.Error{Op: "read", Prefix: p, Err: err})
		}
		be.set(b)
		be.shown = indexOf(b)
	}
	return be, nil
}

// indexKey returns the key of one of the block's index records; those of the block are built once.
func (be *blockEntry) indexKey(kind byte) string {
	k := &be.keys[0]
	if kind == kindEmpty[0] {
		k = &be.keys[1]
	}
	if *k == "" {
		*k = blockKey(string(kind), be.at)
	}
	return *k
}

// set makes b the block of the entry.
func (be *blockEntry) set(b *block.Block) {
	be.Block, be.of = b, nil
	if b != nil {
		b.Track(&be.changes)
	}
}

// Settle implements [occ.Entry].
func (be *blockEntry) Settle() {
	be.shown = be.written
	if invariant.Enabled && be.Block != nil {
		err := be.Block.Check()
		invariant.Assert(err == nil && be.shown == indexOf(be.Block), "%v", err)
	}
	be.changes.Settle()
}

type ownerEntry struct{ occ.Var[blockList] }

// readOwner makes the entry of an owner.
func readOwner(o Owner, r store.Record) (*ownerEntry, error) {
	if o.Kind == Nobody {
		return nil, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, r.Key)
	}
	blocks, err := decodeList(r)
	if err != nil {
		return nil, wrap(ipalloc.Error{Op: "read", Owner: o.String(), Err: err})
	}
	return &ownerEntry{occ.NewVar(r, blocks)}, nil
}

// Write implements [occ.Entry].
func (oe *ownerEntry) Write(o *occ.Ops) {
	if oe.Get().len() == 0 {
		o.Delete(&oe.Cell)
		return
	}
	o.Put(&oe.Cell)
	o.Buf = oe.Get().append(o.Buf)
	o.Value()
}

type pageEntry struct{ occ.Var[page] }

// readPage makes the entry of a page.
func readPage(id pageID, r store.Record) (*pageEntry, error) {
	p, err := decodePage(r)
	if _, ok := parsePageKey(r.Key); err != nil || !ok {
		return nil, fmt.Errorf("%w: space page %q", ipalloc.ErrCorrupt, r.Key)
	}
	return &pageEntry{occ.NewVar(r, p)}, nil
}

// Write implements [occ.Entry].
func (pe *pageEntry) Write(o *occ.Ops) {
	if pe.Get() == (page{}) {
		o.Delete(&pe.Cell)
		return
	}
	o.Put(&pe.Cell)
	o.Buf = pe.Get().append(o.Buf)
	o.Value()
}
