package servicealloc

import (
	"cmp"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Band says which part of a range an address or a port belongs to.
type Band uint8

const (
	// Closed members are handed out to nobody: they are reserved, or usable only in
	// ranges that drain. What is held there stays held until it is released.
	Closed Band = iota
	// Static members are for callers that name them; the engine picks one only when
	// the dynamic band has none left.
	Static
	// Dynamic members are what the engine picks from. A caller may name one too.
	Dynamic
)

// String returns "closed", "static" or "dynamic".
func (b Band) String() string {
	switch b {
	case Static:
		return "static"
	case Dynamic:
		return "dynamic"
	}
	return "closed"
}

// The sizes of the static bands are Kubernetes' (KEP-3070 for addresses, KEP-3668 for
// ports): a share of the range, at least a handful, at most what fits in a page.
const (
	tooSmallToSplit = 16 // up to here a band of 16 would leave nothing

	minStatic       = 16
	maxStaticAddrs  = 256
	addrsPerStatic  = 16
	maxStaticPorts  = 128
	portsPerStatic  = 32
	bitsBeyondShare = 12 // 2^12 addresses / addrsPerStatic is maxStaticAddrs already
)

// staticAddrs is the default size of the static band of a prefix with 2^hostBits
// addresses, the ones that are never handed out included. It is smaller than what is
// usable for every length, so the dynamic band is never empty unless the range is.
func staticAddrs(hostBits int) uint64 {
	if hostBits >= bitsBeyondShare {
		return maxStaticAddrs
	}
	return staticShare(1<<hostBits, addrsPerStatic, maxStaticAddrs)
}

// staticPorts is the default size of the static band of a range of n ports.
func staticPorts(n uint64) uint64 { return staticShare(n, portsPerStatic, maxStaticPorts) }

func staticShare(n, per, most uint64) uint64 {
	if n <= tooSmallToSplit {
		return 0
	}
	return min(max(minStatic, n/per), most)
}

// A zone is a closed stretch that one rule puts into a band.
type zone struct {
	lo, hi addr.U128
	band   Band
}

// merge lays zones over each other and returns the bands that result as ascending
// zones that do not touch unless their bands differ: a member in any closed zone is
// closed, else it is static in any static zone, else dynamic. What no zone covers is
// left out. Cost: O(n log n).
func merge(zones []zone) []zone {
	var one = addr.U128{Lo: 1}
	// An edge is where a zone begins, or the place after its end.
	type edge struct {
		at   addr.U128
		band Band
		step int
	}
	var edges []edge
	for _, z := range zones {
		edges = append(edges, edge{z.lo, z.band, 1})
		if after := z.hi.Add(one); !after.IsZero() { // else nothing comes after it
			edges = append(edges, edge{after, z.band, -1})
		}
	}
	slices.SortFunc(edges, func(x, y edge) int { return x.at.Cmp(y.at) })

	var out []zone
	var open [3]int // how many zones of each band cover the place
	for i := 0; i < len(edges); {
		lo := edges[i].at
		for ; i < len(edges) && edges[i].at == lo; i++ {
			open[edges[i].band] += edges[i].step
		}
		hi := addr.Low(128)
		if i < len(edges) {
			hi = edges[i].at.Sub(one)
		}
		b := Dynamic
		switch {
		case open[Closed] > 0:
			continue
		case open[Static] > 0:
			b = Static
		case open[Dynamic] == 0:
			continue
		}
		if n := len(out); n > 0 && out[n-1].band == b && out[n-1].hi.Add(one) == lo {
			out[n-1].hi = hi
			continue
		}
		out = append(out, zone{lo, hi, b})
	}
	return out
}

// bandIn returns the band of x in merged zones.
func bandIn(zones []zone, x addr.U128) Band {
	i, _ := slices.BinarySearchFunc(zones, x, func(z zone, x addr.U128) int { return z.hi.Cmp(x) })
	if i < len(zones) && zones[i].lo.Cmp(x) <= 0 {
		return zones[i].band
	}
	return Closed
}

// A span is a closed stretch of positions of a space.
type span struct{ lo, hi uint64 }

// A band of a space: its positions, how many they are and how many are taken. The
// counts need 65 bits, because a window of a large range has 2^64 positions. Nearly
// every band is one span, so that one stands in the band itself.
type band struct {
	span
	more       []spanAfter // ascending, disjoint, above the first one
	size, used addr.U128
}

// A spanAfter is a span that is not the first one of its band.
type spanAfter struct {
	span
	before uint64 // how many positions of the band lie below it
}

// add appends a span above the ones that are there.
func (b *band) add(s span) {
	if b.size.IsZero() {
		b.span = s
	} else {
		b.more = append(b.more, spanAfter{s, b.size.Lo})
	}
	b.size = b.size.Add(addr.U128{Lo: s.hi - s.lo}).Add(addr.U128{Lo: 1})
}

func (b *band) full() bool { return b.used == b.size }

func (b *band) free() addr.U128 { return b.size.Sub(b.used) }

// at returns the k-th position of the band, which has more than k.
func (b *band) at(k uint64) uint64 {
	if k <= b.hi-b.lo {
		return b.lo + k
	}
	i, found := slices.BinarySearchFunc(b.more, k, func(s spanAfter, k uint64) int { return cmp.Compare(s.before, k) })
	if !found {
		i--
	}
	return b.more[i].lo + (k - b.more[i].before)
}

// from returns the first span of the band, which is not empty, that ends at x or above.
func (b *band) from(x uint64) (span, bool) {
	if x <= b.hi {
		return b.span, true
	}
	i, _ := slices.BinarySearchFunc(b.more, x, func(s spanAfter, x uint64) int { return cmp.Compare(s.hi, x) })
	if i == len(b.more) {
		return span{}, false
	}
	return b.more[i].span, true
}

// holds reports whether x is in the band.
func (b *band) holds(x uint64) bool {
	if b.size.IsZero() {
		return false
	}
	s, ok := b.from(x)
	return ok && s.lo <= x
}

// spans returns all spans, ascending.
func (b *band) spans() (out []span) {
	if b.size.IsZero() {
		return nil
	}
	out = append(out, b.span)
	for _, s := range b.more {
		out = append(out, s.span)
	}
	return out
}
