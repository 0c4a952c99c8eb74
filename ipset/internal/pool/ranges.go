package pool

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// Reservations, the ranges of a pool and the pools within it are all sets of addresses that an assignment must avoid. One form
// serves them all: sorted ranges, searched in O(log n), because a prefix may hold 2^64 addresses.

// Cut returns the parts of the ranges that lie in p.
func Cut(rs []netipx.IPRange, p netip.Prefix) []netipx.IPRange {
	var out []netipx.IPRange
	last := record.LastAddr(p)
	for _, r := range rs {
		from, to := r.From(), r.To()
		if from.Less(p.Addr()) {
			from = p.Addr()
		}
		if last.Less(to) {
			to = last
		}
		if !to.Less(from) {
			out = append(out, netipx.IPRangeFrom(from, to))
		}
	}
	return out
}

// AddrRanges are addresses as ascending ranges that neither overlap nor adjoin, as [netipx.IPSet.Ranges] returns them.
type AddrRanges []netipx.IPRange

// From returns the ranges that end at or after a.
func (rs AddrRanges) From(a netip.Addr) AddrRanges {
	i, _ := slices.BinarySearchFunc(rs, a, func(r netipx.IPRange, a netip.Addr) int {
		if r.To().Less(a) {
			return -1
		}
		return 1
	})
	return rs[i:]
}

// within returns the addresses of the ranges that lie in p, nil for none, as a part of the ranges where the ends of p cut none of
// them. The first range ends in p or behind it.
func (rs AddrRanges) within(p netip.Prefix) AddrRanges {
	last, n := record.LastAddr(p), 0
	for n < len(rs) && !last.Less(rs[n].From()) {
		n++
	}
	switch {
	case n == 0:
		return nil
	case rs[0].From().Less(p.Addr()) || last.Less(rs[n-1].To()):
		return Cut(rs[:n], p)
	}
	return rs[:n:n]
}

// Overlap reports whether an address of p is in the ranges.
func (rs AddrRanges) Overlap(p netip.Prefix) bool {
	rs = rs.From(p.Addr())
	return len(rs) > 0 && !record.LastAddr(p).Less(rs[0].From())
}

// OnlyOutside reports whether the ranges of pool i, or its being a subnet, keep addresses from automatic assignment, and no
// reservation does.
func (c *Catalog) OnlyOutside(i int) bool {
	p := &c.Pools[i]
	free, err := p.FreeRanges()
	for _, r := range free {
		if c.back.meet(r) {
			return false
		}
	}
	return err == nil && (len(p.Ranges) > 0 || p.Subnet)
}

// HasAll reports whether all of some ranges are in the ranges.
func (rs AddrRanges) HasAll(of AddrRanges) bool {
	return !slices.ContainsFunc(of, func(r netipx.IPRange) bool {
		at := rs.From(r.To())
		return len(at) == 0 || r.From().Less(at[0].From())
	})
}

// Cover reports whether a range has all of p, and returns the end of that range.
func (rs AddrRanges) Cover(p netip.Prefix) (end netip.Addr, ok bool) {
	rs = rs.From(record.LastAddr(p))
	if len(rs) == 0 || p.Addr().Less(rs[0].From()) {
		return netip.Addr{}, false
	}
	return rs[0].To(), true
}
