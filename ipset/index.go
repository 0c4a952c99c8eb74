package ipset

import (
	"encoding/binary"
	"math"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// blockIndex is what the index records of a block say beside those of its handles: a function of the block.
type blockIndex struct {
	room, empty, orphan bool
	ready               int64 // with room: 0 if an address is free, else when the first has cooled
	since               int64 // with empty: since when it is or, while addresses cool, from when on it will be
	due                 int64 // when time next changes the block; 0 is never
}

// index derives the index records. It may not depend on the present time, or it could not be checked.
func (b *Block) index() blockIndex {
	x := blockIndex{due: b.lease}
	if len(b.cool) > 0 {
		_, s := b.look(b.cool[0])
		x.ready = s.until
		if x.due == 0 || x.ready < x.due {
			x.due = x.ready
		}
	}
	if x.room = !b.free.empty() || len(b.cool) > 0; !b.free.empty() {
		x.ready = 0
	}
	x.orphan = x.room && b.owner.Kind == Nobody
	if x.empty = b.used == 0 && b.owner.Kind != Nobody; x.empty {
		if x.since = b.since; len(b.cool) > 0 {
			_, s := b.look(b.cool[len(b.cool)-1])
			x.since = s.until // as advance will have it
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

// appendIndex appends the changes of the index records of a block.
func appendIndex(ops []store.Op, be *blockEntry) []store.Op {
	var is blockIndex
	p := be.at
	if be.Block != nil {
		is = be.index()
	}
	flag := func(kind string, was, is bool, wasValue, isValue int64) {
		switch {
		case is && (!was || wasValue != isValue):
			ops = append(ops, store.Op{Kind: store.Put, Key: be.indexKey(kind), Value: indexValue(isValue), Expect: store.AnyRevision})
		case was && !is:
			ops = append(ops, store.Op{Kind: store.Delete, Key: be.indexKey(kind), Expect: store.AnyRevision})
		}
	}
	flag(kindRoom, be.was.room, is.room, be.was.ready, is.ready)
	flag(kindEmpty, be.was.empty, is.empty, be.was.since, is.since)
	flag(kindOrphan, be.was.orphan, is.orphan, 0, 0)
	if be.was.due != is.due {
		if be.was.due != 0 {
			ops = append(ops, store.Op{Kind: store.Delete, Key: dueKey(be.was.due, p), Expect: store.AnyRevision})
		}
		if is.due != 0 {
			ops = append(ops, store.Op{Kind: store.Put, Key: dueKey(is.due, p), Expect: store.AnyRevision})
		}
	}
	return appendTouched(ops, p, be.touches)
}

// appendTouched writes the index records of the handles and hosts that came or left. One that did both more than once
// is what it is after the last time, and needs nothing if it is as it was before the first.
func appendTouched(ops []store.Op, p netip.Prefix, touched []touch) []store.Op {
	if len(touched) < 2 {
		for _, c := range touched {
			ops = append(ops, touchOp(c, p))
		}
		return ops
	}
	type who struct{ kind, name string }
	last := make(map[who]int, len(touched))
	for i, c := range touched {
		last[who{c.kind, c.name}] = i
	}
	first := make(map[who]bool, len(touched))
	for i, c := range touched {
		w := who{c.kind, c.name}
		if _, ok := first[w]; !ok {
			first[w] = c.came
		}
		if last[w] == i && first[w] == c.came {
			ops = append(ops, touchOp(c, p))
		}
	}
	return ops
}

func touchOp(c touch, p netip.Prefix) store.Op {
	op := store.Op{Kind: store.Delete, Key: holderKey(c.kind, c.name, p), Expect: store.AnyRevision}
	if c.came {
		op.Kind = store.Put
	}
	return op
}

// indexValue codes the time in an index record; 0 is no value.
func indexValue(v int64) string {
	if v == 0 {
		return ""
	}
	var buf [binary.MaxVarintLen64]byte
	return string(binary.AppendVarint(buf[:0], v))
}

// parseIndexValue is the inverse of indexValue. What does not parse is never due.
func parseIndexValue(s string) int64 {
	if s == "" {
		return 0
	}
	r := &reader{s: s}
	if v := r.varint(); r.err == nil && r.s == "" {
		return v
	}
	return math.MaxInt64
}
