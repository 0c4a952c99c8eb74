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
// lie behind, and the plan remembers what it has seen: the number of lists follows the records that there are.

// A stretch is a part of an index that was listed: all records with from <= key < to.
type stretch struct {
	kind, from, to string
	recs           []store.Record
}

// listed returns the first records of an index in r, at most r.Limit, and the key at which to go on, r.To or above if no record
// is left.
func (s *Search) listed(t *txn.Txn, kind string, r store.Range) (recs []store.Record, next string, err error) {
	ahead := r
	if _, more := s.any(1); more {
		ahead.To = record.BlockRange(kind, everything(s.family)).To
	}
	for i := range s.stretches {
		x := &s.stretches[i]
		switch {
		case x.kind != kind || x.to <= r.From:
		case x.from <= r.From:
			recs, next = x.part(r)
			return recs, next, nil
		default:
			ahead.To = min(ahead.To, x.from)
		}
	}
	x := stretch{kind: kind, from: r.From, to: ahead.To}
	if x.recs, err = t.List(ahead); err != nil {
		return nil, "", err
	}
	if len(x.recs) == r.Limit {
		x.to = x.recs[len(x.recs)-1].Key + "\x00"
	}
	s.stretches = append(s.stretches, x)
	recs, next = x.part(r)
	return recs, next, nil
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
