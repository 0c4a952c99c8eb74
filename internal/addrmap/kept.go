package addrmap

import (
	"net/netip"

	"go4.org/netipx"
)

// KeptBack returns the parts of a pool that automatic assignment never takes, in address order. These are addresses outside its
// ranges if it has any, the ends of a subnet, reservations, and nested pools. Lists, maps and metrics use it to find free
// addresses outside blocks.
func KeptBack(pool netip.Prefix, ranges []netipx.IPRange, subnet bool, reserved *netipx.IPSet, inner []netip.Prefix) []netipx.IPRange {
	var b netipx.IPSetBuilder
	if len(ranges) > 0 {
		b.AddPrefix(pool)
		for _, r := range ranges {
			b.RemoveRange(r)
		}
	}
	if subnet && pool.Addr().BitLen()-pool.Bits() > 1 {
		if b.Add(pool.Addr()); pool.Addr().Is4() {
			b.Add(netipx.PrefixLastIP(pool))
		}
	}
	for _, p := range inner {
		b.AddPrefix(p)
	}
	b.AddSet(reserved)
	set, err := b.IPSet()
	if err != nil {
		return nil // every range is one that the engine has accepted
	}
	var in netipx.IPSetBuilder
	in.AddPrefix(pool)
	in.Intersect(set)
	if set, err = in.IPSet(); err != nil {
		return nil
	}
	return set.Ranges()
}
