package txn

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Two concurrent assignments that both return what a handle holds must conflict. The guard is the index record of the first holding of
// the handle: its key is the handle alone, and its value is the address. At most one holding of a handle is the first one, because the commit
// that makes it expects that the record does not exist. The record is derived from the holding, as every index record, and is
// deleted in the commit that ends the holding. A handle may hold addresses without a first one: the next such assignment marks one of them.

// firstEntry is the cell of the index record of the first holding of a handle: the zero prefix if there is none.
type firstEntry struct {
	occ.Var[netip.Prefix]
	be *BlockEntry // of the holding that the transaction has made the first one
}

func parseFirst(key string) (string, bool) { return key[1:], strings.IndexByte(key, 0) < 0 }

func readFirst(handle string, r store.Record) (*firstEntry, error) {
	at, ok := record.ParseID(r.Value)
	if handle == "" || !ok && r.Rev != 0 {
		return nil, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, r.Key)
	}
	return &firstEntry{Var: occ.NewVar(r, at)}, nil
}

// Write implements [occ.Entry]. A holding that began and ended in one transaction, by the calls of two callers, has no difference that
// its block could write.
func (fe *firstEntry) Write(o *occ.Ops) {
	if at := fe.Get(); at.IsValid() && fe.be != nil && fe.be.At == at.Masked() && !fe.be.isFirst(at.Addr(), fe.Key[1:]) {
		occ.Set(&fe.be.t.Txn, fe, netip.Prefix{})
	}
	if !fe.Get().IsValid() {
		o.Delete(&fe.Cell)
		return
	}
	o.Put(&fe.Cell)
	o.Buf = record.AppendBlockID(o.Buf, fe.Get())
	o.Value()
}

// Settle implements [occ.Entry].
func (fe *firstEntry) Settle() { fe.be = nil }

// isFirst reports whether an address of the block is the first holding of a handle.
func (be *BlockEntry) isFirst(a netip.Addr, handle string) bool {
	x, ok := be.codec.Ordinal(a)
	if !ok || be.Block == nil {
		return false
	}
	_, is := be.Look(x)
	if !holds(is, handle) {
		return false
	}
	h, _ := is.Find(alloc.Guard{Handle: handle})
	return h.First
}

// first returns the cell of the record of a handle. A record that is not known is assumed not to exist, which the commit verifies.
func (t *Txn) first(handle string) *firstEntry {
	fe := t.firsts.Get(handle)
	if fe == nil {
		fe = &firstEntry{Var: occ.NewVar(store.Record{Key: record.KindHandle + handle}, netip.Prefix{})}
		t.firsts.Put(handle, fe)
	}
	t.Guard(&fe.Cell)
	return fe
}

// EndedFirst returns the block of the first holding of a handle, which holds nothing there any more: nil unless the holding was a lease whose
// end is not written yet. The commit relies on the record of the first holding. One that replaces the record has to write that block too,
// because a later commit would delete the record with the end of the lease.
func (t *Txn) EndedFirst(cat *CatalogEntry, handle string) (*BlockEntry, error) {
	at := t.first(handle).Get()
	if !at.IsValid() {
		return nil, nil
	}
	be, err := t.Block(cat, at.Masked())
	if err != nil || be.Block == nil {
		return nil, err
	}
	x, err := be.Ordinal(at.Addr())
	if err != nil {
		return nil, err
	}
	for _, c := range be.Changes.List {
		if c.X == x && holds(c.Was, handle) {
			return be, nil
		}
	}
	return nil, nil
}

// TouchFirst writes the record of the first holding of a handle unchanged, which makes every other commit that relies on it fail.
func (t *Txn) TouchFirst(handle string) {
	fe := t.first(handle)
	occ.Set(&t.Txn, fe, fe.Get())
}

// MakeFirst makes a holding the first one of its handle, which has none. The block must be one that the transaction has changed.
func (t *Txn) MakeFirst(be *BlockEntry, x, seq uint64, handle string) {
	be.MakeFirst(x, seq)
	fe := t.first(handle)
	fe.be = be
	occ.Set(&t.Txn, fe, netip.PrefixFrom(be.Addr(x), be.At.Bits()))
}

// endFirst deletes the record of a first holding that ends. No other commit can replace the record meanwhile, because it would change
// the block too.
func (t *Txn) endFirst(o *occ.Ops, handle string, at netip.Prefix) {
	switch fe := t.firsts.Get(handle); {
	case fe == nil || !t.Guarded(&fe.Cell):
		t.firsts.Drop(handle)
		o.Add(store.Op{Kind: store.Delete, Expect: store.AnyRevision})
		o.Buf = append(append(o.Buf, record.KindHandle...), handle...)
		o.Key()
	case fe.Get() == at: // otherwise another holding has become the first one
		occ.Set(&t.Txn, fe, netip.Prefix{})
	}
}
