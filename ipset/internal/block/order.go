package block

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// PeekOrder appends the next k free ordinals in an order. They are in none of the avoided spans, which ascend. A random order depends
// on seed and the block. Nothing is taken. It costs O(k + spans) for FIFO, O(spans log spans + k) for Lowest, and O(k * spans) for
// Random. Here spans counts the spans of the free queue and the avoided spans: at most some 32 in a block of 64 addresses.
func (b *Block) PeekOrder(o alloc.Order, seed uint64, dst []uint64, k int, avoid []Span) []uint64 {
	if o == alloc.FIFO {
		return b.Peek(dst, k, avoid)
	}
	var room [32]Span
	spans := b.freeSpans(room[:0], avoid)
	if o == alloc.Lowest {
		for _, s := range spans {
			for x := s.Lo; len(dst) < b.most(k); x++ {
				if dst = append(dst, x); x == s.Hi {
					break
				}
			}
		}
		return dst
	}
	for n := range b.most(k) {
		i, x, ok := draw(spans, b.chance(seed, uint64(n)))
		if !ok {
			break
		}
		dst = append(dst, x)
		switch s := &spans[i]; {
		case s.Lo == s.Hi:
			spans = slices.Delete(spans, i, i+1)
		case x == s.Lo:
			s.Lo++
		case x == s.Hi:
			s.Hi--
		default:
			spans = slices.Insert(spans, i+1, Span{x + 1, s.Hi})
			spans[i].Hi = x - 1
		}
	}
	return dst
}

// PeekRun appends the lowest n free ordinals in a row that are in none of the avoided spans, which ascend. With aligned, n is a power of
// two, and the row begins at a multiple of n, so the row is a prefix. It appends none if there are not so many in a row. Nothing is
// taken. O(spans log spans + n).
func (b *Block) PeekRun(dst []uint64, n int, aligned bool, avoid []Span) []uint64 {
	if b.most(n) < n || n < 1 {
		return dst
	}
	var room [32]Span
	for _, s := range b.freeSpans(room[:0], avoid) {
		lo := s.Lo
		if rest := lo & (uint64(n) - 1); aligned && rest != 0 {
			if lo += uint64(n) - rest; lo < s.Lo {
				break // beyond the last ordinal there is
			}
		}
		if lo <= s.Hi && s.Hi-lo >= uint64(n)-1 {
			for x := range uint64(n) {
				dst = append(dst, lo+x)
			}
			break
		}
	}
	return dst
}

// freeSpans appends the free ordinals that are in none of the avoided spans, as ascending spans that do not adjoin.
func (b *Block) freeSpans(dst, avoid []Span) []Span {
	all := append(dst, b.FreeSpans()...)
	slices.SortFunc(all, func(s, t Span) int { return cmp.Compare(s.Lo, t.Lo) })
	n := 0
	for _, s := range all {
		if n > 0 && all[n-1].adjoins(s.Lo) {
			all[n-1].Hi = s.Hi
			continue
		}
		all[n] = s
		n++
	}
	if all = all[:n]; len(avoid) == 0 {
		return all
	}
	var out []Span
	for _, s := range all {
		for lo := s.Lo; ; {
			if end, in := Within(avoid, lo); in {
				if end >= s.Hi {
					break
				}
				lo = end + 1
			}
			hi := s.Hi
			if i, _ := slices.BinarySearchFunc(avoid, lo, func(a Span, lo uint64) int { return cmp.Compare(a.Lo, lo) }); i < len(avoid) && avoid[i].Lo <= hi {
				hi = avoid[i].Lo - 1
			}
			if out = append(out, Span{lo, hi}); hi == s.Hi {
				break
			}
			lo = hi + 1
		}
	}
	return out
}

// chance returns the number that the n-th draw of a call rests on: a hash of the seed, the block and its sequence number.
func (b *Block) chance(seed, n uint64) uint64 {
	base := b.prefix.Addr().As16()
	for _, v := range [...]uint64{binary.BigEndian.Uint64(base[:8]), binary.BigEndian.Uint64(base[8:]), b.seq, n} {
		seed = mix(seed ^ v)
	}
	return seed
}

// mix is the finaliser of SplitMix64, of which every bit depends on all bits of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// draw returns the ordinal of the spans that a random number selects, and its span; ok is false if there is none.
func draw(spans []Span, chance uint64) (i int, x uint64, ok bool) {
	if len(spans) == 0 {
		return 0, 0, false
	}
	all := uint64(0)
	for _, s := range spans {
		all += s.Hi - s.Lo + 1
	}
	at := chance
	if all != 0 { // 0 is 2^64
		at, _ = bits.Mul64(chance, all)
	}
	for i, s := range spans {
		if size := s.Hi - s.Lo; at <= size {
			return i, s.Lo + at, true
		}
		at -= s.Hi - s.Lo + 1
	}
	return 0, 0, false
}
