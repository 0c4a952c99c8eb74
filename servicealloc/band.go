package servicealloc

import (
	"math/bits"

	"github.com/ipalloc/ipalloc/servicealloc/internal/bands"
)

// Band is the part of a range that an address or a port belongs to.
type Band string

const (
	// Closed members are never allocated: they are outside the range, reserved, or usable
	// only in ranges that drain. Closed members that are already held stay held until
	// they are released.
	Closed Band = "closed"
	// Static members are for callers that name them; the engine picks one only when the
	// dynamic band has none left.
	Static Band = "static"
	// The engine picks from the Dynamic members. A caller may also name one.
	Dynamic Band = "dynamic"
)

const (
	closed  = bands.Closed
	static  = bands.Static
	dynamic = bands.Dynamic
)

type (
	span = bands.Span
	zone = bands.Zone
)

// The sizes of the static bands follow Kubernetes (KEP-3070 for addresses, KEP-3668 for
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

// part appends sp to zones as a stretch of the dynamic band whose lowest part is static.
// The options set the size of that part, or it is the share of n that Kubernetes
// computes.
func (s *settings) part(zones []zone, sp span, n, per, most uint64) []zone {
	size := uint64(s.size)
	if s.size < 0 {
		size = staticShare(n, per, most)
	}
	zones = append(zones, zone{Span: sp, Band: dynamic})
	if size > 0 {
		zones = append(zones, zone{Span: span{Lo: sp.Lo, Hi: sp.Lo + min(size-1, sp.Hi-sp.Lo)}, Band: static})
	}
	return zones
}

// Stats counts the members of a range.
type Stats struct {
	Static, Dynamic BandStats
	Closed          uint64 // held outside both bands: reserved, in ranges that drain, or in none
}

// BandStats is the part of [Stats] for one band.
type BandStats struct{ Capacity, Used, Free uint64 }

// statsOf returns the counts of a space.
func statsOf(s *bands.Space) Stats {
	st, dy := &s.Bands[0], &s.Bands[1]
	return Stats{BandStats{st.Size, st.Used, st.Free()}, BandStats{dy.Size, dy.Used, dy.Free()}, s.Closed}
}

// add returns the sum of the counts, which saturate at 2^64-1.
func (s Stats) add(o Stats) Stats {
	sum := func(x, y uint64) uint64 {
		if sum, carry := bits.Add64(x, y, 0); carry == 0 {
			return sum
		}
		return ^uint64(0)
	}
	band := func(x, y BandStats) BandStats {
		return BandStats{sum(x.Capacity, y.Capacity), sum(x.Used, y.Used), sum(x.Free, y.Free)}
	}
	return Stats{band(s.Static, o.Static), band(s.Dynamic, o.Dynamic), sum(s.Closed, o.Closed)}
}
