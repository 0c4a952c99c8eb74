package ipset

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// addrRanges are addresses as ascending ranges that neither overlap nor adjoin, which is what [netipx.IPSet.Ranges] returns.
type addrRanges []netipx.IPRange

// from returns the ranges that end at or after a.
func (rs addrRanges) from(a netip.Addr) addrRanges {
	i, _ := slices.BinarySearchFunc(rs, a, func(r netipx.IPRange, a netip.Addr) int {
		if r.To().Less(a) {
			return -1
		}
		return 1
	})
	return rs[i:]
}

// overlap reports whether an address of p is in the ranges.
func (rs addrRanges) overlap(p netip.Prefix) bool {
	rs = rs.from(p.Addr())
	return len(rs) > 0 && !lastAddr(p).Less(rs[0].From())
}

// onlyOutside reports whether pool i has ranges of its own and no address of them is reserved.
func (c *catalog) onlyOutside(i int) bool {
	for _, r := range c.Pools[i].Ranges {
		if rest := addrRanges(c.Reserved).from(r.From()); len(rest) > 0 && !r.To().Less(rest[0].From()) {
			return false
		}
	}
	return len(c.Pools[i].Ranges) > 0
}

// cover reports whether all of p is in the ranges, and where the one that has it ends.
func (rs addrRanges) cover(p netip.Prefix) (end netip.Addr, ok bool) {
	rs = rs.from(lastAddr(p))
	if len(rs) == 0 || p.Addr().Less(rs[0].From()) {
		return netip.Addr{}, false
	}
	return rs[0].To(), true
}
