// Package bands records which of up to 2^64 positions are taken, and which are static or
// dynamic. It knows neither addresses nor ports, and has no lock: its users give the
// positions a meaning.
//
// [Merge] overlays the zones of ranges and reservations. A [Space] has the resulting
// bands and a bitmap of the taken positions, and finds free positions. All calls take
// O(log n) in the positions, and a step for each part of a band where their comments say
// so. Only Merge, [New] and [Space.Cut] allocate.
package bands

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"
)

// An ID identifies a band.
type ID uint8

// ID values. A position in no zone is closed.
const (
	Closed ID = iota
	Static
	Dynamic
)

func (b ID) String() string { return [...]string{"closed", "static", "dynamic"}[b] }

// A Span is a closed stretch of positions.
type Span struct{ Lo, Hi uint64 }

// Has reports whether x is in the span.
func (s Span) Has(x uint64) bool { return s.Lo <= x && x <= s.Hi }

// A Zone is a span that one rule assigns to a band.
type Zone struct {
	Span
	Band ID
}

// Merge overlays zones and returns the resulting bands as ascending zones, where touching
// zones differ in their band. A position in any closed zone is closed. Otherwise it is
// static in any static zone, else dynamic. Positions in no zone are omitted. Cost: O(n
// log n).
func Merge(zones []Zone) []Zone {
	// An edge is the first position of a zone, or the position after its end.
	type edge struct {
		at   uint64
		band ID
		step int
	}
	var edges []edge
	for _, z := range zones {
		edges = append(edges, edge{z.Lo, z.Band, 1})
		if z.Hi != ^uint64(0) { // else nothing comes after it
			edges = append(edges, edge{z.Hi + 1, z.Band, -1})
		}
	}
	slices.SortFunc(edges, func(x, y edge) int { return cmp.Compare(x.at, y.at) })
	var out []Zone
	var open [3]int // how many zones of each band cover the position
	for i := 0; i < len(edges); {
		sp := Span{edges[i].at, ^uint64(0)}
		for ; i < len(edges) && edges[i].at == sp.Lo; i++ {
			open[edges[i].band] += edges[i].step
		}
		if i < len(edges) {
			sp.Hi = edges[i].at - 1
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
		if n := len(out); n > 0 && out[n-1].Band == b && out[n-1].Hi+1 == sp.Lo {
			out[n-1].Hi = sp.Hi
			continue
		}
		out = append(out, Zone{sp, b})
	}
	return out
}

// A Band is the static or the dynamic band of a space, with the number of its positions
// and of its taken positions. Only its space changes it. As an exception, a caller that
// takes or drops a position of a simple space inline adjusts Used.
type Band struct {
	parts      []part // ascending, disjoint
	Size, Used uint64
}

// A part is one span of a band.
type part struct {
	Span
	before uint64 // how many positions of the band lie below it
	used   uint64 // how many are taken; only counted in a band of several parts
}

// Parts returns the number of spans in the band.
func (b *Band) Parts() int { return len(b.parts) }

// add appends a span, which must be above all present ones.
func (b *Band) add(s Span) {
	b.parts = append(b.parts, part{Span: s, before: b.Size})
	b.Size += s.Hi - s.Lo + 1
}

// Free returns how many positions are free.
func (b *Band) Free() uint64 { return b.Size - b.Used }

// freeIn returns how many positions of a part are free.
func (b *Band) freeIn(p *part) uint64 {
	if len(b.parts) == 1 {
		return b.Free()
	}
	return p.Hi - p.Lo + 1 - p.used
}

// At returns the k-th position of the band, which must have more than k positions.
func (b *Band) At(k uint64) uint64 {
	i := 0
	if len(b.parts) > 1 {
		i = sort.Search(len(b.parts), func(i int) bool { return b.parts[i].before > k }) - 1
	}
	return b.parts[i].Lo + (k - b.parts[i].before)
}

// from returns the first part of the band that ends at x or above, nil if there is none.
func (b *Band) from(x uint64) *part {
	i := sort.Search(len(b.parts), func(i int) bool { return b.parts[i].Hi >= x })
	if i == len(b.parts) {
		return nil
	}
	return &b.parts[i]
}

// holds reports whether x is in the band.
func (b *Band) holds(x uint64) bool {
	p := b.from(x)
	return p != nil && p.Lo <= x
}

// Scale maps a uniform u to [0, n). It multiplies and shifts (Lemire, "Fast Random
// Integer Generation in an Interval", 2019), without the rejection step. Each result has
// floor or ceil of 2^64/n preimages, so no probability is off by more than 2^-64.
func Scale(u, n uint64) uint64 {
	Hi, _ := bits.Mul64(u, n)
	return Hi
}
