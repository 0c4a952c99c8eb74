package model

import (
	"net/netip"
	"slices"
)

// child returns child i of a pool, a prefix of the given length.
func child(pool netip.Prefix, bits int, i uint64) netip.Prefix {
	b := pool.Addr().AsSlice()
	for at := bits - 1; i > 0; at, i = at-1, i/2 {
		b[at/8] |= byte(i%2) << (7 - at%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, bits)
}

// addresses returns all addresses of a prefix, which must be small.
func addresses(p netip.Prefix) (all []netip.Addr) {
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		all = append(all, a)
	}
	return all
}

// holds reports whether one of the prefixes contains an address.
func holds(ps []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a) })
}

// overlapsAny reports whether p overlaps one of the prefixes.
func overlapsAny(ps []netip.Prefix, p netip.Prefix) bool {
	return slices.ContainsFunc(ps, p.Overlaps)
}

// comparePrefixes orders by address, IPv4 first, and larger prefixes first.
func comparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}
