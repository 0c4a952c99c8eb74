package servicealloc

import (
	"math/bits"
	"math/rand/v2"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// A picker holds the random value that the next allocation will use. It is drawn
// ahead, so that a dry run knows what the real call is going to answer; an allocation
// that succeeds replaces it, one that fails leaves it.
//
// Lowest first is the same walk from the value 0, which nothing replaces.
type picker struct {
	next uint64
	pcg  *rand.PCG   // src, if it is one: a direct call costs less
	src  rand.Source // nil: lowest first
}

func newPicker(src rand.Source) picker {
	pcg, _ := src.(*rand.PCG)
	p := picker{pcg: pcg, src: src}
	p.draw()
	return p
}

func (p *picker) draw() {
	switch {
	case p.pcg != nil:
		p.next = p.pcg.Uint64()
	case p.src != nil:
		p.next = p.src.Uint64()
	}
}

// scale maps a uniform u to [0, n), n at most 2^64. Multiply-and-shift (Lemire, "Fast
// Random Integer Generation in an Interval", 2019) without its rejection step: each
// result has floor or ceil of 2^64/n preimages, so no probability is off by more than
// 2^-64, where a modulo would favour the whole low part of the band.
func scale(u uint64, n addr.U128) uint64 {
	if n.Hi != 0 {
		return u
	}
	hi, _ := bits.Mul64(u, n.Lo)
	return hi
}

// scaleWide is scale for any n: u*n / 2^64.
func scaleWide(u uint64, n addr.U128) addr.U128 {
	hi, lo := bits.Mul64(u, n.Hi)
	low, _ := bits.Mul64(u, n.Lo)
	sum, carry := bits.Add64(lo, low, 0)
	return addr.U128{Hi: hi + carry, Lo: sum}
}
