package txn

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
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

// writeEntries adds the difference between the index records that a block or an address had and those that it has.
func (be *BlockEntry) writeEntries(ops *occ.Ops, at netip.Prefix, was, is []record.IndexEntry) {
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

// What a plan will write is bounded here and nowhere else, by the entries that Write compares: a plan changes blocks only after
// [Txn.Room] has found that they fit, because a block that has been changed cannot be restored without a copy of all its addresses.

// OpsPerBlock bounds the records of a block itself: the block, its room and empty entries, those that its owner has it and has room
// or that it has room as an orphan, and two of due.
const OpsPerBlock = 7

// OwnerOps bounds the records that a change of a block's owner adds: that the one had it and the other has it, and that the one has
// room no longer and the other has.
const OwnerOps = 4

// BlockOps bounds the records that a plan adds to the commit by changing a block; n is how many those of its addresses are, timed
// says that it may end a time or begin one, a lease or a cooldown, and fills that the block may get room or lose it. A block that
// another plan of the transaction has changed costs no more than those.
func (t *Txn) BlockOps(be *BlockEntry, n int, timed, fills bool) int {
	if !t.Changed(&be.Cell) {
		n += 2 // the block, its empty entry
		if be.Block == nil {
			n++ // that its owner has it
		}
		for _, c := range be.Changes.List {
			n += record.RecordsOf(c.Was) // time takes away, and adds none but the address as it cools
		}
		timed = timed || be.Shown.Due != 0 || be.Block != nil && (be.NextLease() != 0 || be.Cooling() > 0)
		fills = fills || be.Block == nil || !be.Shown.Room || be.Shown.Ready != 0 || be.Owner().Kind == alloc.Nobody
	}
	if timed {
		n += 2 // the entries of the former and the next time
	}
	if fills {
		n += 2 // the room entries of the block, and of its owner or as an orphan
	}
	return n
}

// mostOps is how many records a plan writes that takes as many places as one commit holds, on a store without a limit: more would
// cost no less each, and hold up other callers.
const mostOps = 4096

// Budget is how many records a plan may write that takes as many places as one commit holds.
type Budget struct{ left, Ops int }

// Budget returns that of a whole commit: a plan for which an earlier one leaves no room is made again in the next one.
func (t *Txn) Budget() Budget {
	if limit := t.E.Limits.Ops; limit > 0 {
		return Budget{left: limit}
	}
	return Budget{left: mostOps}
}

// Take adds n records, and reports false if that is too much. The first ones are always added: what does not fit alone is for
// [Txn.Room] to refuse. pages are records that count where they are set, and need room beside the others.
func (b *Budget) Take(n, pages int) bool {
	if b.Ops > 0 && n+pages > b.left {
		return false
	}
	b.Ops, b.left = b.Ops+n, b.left-n-pages
	return true
}
