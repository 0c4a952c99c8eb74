package ipset

import (
	"encoding/binary"
	"iter"
	"math"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// blockIndex is what the index records of a block say: a function of its record.
type blockIndex struct {
	room, empty, orphan bool
	owner               Owner  // with room: who may assign from it first
	ready               int64  // with room: 0 if an address is free, else when the first has cooled
	since               int64  // with empty: since when it is or, while addresses cool, from when on it will be
	due                 int64  // when time next changes the block; 0 is never
	former              string // see Block
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
	if x.orphan = x.room && b.Owner().Kind == Nobody; x.room {
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
	switch kind {
	case kindRoom:
		return x.room && x.ready == value
	case kindEmpty:
		return x.empty && x.since == value
	}
	return x.orphan
}

// derived yields the index records of a block.
func (x blockIndex) derived(p netip.Prefix) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		ok := (!x.room || yield(blockKey(kindRoom, p), indexValue(x.ready))) &&
			(!x.empty || yield(blockKey(kindEmpty, p), indexValue(x.since))) &&
			(!x.orphan || yield(blockKey(kindOrphan, p), "")) &&
			(x.owner.Kind == Nobody || yield(string(appendNameKey(nil, kindOwnRoom, x.owner.Code(), p)), indexValue(x.ready))) &&
			(x.due == 0 || yield(dueKey(x.due, p), ""))
		for rest := x.former; ok && rest != ""; {
			var code string
			code, rest, _ = strings.Cut(rest, "\x00")
			ok = yield(string(appendNameKey(nil, kindFormer, code, p)), "")
		}
	}
}

// inHandleIndex and inHostIndex say which index records an address has; a nil address has none.
func inHandleIndex(a *block.Address) bool { return a != nil && !a.Cooling && a.Handle != "" }
func inHostIndex(a *block.Address) bool   { return a != nil && !a.Cooling && a.Borrowed }

// recordsOf returns how many records an address has, its own included.
func recordsOf(a *block.Address) int {
	n := 1
	if inHandleIndex(a) {
		n++
	}
	if inHostIndex(a) {
		n++
	}
	return n
}

// derivedOf yields the index records of an address of a block of the given prefix length.
func derivedOf(a *block.Address, at netip.Addr, length int) iter.Seq2[string, string] {
	p := netip.PrefixFrom(at, length)
	return func(yield func(key, value string) bool) {
		if inHandleIndex(a) && !yield(string(appendNameKey(nil, kindHandle, a.Handle, p)), "") || !inHostIndex(a) {
			return
		}
		yield(string(appendNameKey(nil, kindHost, a.Host.Code(), p)), "")
	}
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
	if is != be.shown {
		be.writeIndex(o, is)
	}
	for _, c := range be.changes.List {
		var a *block.Address
		if be.Block != nil {
			_, a = be.Look(c.X)
		}
		writeAddress(o, netip.PrefixFrom(be.codec.Addr(c.X), be.at.Bits()), c.Was, a)
	}
}

// writeIndex adds the changes of the index records of a block.
func (be *blockEntry) writeIndex(ops *occ.Ops, is blockIndex) {
	was, p := be.shown, be.at
	flag := func(kind string, was, is bool, wasValue, isValue int64) {
		switch {
		case is && (!was || wasValue != isValue):
			ops.Add(store.Op{Kind: store.Put, Key: be.indexKey(kind), Expect: store.AnyRevision})
			ops.Buf = appendIndexValue(ops.Buf, isValue)
			ops.Value()
		case was && !is:
			ops.Add(store.Op{Kind: store.Delete, Key: be.indexKey(kind), Expect: store.AnyRevision})
		}
	}
	flag(kindRoom, was.room, is.room, was.ready, is.ready)
	flag(kindEmpty, was.empty, is.empty, was.since, is.since)
	flag(kindOrphan, was.orphan, is.orphan, 0, 0)
	own := func(kind store.Kind, o Owner) {
		ops.Add(store.Op{Kind: kind, Expect: store.AnyRevision})
		ops.Buf = o.AppendCode(append(ops.Buf, kindOwnRoom...))
		ops.Buf = appendBlockID(append(ops.Buf, 0), p)
		ops.Key()
	}
	if was.owner.Kind != Nobody && was.owner != is.owner {
		own(store.Delete, was.owner)
	}
	if is.owner.Kind != Nobody && (was.owner != is.owner || was.ready != is.ready) {
		own(store.Put, is.owner)
		ops.Buf = appendIndexValue(ops.Buf, is.ready)
		ops.Value()
	}
	due := func(kind store.Kind, at int64) {
		if at != 0 {
			ops.Add(store.Op{Kind: kind, Expect: store.AnyRevision})
			ops.Buf = appendDueKey(ops.Buf, at, p)
			ops.Key()
		}
	}
	if was.due != is.due {
		due(store.Delete, was.due)
		due(store.Put, is.due)
	}
	if was.former == is.former {
		return
	}
	formers := func(kind store.Kind, of, not string) {
		for of != "" {
			var code string
			if code, of, _ = strings.Cut(of, "\x00"); !block.HasCode(not, code) {
				ops.Add(store.Op{Kind: kind, Key: string(appendNameKey(nil, kindFormer, code, p)), Expect: store.AnyRevision})
			}
		}
	}
	formers(store.Delete, was.former, is.former)
	formers(store.Put, is.former, was.former)
}

// writeAddress adds what changes of the records of an address: its own and its index entries. nil is no record.
func writeAddress(ops *occ.Ops, at netip.Prefix, was, is *block.Address) {
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
	entry := func(kind store.Kind, key, name string) {
		ops.Add(store.Op{Kind: kind, Expect: store.AnyRevision})
		ops.Buf = appendNameKey(ops.Buf, key, name, at)
		ops.Key()
	}
	if had, has := inHandleIndex(was), inHandleIndex(is); had != has || has && was.Handle != is.Handle {
		if had {
			entry(store.Delete, kindHandle, was.Handle)
		}
		if has {
			entry(store.Put, kindHandle, is.Handle)
		}
	}
	if had, has := inHostIndex(was), inHostIndex(is); had != has || has && was.Host != is.Host {
		if had {
			entry(store.Delete, kindHost, was.Host.Code())
		}
		if has {
			entry(store.Put, kindHost, is.Host.Code())
		}
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
