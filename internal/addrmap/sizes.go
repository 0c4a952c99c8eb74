package addrmap

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Fit says where aligned prefixes of one length are free.
type Fit struct {
	Bits int
	// Count is how many of them are free, no two of which overlap.
	Count addr.U128
	// First is the lowest one outside of every block, or in a block if there is none outside.
	First   netip.Prefix
	InBlock bool
	// Strip is the pool in equal parts, from its first address on, and of each the share in which such
	// a prefix fits.
	Strip []float64
}

// Sizes returns a Fit for every length from that of the pool to that of an address, the pool in 2^order
// parts. An address is free here if it is not held, not cooling and not reserved.
func (s *Space) Sizes(order int) []Fit {
	order = min(order, s.width()-s.Pool.Bits())
	fits := make([]Fit, s.width()-s.Pool.Bits()+1)
	for i := range fits {
		fits[i] = Fit{Bits: s.Pool.Bits() + i, Strip: make([]float64, 1<<order)}
	}
	base, _ := Of(s.Pool)
	partOrder := s.width() - s.Pool.Bits() - order
	for lo, hi := range s.gaps(false) {
		for p := range s.prefixes(lo, hi) {
			at, _ := Of(p)
			f := &fits[p.Bits()-s.Pool.Bits()]
			f.Count = f.Count.Add(one)
			f.cover(int(at.Sub(base).Shr(uint(partOrder)).Lo), partOrder-(s.width()-p.Bits()))
			s.first(fits, p, true)
		}
	}
	for lo, hi := range s.gaps(true) {
		for p := range s.prefixes(lo, hi) {
			s.first(fits, p, false)
		}
	}
	for i := 1; i < len(fits); i++ {
		fits[i].Count = fits[i].Count.Add(fits[i-1].Count.Shl(1))
		for k, share := range fits[i-1].Strip {
			fits[i].Strip[k] += share
		}
	}
	return fits
}

// cover adds a free prefix that begins in part i and is 2^-order of a part.
func (f *Fit) cover(i, order int) {
	if order >= 0 {
		share := 1.0
		for range order {
			share /= 2
		}
		f.Strip[i] += share
		return
	}
	for k := range 1 << -order {
		f.Strip[i+k] = 1
	}
}

// first notes a free prefix for its own length and all longer ones.
func (s *Space) first(fits []Fit, p netip.Prefix, inBlock bool) {
	for i := p.Bits() - s.Pool.Bits(); i < len(fits); i++ {
		f := &fits[i]
		if f.First.IsValid() && f.InBlock == inBlock {
			return // lower ones came before, and so they did for all longer ones
		}
		f.First, f.InBlock = netip.PrefixFrom(p.Addr(), f.Bits), inBlock
	}
}
