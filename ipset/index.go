package ipset

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// blockIndex is what the index records of a block say: a function of its record.
type blockIndex struct {
	room, empty bool
	owner       Owner  // with room: who may assign from it first
	ready       int64  // with room: 0 if an address is free, else when the first has cooled
	since       int64  // with empty: since when it is or, while addresses cool, from when on it will be
	due         int64  // when time next changes the block; 0 is never
	former      string // see Block
}

// indexOf derives the index records. It may not depend on the present time, or it could not be checked.
func indexOf(b *block.Block) blockIndex {
	x := blockIndex{due: b.NextLease(), former: b.Former()}
	cooling := b.Cooling() > 0
	first, last := b.CoolingTimes()
	if cooling {
		x.ready = first
		if x.due == 0 || x.ready < x.due {
			x.due = x.ready
		}
	}
	if x.room = b.HasFree() || cooling; b.HasFree() {
		x.ready = 0
	}
	if x.room {
		x.owner = b.Owner()
	}
	if x.empty = b.Used() == 0 && b.Owner().Kind != Nobody; x.empty {
		if x.since = b.Since(); cooling {
			x.since = last // as advance will have it
		}
	}
	return x
}

// says reports whether the index record of one kind exists with a value.
func (x blockIndex) says(kind string, value int64) bool {
	if kind == kindEmpty {
		return x.empty && x.since == value
	}
	return x.room && x.ready == value
}

// indexEntry is one index record of a block or of an address, but for the block or the address that its key names.
type indexEntry struct {
	kind  byte
	code  byte   // of kinds f, n, w: what an owner's code begins with
	name  string // of kinds f, h, n, w: handle or owner; of kind i the key of an attribute, NUL and its value
	time  int64  // of kind d
	value int64  // of kinds e, r, w
}

// sameKey reports whether two entries of one block or address are one record.
func (x *indexEntry) sameKey(y *indexEntry) bool {
	return x.kind == y.kind && x.code == y.code && x.name == y.name && x.time == y.time
}

// plain reports whether the key is the kind and the block.
func (x *indexEntry) plain() bool {
	return x.kind == kindRoom[0] || x.kind == kindEmpty[0]
}

// appendKey appends the key of the entry of a block; of an address, at is that with the prefix length of its block.
func (x *indexEntry) appendKey(dst []byte, at netip.Prefix) []byte {
	switch {
	case x.plain():
		return appendBlockID(append(dst, x.kind), at)
	case x.kind == kindDue[0]:
		return appendDueKey(dst, x.time, at)
	}
	dst = append(dst, x.kind)
	if x.code != 0 {
		dst = append(dst, x.code)
	}
	return appendBlockID(append(append(dst, x.name...), 0), at)
}

// ownerIndex returns an entry that names an owner.
func ownerIndex(kind string, o Owner) indexEntry {
	return indexEntry{kind: kind[0], code: '0' + byte(o.Kind), name: o.Name}
}

// The index records of a block are those of entries, the ones of an address those of addressEntries, and no others: the
// writer writes the difference between what they were and what they are, and Check compares them with those that are there.

// entries appends the index records of a block.
func (x *blockIndex) entries(dst []indexEntry) []indexEntry {
	if x.room {
		own := ownerIndex(kindOwnRoom, x.owner)
		own.value = x.ready
		dst = append(dst, indexEntry{kind: kindRoom[0], value: x.ready}, own)
	}
	if x.empty {
		dst = append(dst, indexEntry{kind: kindEmpty[0], value: x.since})
	}
	if x.due != 0 {
		dst = append(dst, indexEntry{kind: kindDue[0], time: x.due})
	}
	for rest := x.former; rest != ""; {
		var code string
		code, rest, _ = strings.Cut(rest, "\x00")
		dst = append(dst, indexEntry{kind: kindFormer[0], name: code})
	}
	return dst
}

// addressEntries appends the index records of an address; a nil address has none.
func addressEntries(dst []indexEntry, a *block.Address) []indexEntry {
	if a == nil || a.Cooling {
		return dst
	}
	if !a.IsShared() {
		return holderEntries(dst, &a.Holder)
	}
	n := len(dst)
	for h := range a.Holders() {
		if h.Borrowed && slices.Contains(dst[n:], ownerIndex(kindHost, h.Host)) {
			h.Borrowed = false // another holder has the host
		}
		dst = holderEntries(dst, &h)
	}
	return dst
}

// holderEntries appends the index records of one holder.
func holderEntries(dst []indexEntry, h *block.Holder) []indexEntry {
	if h.Handle != "" {
		dst = append(dst, indexEntry{kind: kindHandle[0], name: h.Handle})
	}
	if h.Borrowed {
		dst = append(dst, ownerIndex(kindHost, h.Host))
	}
	if h.Indexed == 0 {
		return dst
	}
	for _, x := range attributeEntries(h) {
		if !slices.Contains(dst, x) { // else it is another holder's
			dst = append(dst, x)
		}
	}
	return dst
}

// attributeEntries returns the index records of the indexed attributes of a holder.
func attributeEntries(h *block.Holder) (xs []indexEntry) {
	for key, value := range h.Active.Marked(h.Indexed) {
		xs = append(xs, indexEntry{kind: kindIndex[0], name: key + "\x00" + value})
	}
	return xs
}

// inIndex reports whether an address has an index record.
func inIndex(a *block.Address) bool {
	return a != nil && !a.Cooling && (a.Handle != "" || a.Borrowed || a.Indexed != 0 || a.IsShared())
}

// recordsOf returns how many records an address has, its own included.
func recordsOf(a *block.Address) int {
	var buf [4]indexEntry
	return 1 + len(addressEntries(buf[:0], a))
}

// Write implements [occ.Entry]: it adds what changes of the records of a block.
func (be *blockEntry) Write(o *occ.Ops) {
	var is blockIndex
	if be.Block != nil {
		be.Tidy()
		is = indexOf(be.Block)
		o.Put(&be.Cell)
		o.Buf = be.Append(o.Buf)
		o.Value()
	} else {
		o.Delete(&be.Cell)
	}
	if be.written = is; is != be.shown {
		var buf, shown [8]indexEntry
		be.writeEntries(o, be.at, be.shown.entries(shown[:0]), is.entries(buf[:0]))
	}
	for _, c := range be.changes.List {
		var a *block.Address
		if be.Block != nil {
			_, a = be.Look(c.X)
		}
		be.writeAddress(o, netip.PrefixFrom(be.codec.Addr(c.X), be.at.Bits()), c.Was, a)
	}
}

// writeEntries adds the difference between the index records that a block or an address had and those that it has.
func (be *blockEntry) writeEntries(ops *occ.Ops, at netip.Prefix, was, is []indexEntry) {
	for i := range was {
		w := &was[i]
		if !slices.ContainsFunc(is, func(x indexEntry) bool { return x.sameKey(w) }) {
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
func (be *blockEntry) writeEntry(ops *occ.Ops, kind store.Kind, x *indexEntry, at netip.Prefix) {
	op := store.Op{Kind: kind, Expect: store.AnyRevision}
	if x.plain() {
		op.Key = be.indexKey(x.kind)
		ops.Add(op)
	} else {
		ops.Add(op)
		ops.Buf = x.appendKey(ops.Buf, at)
		ops.Key()
	}
	if kind == store.Put {
		ops.Buf = appendIndexValue(ops.Buf, x.value)
		ops.Value()
	}
}

// writeAddress adds what changes of the records of an address: its own and its index entries. nil is no record.
func (be *blockEntry) writeAddress(ops *occ.Ops, at netip.Prefix, was, is *block.Address) {
	switch {
	case is != nil && (was == nil || *was != *is):
		ops.Add(store.Op{Kind: store.Put, Expect: store.AnyRevision})
		ops.Buf = appendAddressKey(ops.Buf, at.Addr())
		ops.Key()
		ops.Buf = is.Append(ops.Buf, at.Bits())
		ops.Value()
	case is == nil && was != nil:
		ops.Add(store.Op{Kind: store.Delete, Expect: store.AnyRevision})
		ops.Buf = appendAddressKey(ops.Buf, at.Addr())
		ops.Key()
	}
	if inIndex(was) || inIndex(is) {
		var had, has [4]indexEntry
		be.writeEntries(ops, at, addressEntries(had[:0], was), addressEntries(has[:0], is))
	}
}

// indexValue codes the time in an index record; 0 is no value.
func indexValue(v int64) string { return string(appendIndexValue(nil, v)) }

func appendIndexValue(dst []byte, v int64) []byte {
	if v == 0 {
		return dst
	}
	return binary.AppendVarint(dst, v)
}

// parseIndexValue is the inverse of indexValue. What does not parse is never due.
func parseIndexValue(s string) int64 {
	if s == "" {
		return 0
	}
	r := &wire.Reader{S: s}
	if v := r.Varint(); r.Err == nil && r.S == "" {
		return v
	}
	return math.MaxInt64
}
