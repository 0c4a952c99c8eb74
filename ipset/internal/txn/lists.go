package txn

import (
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Most pools have nothing in an index when a host has to borrow, and each would be a list. So a list goes on into the pools that
// lie behind, and the plan remembers what it has seen: the number of lists follows the records that there are. The engine remembers
// how many the last search looked at, so that the next one reads as many at once.

// Lists are what a search has listed of the indexes.
type Lists struct {
	Family int
	// Over returns the keys of an index from the first to the last of the pools that are tried.
	Over      interface{ Span(kind string) store.Range }
	stretches []stretch
}

// listPage is the most that a list returns.
const listPage = 256

// A stretch is a part of an index that was listed: all records with from <= key < to. The keys of another index are below it or
// above.
type stretch struct {
	kind, from, to string
	recs           []store.Record
	used           int // of recs, what has been looked at
}

// Listed returns the first records of an index in r, at most r.Limit, and the key at which to go on, r.To or above if no record
// is left.
func (l *Lists) Listed(t *Txn, kind string, r store.Range) (recs []store.Record, next string, err error) {
	for {
		for i := range l.stretches {
			if x := &l.stretches[i]; x.from <= r.From && r.From < x.to {
				recs, next = x.part(r)
				x.used += len(recs)
				return recs, next, nil
			}
		}
		if err := l.list(t, kind, r); err != nil {
			return nil, "", err
		}
	}
}

// list adds a stretch that begins where r does, or before it if the index of the tried pools was short the last time.
func (l *Lists) list(t *Txn, kind string, r store.Range) (err error) {
	span := l.Over.Span(kind)
	n, whole := t.E.Lengths.Get(kind, l.Family)
	x := stretch{kind: kind, from: r.From, to: max(r.To, span.To)}
	if read, some := l.read(kind); some {
		n = max(n, read)
	} else if whole {
		n++ // so that the list ends before its limit
		x.from = min(x.from, span.From)
	}
	for _, y := range l.stretches {
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
	l.keep(x)
	return nil
}

// keep adds a stretch, with room for one of each index.
func (l *Lists) keep(x stretch) {
	if l.stretches == nil {
		l.stretches = make([]stretch, 0, 4)
	}
	l.stretches = append(l.stretches, x)
}

// DueIn returns the first records of the due index in r. The index of empty blocks, which is looked at next, begins where that one ends:
// where few blocks have a lease or a cooldown, and few are empty, one list reads both.
func (l *Lists) DueIn(t *Txn, r store.Range) (recs []store.Record, err error) {
	_, again := l.read(record.KindDue)
	n, whole := t.E.Lengths.Get(record.KindEmpty, l.Family)
	if again || !whole || !t.E.Lengths.Near() {
		return t.List(r)
	}
	x := stretch{kind: record.KindDue, from: r.From, to: l.Over.Span(record.KindEmpty).To}
	limit := min(r.Limit+n+1, listPage)
	if x.recs, err = t.List(store.Range{From: x.from, To: x.to, Limit: limit}); err != nil {
		return nil, err
	}
	if len(x.recs) == limit {
		x.to = x.recs[limit-1].Key + "\x00"
		t.E.Lengths.Far()
	}
	l.keep(x)
	recs, _ = x.part(r)
	return recs, nil
}

// read returns how many records of an index have been listed, and whether it has been listed at all.
func (l *Lists) read(kind string) (n int, some bool) {
	for _, x := range l.stretches {
		if x.kind == kind {
			n, some = n+len(x.recs), true
		}
	}
	return n, some
}

// Remember notes for the next search how much this one has looked at. The index that was read last is the one that had what was
// found.
func (l *Lists) Remember(e *Engine, short bool) {
	for i, x := range l.stretches {
		if i > 0 && l.stretches[i-1].kind == x.kind {
			continue
		}
		n, used := 0, 0
		for _, y := range l.stretches[i:] {
			if y.kind == x.kind {
				n, used = n+len(y.recs), used+y.used
			}
		}
		whole := short || x.kind != l.stretches[len(l.stretches)-1].kind
		if !whole {
			n = used
		}
		e.Lengths.Set(x.kind, l.Family, n, whole)
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
