package servicealloc

import (
	"cmp"
	"slices"
)

// Band says which part of a range an address or a port belongs to.
type Band string

const (
	// Closed members are never handed out: they are outside the range, reserved, or
	// usable only in ranges that drain. What is held there stays held until it is
	// released.
	Closed Band = "closed"
	// Static members are for callers that name them; the engine picks one only when
	// the dynamic band has none left.
	Static Band = "static"
	// Dynamic members are what the engine picks from. A caller may name one too.
	Dynamic Band = "dynamic"
)

// bandID is how a space numbers the bands.
type bandID uint8

const (
	closed bandID = iota
	static
	dynamic
)

func (b bandID) name() Band { return [...]Band{Closed, Static, Dynamic}[b] }

// The sizes of the static bands are Kubernetes' (KEP-3070 for addresses, KEP-3668 for
// ports).
const (
	tooSmallToSplit = 16 // a band of 16 would leave nothing
	minStatic       = 16
	maxStaticAddrs  = 256
	addrsPerStatic  = 16
	maxStaticPorts  = 128
	portsPerStatic  = 32
)

// staticShare returns the size of the static band of n addresses or ports.
func staticShare(n, per, most uint64) uint64 {
	if n <= tooSmallToSplit {
		return 0
	}
	return min(max(minStatic, n/per), most)
}

// part appends sp to zones as a stretch of the dynamic band of which the lowest part is
// static: the size that the options say, or the share of n that Kubernetes computes.
func (s *settings) part(zones []zone, sp span, n, per, most uint64) []zone {
	size := uint64(s.size)
	if s.size < 0 {
		size = staticShare(n, per, most)
	}
	zones = append(zones, zone{sp, dynamic})
	if size > 0 {
		zones = append(zones, zone{span{sp.lo, sp.lo + min(size-1, sp.hi-sp.lo)}, static})
	}
	return zones
}

// A span is a closed stretch of positions of a space.
type span struct{ lo, hi uint64 }

// A zone is a span that one rule puts into a band.
type zone struct {
	span
	band bandID
}

// merge lays zones over each other and returns the bands that result as ascending
// zones that do not touch unless their bands differ: a position in any closed zone is
// closed, else it is static in any static zone, else dynamic. What no zone covers is
// left out. Cost: O(n log n).
func merge(zones []zone) []zone {
	// An edge is where a zone begins, or the position after its end.
	type edge struct {
		at   uint64
		band bandID
		step int
	}
	var edges []edge
	for _, z := range zones {
		edges = append(edges, edge{z.lo, z.band, 1})
		if z.hi != ^uint64(0) { // else nothing comes after it
			edges = append(edges, edge{z.hi + 1, z.band, -1})
		}
	}
	slices.SortFunc(edges, func(x, y edge) int { return cmp.Compare(x.at, y.at) })
	var out []zone
	var open [3]int // how many zones of each band cover the position
	for i := 0; i < len(edges); {
		sp := span{edges[i].at, ^uint64(0)}
		for ; i < len(edges) && edges[i].at == sp.lo; i++ {
			open[edges[i].band] += edges[i].step
		}
		if i < len(edges) {
			sp.hi = edges[i].at - 1
		}
		b := dynamic
		switch {
		case open[closed] > 0:
			continue
		case open[static] > 0:
			b = static
		case open[dynamic] == 0:
			continue
		}
		if n := len(out); n > 0 && out[n-1].band == b && out[n-1].hi+1 == sp.lo {
			out[n-1].hi = sp.hi
			continue
		}
		out = append(out, zone{sp, b})
	}
	return out
}

// A band of a space: its positions, how many they are and how many are taken. Nearly
// every band is one span, so that one stands in the band itself.
type band struct {
	span
	more       []spanAfter // ascending, disjoint, above the first one
	size, used uint64
}

// A spanAfter is a span that is not the first one of its band.
type spanAfter struct {
	span
	before uint64 // how many positions of the band lie below it
}

// add appends a span above the ones that are there.
func (b *band) add(s span) {
	if b.size == 0 {
		b.span = s
	} else {
		b.more = append(b.more, spanAfter{s, b.size})
	}
	b.size += s.hi - s.lo + 1
}

func (b *band) free() uint64 { return b.size - b.used }

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
	if b.size == 0 {
		return false
	}
	s, ok := b.from(x)
	return ok && s.lo <= x
}

// spans returns all spans, ascending.
func (b *band) spans() (out []span) {
	if b.size == 0 {
		return nil
	}
	out = append(out, b.span)
	for _, s := range b.more {
		out = append(out, s.span)
	}
	return out
}
