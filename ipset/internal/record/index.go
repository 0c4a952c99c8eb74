package record

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
)

// The index records are derived here and nowhere else. The writer, Check, an import and Changes all ask these functions, so an index
// record cannot mean one thing where it is written and another where it is verified. Their results depend on the record alone and
// never on the present time, because a record that changes its meaning without a commit could not be compared.

// BlockIndex is the content of the index records of a block, a function of the block's record.
type BlockIndex struct {
	Room, empty bool
	owner       alloc.Owner
	Ready       int64  // with room: 0 if an address is free, else when the first has cooled
	since       int64  // with empty: since when it is or, while addresses cool, from when on it will be
	Due         int64  // when time next changes the block; 0 is never
	former      string // the owners before the present one, see Block
}

// IndexOf derives the index records. It may not depend on the present time, or it could not be checked.
func IndexOf(b *block.Block) BlockIndex {
	x := BlockIndex{owner: b.Owner(), Due: b.NextLease(), former: b.Former()}
	cooling := b.Cooling() > 0
	first, last := b.CoolingTimes()
	if cooling {
		x.Ready = first
		if x.Due == 0 || x.Ready < x.Due {
			x.Due = x.Ready
		}
	}
	if x.Room = b.HasFree() || cooling; b.HasFree() {
		x.Ready = 0
	}
	if x.empty = b.Used() == 0 && b.Owner().Kind != alloc.Nobody; x.empty {
		if x.since = b.Since(); cooling {
			x.since = last // as advance will have it
		}
	}
	return x
}

// Says reports whether the index record of one kind exists with a value.
func (x BlockIndex) Says(kind string, value int64) bool {
	if kind == KindEmpty {
		return x.empty && x.since == value
	}
	return x.Room && x.Ready == value
}

// IndexEntry is one index record of a block or of an address, but for the block or the address that its key names.
type IndexEntry struct {
	Kind  byte
	code  byte   // of kinds n, o, w: what an owner's code begins with
	name  string // of kinds h, n, o, w: handle or owner; of kind i the key of an attribute, NUL and its value; of kind k a sharing key
	time  int64  // of kind d
	first bool   // of kind h: the key is the handle, and the value says where
	Value int64  // of kinds e, o, r, w
}

// SameKey reports whether two entries of one block or address are one record.
func (x *IndexEntry) SameKey(y *IndexEntry) bool {
	return x.Kind == y.Kind && x.code == y.code && x.name == y.name && x.time == y.time && x.first == y.first
}

// Plain reports whether the key is the kind and the block.
func (x *IndexEntry) Plain() bool {
	return x.Kind == KindRoom[0] || x.Kind == KindEmpty[0]
}

// AppendKey appends the key of the entry of a block; of an address, at is that with the prefix length of its block.
func (x *IndexEntry) AppendKey(dst []byte, at netip.Prefix) []byte {
	switch {
	case x.Plain():
		return AppendBlockID(append(dst, x.Kind), at)
	case x.Kind == KindDue[0]:
		return appendDueKey(dst, x.time, at)
	}
	dst = append(dst, x.Kind)
	if x.first {
		return append(dst, x.name...)
	}
	if x.code != 0 {
		dst = append(dst, x.code)
	}
	return AppendBlockID(append(append(dst, x.name...), 0), at)
}

// First reports whether the entry is for the first holding of a handle, and returns that handle.
func (x *IndexEntry) First() (handle string, ok bool) { return x.name, x.first }

// AppendValue appends the value of the entry of a block, or of an address with the prefix length of its block.
func (x *IndexEntry) AppendValue(dst []byte, at netip.Prefix) []byte {
	if x.first {
		return AppendBlockID(dst, at)
	}
	return AppendIndexValue(dst, x.Value)
}

// ownerIndex returns an entry that names an owner.
func ownerIndex(kind string, o alloc.Owner) IndexEntry {
	return IndexEntry{Kind: kind[0], code: '0' + byte(o.Kind), name: o.Name}
}

// Entries appends all index records of a block, and AddressEntries all index records of an address. The writer writes the
// difference between the former and the new entries, and Check compares the entries with the records in the store.

// Entries appends the index records of a block.
func (x *BlockIndex) Entries(dst []IndexEntry) []IndexEntry {
	if x.Room {
		own := ownerIndex(KindOwnRoom, x.owner)
		own.Value = x.Ready
		dst = append(dst, IndexEntry{Kind: KindRoom[0], Value: x.Ready}, own)
	}
	if x.owner.Kind != alloc.Nobody {
		dst = append(dst, ownerIndex(KindOwner, x.owner))
	}
	if x.empty {
		dst = append(dst, IndexEntry{Kind: KindEmpty[0], Value: x.since})
	}
	if x.Due != 0 {
		dst = append(dst, IndexEntry{Kind: KindDue[0], time: x.Due})
	}
	for rest := x.former; rest != ""; {
		var code string
		code, rest, _ = strings.Cut(rest, "\x00")
		dst = append(dst, IndexEntry{Kind: KindOwner[0], code: code[0], name: code[1:], Value: hadBefore})
	}
	return dst
}

// AddressEntries appends the index records of an address; a nil address has none.
func AddressEntries(dst []IndexEntry, a *block.Address) []IndexEntry {
	if a == nil || a.Cooling {
		return dst
	}
	if !a.IsShared() {
		return HolderEntries(dst, &a.Holder)
	}
	n := len(dst)
	for h := range a.Holders() {
		if h.Borrowed && slices.Contains(dst[n:], ownerIndex(KindHost, h.Host)) {
			h.Borrowed = false // another holder has the host
		}
		dst = HolderEntries(dst, &h)
	}
	if key := a.Share().Key; key != "" {
		dst = append(dst, IndexEntry{Kind: KindShare[0], name: key})
	}
	return dst
}

// HolderEntries appends the index records of one holder.
func HolderEntries(dst []IndexEntry, h *block.Holder) []IndexEntry {
	if h.Handle != "" {
		dst = append(dst, IndexEntry{Kind: KindHandle[0], name: h.Handle, first: h.First})
	}
	if h.Borrowed {
		dst = append(dst, ownerIndex(KindHost, h.Host))
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
func attributeEntries(h *block.Holder) (xs []IndexEntry) {
	for key, value := range block.Marked(h.Active, h.Indexed) {
		xs = append(xs, IndexEntry{Kind: KindIndex[0], name: key + "\x00" + value})
	}
	return xs
}

// InIndex reports whether an address has an index record.
func InIndex(a *block.Address) bool {
	return a != nil && !a.Cooling && (a.Handle != "" || a.Borrowed || a.Indexed != 0 || a.IsShared())
}

// IndexValue codes the time in an index record; 0 is no value.
func IndexValue(v int64) string { return string(AppendIndexValue(nil, v)) }

// AppendIndexValue appends the coded time.
func AppendIndexValue(dst []byte, v int64) []byte {
	if v == 0 {
		return dst
	}
	return binary.AppendVarint(dst, v)
}

// ParseIndexValue is the inverse of AppendIndexValue. What does not parse is never due.
func ParseIndexValue(s string) int64 {
	if s == "" {
		return 0
	}
	r := &wire.Reader{S: s}
	if v := r.Varint(); r.Err == nil && r.S == "" {
		return v
	}
	return math.MaxInt64
}
