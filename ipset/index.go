package ipset

import (
	"encoding/binary"
	"iter"
	"math"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/block"
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

// writeBlock adds what changes of the records of a block to the commit.
func (t *txn) writeBlock(be *blockEntry) {
	var is blockIndex
	if be.Block != nil {
		be.Tidy()
		is = indexOf(be.Block)
		t.text.begin(store.Op{Kind: store.Put, Key: be.key, Expect: be.rev})
		t.text.buf = be.Append(t.text.buf)
		t.text.value()
	} else {
		t.text.begin(store.Op{Kind: store.Delete, Key: be.key, Expect: be.rev})
	}
	if is != be.shown {
		t.writeIndex(be, is)
	}
	for _, c := range be.changes.List {
		var a *block.Address
		if be.Block != nil {
			_, a = be.Look(c.X)
		}
		t.writeAddress(netip.PrefixFrom(be.codec.Addr(c.X), be.at.Bits()), c.Was, a)
	}
}

// writeIndex adds the changes of the index records of a block.
func (t *txn) writeIndex(be *blockEntry, is blockIndex) {
	was, p := be.shown, be.at
	flag := func(kind string, was, is bool, wasValue, isValue int64) {
		switch {
		case is && (!was || wasValue != isValue):
			t.text.begin(store.Op{Kind: store.Put, Key: be.indexKey(kind), Expect: store.AnyRevision})
			t.text.buf = appendIndexValue(t.text.buf, isValue)
			t.text.value()
		case was && !is:
			t.text.begin(store.Op{Kind: store.Delete, Key: be.indexKey(kind), Expect: store.AnyRevision})
		}
	}
	flag(kindRoom, was.room, is.room, was.ready, is.ready)
	flag(kindEmpty, was.empty, is.empty, was.since, is.since)
	flag(kindOrphan, was.orphan, is.orphan, 0, 0)
	own := func(kind store.Kind, o Owner) {
		t.text.begin(store.Op{Kind: kind, Expect: store.AnyRevision})
		t.text.buf = o.AppendCode(append(t.text.buf, kindOwnRoom...))
		t.text.buf = appendBlockID(append(t.text.buf, 0), p)
		t.text.key()
	}
	if was.owner.Kind != Nobody && was.owner != is.owner {
		own(store.Delete, was.owner)
	}
	if is.owner.Kind != Nobody && (was.owner != is.owner || was.ready != is.ready) {
		own(store.Put, is.owner)
		t.text.buf = appendIndexValue(t.text.buf, is.ready)
		t.text.value()
	}
	due := func(kind store.Kind, at int64) {
		if at != 0 {
			t.text.begin(store.Op{Kind: kind, Expect: store.AnyRevision})
			t.text.buf = appendDueKey(t.text.buf, at, p)
			t.text.key()
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
				t.text.begin(store.Op{Kind: kind, Key: string(appendNameKey(nil, kindFormer, code, p)), Expect: store.AnyRevision})
			}
		}
	}
	formers(store.Delete, was.former, is.former)
	formers(store.Put, is.former, was.former)
}

// writeAddress adds what changes of the records of an address: its own and its index entries. nil is no record.
func (t *txn) writeAddress(at netip.Prefix, was, is *block.Address) {
	switch {
	case is != nil && (was == nil || *was != *is):
		t.text.begin(store.Op{Kind: store.Put, Expect: store.AnyRevision})
		t.text.buf = appendAddressKey(t.text.buf, at.Addr())
		t.text.key()
		t.text.buf = is.Append(t.text.buf, at.Bits())
		t.text.value()
	case is == nil && was != nil:
		t.text.begin(store.Op{Kind: store.Delete, Expect: store.AnyRevision})
		t.text.buf = appendAddressKey(t.text.buf, at.Addr())
		t.text.key()
	}
	entry := func(kind store.Kind, key, name string) {
		t.text.begin(store.Op{Kind: kind, Expect: store.AnyRevision})
		t.text.buf = appendNameKey(t.text.buf, key, name, at)
		t.text.key()
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

// text collects the operations of a commit. Their new keys and values are parts of one string, made when all are there.
type text struct {
	ops  []store.Op
	buf  []byte
	done int // where the last part ends
	refs []textRef
}

// textRef is one key or value: of which operation, and its part of the text.
type textRef struct {
	op       int
	value    bool
	from, to int
}

func (x *text) reset() {
	clear(x.ops)
	x.ops, x.buf, x.refs, x.done = x.ops[:0], x.buf[:0], x.refs[:0], 0
}

// begin adds an operation; key and value complete it with what has been appended to buf since.
func (x *text) begin(op store.Op) { x.ops = append(x.ops, op) }

func (x *text) key()   { x.ref(false) }
func (x *text) value() { x.ref(true) }

func (x *text) ref(value bool) {
	x.refs = append(x.refs, textRef{len(x.ops) - 1, value, x.done, len(x.buf)})
	x.done = len(x.buf)
}

// finish returns the operations.
func (x *text) finish() []store.Op {
	s := string(x.buf)
	for _, r := range x.refs {
		if part := s[r.from:r.to]; r.value {
			x.ops[r.op].Value = part
		} else {
			x.ops[r.op].Key = part
		}
	}
	return x.ops
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
