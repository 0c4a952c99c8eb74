package assign

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Most pools have nothing in an index when a host has to borrow, and each would be a list. So a list goes on into the pools that
// lie behind, and the plan remembers what it has seen: the number of lists follows the records that there are. The engine remembers
// how many the last search looked at, so that the next one reads as many at once.

// A stretch is a part of an index that was listed: all records with from <= key < to. The keys of another index are below it or
// above.
type stretch struct {
	kind, from, to string
	recs           []store.Record
	used           int // of recs, what has been looked at
}

// listed returns the first records of an index in r, at most r.Limit, and the key at which to go on, r.To or above if no record
// is left.
func (s *Search) listed(t *txn.Txn, kind string, r store.Range) (recs []store.Record, next string, err error) {
	for {
		for i := range s.stretches {
			if x := &s.stretches[i]; x.from <= r.From && r.From < x.to {
				recs, next = x.part(r)
				x.used += len(recs)
				return recs, next, nil
			}
		}
		if err := s.list(t, kind, r); err != nil {
			return nil, "", err
		}
	}
}

// list adds a stretch that begins where r does, or before it if the index of the tried pools was short the last time.
func (s *Search) list(t *txn.Txn, kind string, r store.Range) (err error) {
	span := s.span(kind)
	n, whole := t.E.Lengths.Get(kind, s.family)
	x := stretch{kind: kind, from: r.From, to: max(r.To, span.To)}
	if read, some := s.read(kind); some {
		n = max(n, read)
	} else if whole {
		n++ // so that the list ends before its limit
		x.from = min(x.from, span.From)
	}
	for _, y := range s.stretches {
		if y.from > x.from {
			x.to = min(x.to, y.from)
		}
	}
	limit := min(max(r.Limit, n), listPage)
	if x.recs, err = t.List(store.Range{From: x.from, To: x.to, Limit: limit}); err != nil {
		return err
	}
	if len(x.recs) == limit {
		x.to = x.recs[limit-1].Key + "\x00"
	}
	s.keep(x)
	return nil
}

// keep adds a stretch, with room for one of each index.
func (s *Search) keep(x stretch) {
	if s.stretches == nil {
		s.stretches = make([]stretch, 0, 4)
	}
	s.stretches = append(s.stretches, x)
}

// dueIn returns the first records of the due index in r. The index of empty blocks, which is looked at next, begins where that one ends:
// where few blocks have a lease or a cooldown, and few are empty, one list reads both.
func (s *Search) dueIn(t *txn.Txn, r store.Range) (recs []store.Record, err error) {
	_, again := s.read(record.KindDue)
	n, whole := t.E.Lengths.Get(record.KindEmpty, s.family)
	if again || !whole || !t.E.Lengths.Near() {
		return t.List(r)
	}
	x := stretch{kind: record.KindDue, from: r.From, to: s.span(record.KindEmpty).To}
	limit := min(r.Limit+n+1, listPage)
	if x.recs, err = t.List(store.Range{From: x.from, To: x.to, Limit: limit}); err != nil {
		return nil, err
	}
	if len(x.recs) == limit {
		x.to = x.recs[limit-1].Key + "\x00"
		t.E.Lengths.Far()
	}
	s.keep(x)
	recs, _ = x.part(r)
	return recs, nil
}

// span returns the keys of an index from the first to the last of the tried pools.
func (s *Search) span(kind string) store.Range {
	first, last := s.Cat.Pools[s.Pools[0]].Prefix, s.Cat.Pools[s.Pools[0]].Prefix
	for _, i := range s.Pools[1:] {
		at := s.Cat.Pools[i].Prefix
		if at.Addr().Less(first.Addr()) {
			first = at
		}
		if last.Addr().Less(at.Addr()) {
			last = at
		}
	}
	r := record.BlockRange(kind, first)
	if last != first {
		r.To = record.BlockRange(kind, last).To
	}
	return r
}

// read returns how many records of an index have been listed, and whether it has been listed at all.
func (s *Search) read(kind string) (n int, some bool) {
	for _, x := range s.stretches {
		if x.kind == kind {
			n, some = n+len(x.recs), true
		}
	}
	return n, some
}

// remember notes for the next search how much this one has looked at. The index that was read last is the one that had what was
// found.
func (s *Search) remember(e *txn.Engine) {
	for i, x := range s.stretches {
		if i > 0 && s.stretches[i-1].kind == x.kind {
			continue
		}
		n, used := 0, 0
		for _, y := range s.stretches[i:] {
			if y.kind == x.kind {
				n, used = n+len(y.recs), used+y.used
			}
		}
		whole := s.want > 0 || x.kind != s.stretches[len(s.stretches)-1].kind
		if !whole {
			n = used
		}
		e.Lengths.Set(x.kind, s.family, n, whole)
	}
}

// part returns the first records of a stretch in r, which begins in it, and the key at which to go on.
func (x *stretch) part(r store.Range) (recs []store.Record, next string) {
	at := func(key string) int {
		i, _ := slices.BinarySearchFunc(x.recs, key, func(rec store.Record, key string) int { return strings.Compare(rec.Key, key) })
		return i
	}
	next = min(x.to, r.To)
	recs = x.recs[at(r.From):at(next)]
	if len(recs) > r.Limit {
		recs = recs[:r.Limit]
		next = recs[r.Limit-1].Key + "\x00"
	}
	return recs, next
}

// everything is the prefix of all addresses of a family.
func everything(family int) netip.Prefix {
	if family == 4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
