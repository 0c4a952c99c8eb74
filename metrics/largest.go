package metrics

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// largestFree returns the length of the largest prefix of a pool in which there is no block and nothing that is kept back, as
// addrmap.KeptBack says, -1 if there is none. O(n log n) in the blocks; a gap is only asked whether it has a larger prefix than the gaps
// before it.
func largestFree(u *alloc.Utilization, kept []netipx.IPRange) int {
	if !u.Prefix.IsValid() {
		return -1 // blocks outside every pool
	}
	type span struct{ first, last addr.U128 }
	taken := make([]span, 0, len(u.Blocks)+len(u.Nested)+len(kept))
	add := func(first, last addr.U128) { taken = append(taken, span{first, last}) }
	for i := range u.Blocks {
		add(bounds(u.Blocks[i].Prefix))
	}
	for _, p := range u.Nested {
		add(bounds(p))
	}
	for _, r := range kept {
		add(addr.FromAddr(r.From()), addr.FromAddr(r.To()))
	}
	slices.SortFunc(taken, func(x, y span) int { return x.first.Cmp(y.first) })
	width := u.Prefix.Addr().BitLen()
	bits := width + 1 // no prefix found
	gap := func(from, last addr.U128) {
		for bits > 0 && holds(from, last, uint(width+1-bits)) {
			bits--
		}
	}
	from, end := bounds(u.Prefix)
	full := false
	for _, s := range taken {
		if s.last.Cmp(from) < 0 {
			continue // in what was passed
		}
		if from.Cmp(s.first) < 0 {
			gap(from, s.first.Sub(addr.U128{Lo: 1}))
		}
		if full = s.last.Cmp(end) >= 0; full {
			break
		}
		from = s.last.Add(addr.U128{Lo: 1})
	}
	if !full {
		gap(from, end)
	}
	if bits > width {
		return -1
	}
	return bits
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
