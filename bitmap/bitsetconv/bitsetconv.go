// Package bitsetconv converts between package bitmap and the flat bit sets of
// github.com/bits-and-blooms/bitset. It is a separate package so that importing an
// allocator does not link bitset.
package bitsetconv

import (
	"fmt"

	"github.com/bits-and-blooms/bitset"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bitmap"
)

// maxLen is the largest n that To converts: a flat array of 1 GiB.
const maxLen = 1 << 33

// To returns the ordinals of b as a bit set of length n.
//
// To fails with [ipalloc.ErrLimit] if n is above 2^33 (an array of more than 1 GiB) or
// does not fit an int. It allocates n/8 bytes. O(n/64).
func To(b *bitmap.Bitmap) (*bitset.BitSet, error) {
	n := b.Len()
	if n > maxLen || uint64(int(n)) != n {
		return nil, &ipalloc.Error{
			Package: "bitsetconv", Op: "convert", Field: "n",
			Reason: fmt.Sprintf("%d ordinals are too many for a flat bit set", n), Err: ipalloc.ErrLimit,
		}
	}
	words := make([]uint64, (n+63)/64)
	for lo, hi := range b.Runs() {
		for c := lo / 64; c <= hi/64; c++ {
			w := ^uint64(0)
			if c == lo/64 {
				w &= ^uint64(0) << (lo % 64)
			}
			if c == hi/64 {
				w &= ^uint64(0) >> (63 - hi%64)
			}
			words[c] |= w
		}
	}
	return bitset.FromWithLength(uint(n), words), nil
}

// From returns a set over [0, s.Len()) with the ordinals of s. It ignores bits that s
// holds beyond its length. O(n/64) plus O(log64 n) for each run.
func From(s *bitset.BitSet) *bitmap.Bitmap {
	n := s.Len()
	b := bitmap.New(uint64(n))
	for x := uint(0); x < n; {
		lo, ok := s.NextSet(x)
		if !ok || lo >= n {
			break
		}
		end, ok := s.NextClear(lo)
		if !ok || end > n {
			end = n
		}
		b.SetRange(uint64(lo), uint64(end)-1)
		x = end
	}
	return b
}
