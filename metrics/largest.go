package metrics

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset"
)

// largestFree returns the length of the largest prefix of a pool in which there is no block and no nested pool, -1 if there is none.
// Both are in address order. O(blocks): a gap is only asked whether it has a larger prefix than the gaps before it.
func largestFree(u *ipset.Utilization) int {
	if !u.Prefix.IsValid() {
		return -1 // blocks outside every pool
	}
	bits := u.Prefix.Addr().BitLen() + 1 // no prefix found
	from, end := bounds(u.Prefix)
	gap := func(last addr.U128) {
		for bits > 0 && holds(from, last, uint(u.Prefix.Addr().BitLen()+1-bits)) {
			bits--
		}
	}
	found := func() int {
		if bits > u.Prefix.Addr().BitLen() {
			return -1
		}
		return bits
	}
	for blocks, nested := u.Blocks, u.Nested; len(blocks)+len(nested) > 0; {
		var p netip.Prefix
		if len(nested) == 0 || len(blocks) > 0 && blocks[0].Prefix.Addr().Less(nested[0].Addr()) {
			p, blocks = blocks[0].Prefix, blocks[1:]
		} else {
			p, nested = nested[0], nested[1:]
		}
		first, last := bounds(p)
		if last.Cmp(from) < 0 {
			continue // in a block of a former size
		}
		if from.Cmp(first) < 0 {
			gap(first.Sub(addr.U128{Lo: 1}))
		}
		if last.Cmp(end) >= 0 {
			return found()
		}
		from = last.Add(addr.U128{Lo: 1})
	}
	gap(end)
	return found()
}

// bounds returns the first and the last address of a prefix.
func bounds(p netip.Prefix) (first, last addr.U128) {
	first = addr.FromAddr(p.Addr())
	return first, first.Or(addr.Low(uint(p.Addr().BitLen() - p.Bits())))
}

// holds reports whether there are 2^size addresses from first to last that begin at a multiple of their number.
func holds(first, last addr.U128, size uint) bool {
	mask := addr.Low(size)
	up := first.Add(mask)
	if up.Cmp(first) < 0 {
		return false // beyond the last address there is
	}
	start := up.Sub(up.And(mask))
	return start.Or(mask).Cmp(last) <= 0
}
