package servicealloc

import (
	"cmp"
	"slices"
	"sort"
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

func (s span) has(x uint64) bool { return s.lo <= x && x <= s.hi }

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

// A band of a space: its parts, how many positions they have and how many are taken.
type band struct {
	parts      []part // ascending, disjoint
	size, used uint64
}

// A part is one span of a band.
type part struct {
	span
	before uint64 // how many positions of the band lie below it
	used   uint64 // how many are taken; only counted in a band of several parts
}

// add appends a span above the ones that are there.
func (b *band) add(s span) {
	b.parts = append(b.parts, part{span: s, before: b.size})
	b.size += s.hi - s.lo + 1
}

func (b *band) free() uint64 { return b.size - b.used }

// freeIn returns how many positions of a part are free.
func (b *band) freeIn(p *part) uint64 {
	if len(b.parts) == 1 {
		return b.free()
	}
	return p.hi - p.lo + 1 - p.used
}

// at returns the k-th position of the band, which has more than k.
func (b *band) at(k uint64) uint64 {
	i := 0
	if len(b.parts) > 1 {
		i = sort.Search(len(b.parts), func(i int) bool { return b.parts[i].before > k }) - 1
	}
	return b.parts[i].lo + (k - b.parts[i].before)
}

// from returns the first part of the band that ends at x or above, nil if there is none.
func (b *band) from(x uint64) *part {
	i := sort.Search(len(b.parts), func(i int) bool { return b.parts[i].hi >= x })
	if i == len(b.parts) {
		return nil
	}
	return &b.parts[i]
}

// holds reports whether x is in the band.
func (b *band) holds(x uint64) bool {
	p := b.from(x)
	return p != nil && p.lo <= x
}
