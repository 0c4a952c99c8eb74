package txn

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A commit writes the difference between the index records that a block or an address had and those that it has. The difference
// is taken when the commit is made, so a plan that changes an address twice writes it once.

// Write implements [occ.Entry]: it adds what changes of the records of a block.
func (be *BlockEntry) Write(o *occ.Ops) {
	var is record.BlockIndex
	if be.Block != nil {
		be.Tidy()
		is = record.IndexOf(be.Block)
		o.Put(&be.Cell)
		o.Buf = be.Append(o.Buf)
		o.Value()
	} else {
		o.Delete(&be.Cell)
	}
	if be.written = is; is != be.Shown {
		var buf, shown [8]record.IndexEntry
		be.writeEntries(o, be.At, be.Shown.Entries(shown[:0]), is.Entries(buf[:0]))
	}
	for _, c := range be.Changes.List {
		var a *block.Address
		if be.Block != nil {
			_, a = be.Look(c.X)
		}
		be.writeAddress(o, netip.PrefixFrom(be.codec.Addr(c.X), be.At.Bits()), c.Was, a)
	}
}

// writeEntries adds the difference between the index records that a block or an address had and those that it has. They are listed
// in one order, and mostly the first ones stay.
func (be *BlockEntry) writeEntries(ops *occ.Ops, at netip.Prefix, was, is []record.IndexEntry) {
	for len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		was, is = was[1:], is[1:]
	}
	for i := range was {
		w := &was[i]
		if !slices.ContainsFunc(is, func(x record.IndexEntry) bool { return x.SameKey(w) }) {
			be.writeEntry(ops, store.Delete, w, at)
		}
	}
	for i := range is {
		if !slices.Contains(was, is[i]) {
			be.writeEntry(ops, store.Put, &is[i], at)
		}
	}
}

// writeEntry adds one index record to the commit, or its removal.
func (be *BlockEntry) writeEntry(ops *occ.Ops, kind store.Kind, x *record.IndexEntry, at netip.Prefix) {
	if handle, ok := x.First(); ok {
		if kind == store.Delete { // otherwise a cell of its own writes it
			be.t.endFirst(ops, handle, at)
		}
		return
	}
	op := store.Op{Kind: kind, Expect: store.AnyRevision}
	if x.Plain() {
		op.Key = be.indexKey(x.Kind)
		ops.Add(op)
	} else {
		ops.Add(op)
		ops.Buf = x.AppendKey(ops.Buf, at)
		ops.Key()
	}
	if kind == store.Put {
		ops.Buf = record.AppendIndexValue(ops.Buf, x.Value)
		ops.Value()
	}
}

// writeAddress adds what changes of the records of an address: its own and its index entries. nil is no record.
func (be *BlockEntry) writeAddress(ops *occ.Ops, at netip.Prefix, was, is *block.Address) {
	switch {
	case is != nil && (was == nil || *was != *is):
		ops.Add(store.Op{Kind: store.Put, Expect: store.AnyRevision})
		ops.Buf = record.AppendAddressKey(ops.Buf, at.Addr())
		ops.Key()
		ops.Buf = is.Append(ops.Buf, at.Bits())
		ops.Value()
	case is == nil && was != nil:
		ops.Add(store.Op{Kind: store.Delete, Expect: store.AnyRevision})
		ops.Buf = record.AppendAddressKey(ops.Buf, at.Addr())
		ops.Key()
	}
	if record.InIndex(was) || record.InIndex(is) {
		var had, has [4]record.IndexEntry
		be.writeEntries(ops, at, record.AddressEntries(had[:0], was), record.AddressEntries(has[:0], is))
	}
}
