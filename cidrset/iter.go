package cidrset

import (
	"iter"
	"math/bits"
	"net/netip"

	"github.com/ipalloc/ipalloc/bitmap"
)

// All returns the taken children, ascending. It holds the lock only between steps, to
// look up the next children (up to 64). The body of the loop may therefore call any
// method of the set. A child changed during the loop may be reported in either state; all
// others are exact. It does not allocate per child.
func (s *Set) All() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) { s.each(s.taken, true, yield) }
}

// FreeChildren is like [Set.All], but returns the free children. It omits cooling
// children. A wide pool has up to 2^64 free children.
func (s *Set) FreeChildren() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) { s.each(&s.busy, false, yield) }
}

// each yields the children whose bit in b has the given state.
func (s *Set) each(b *bitmap.Bitmap, state bool, yield func(netip.Prefix) bool) {
	for x, last := uint64(0), s.codec.Last(); ; {
		base, word, ok := s.word(b, state, x)
		if !ok {
			return
		}
		for ; word != 0; word &= word - 1 {
			if !yield(s.codec.Prefix(base + uint64(bits.TrailingZeros64(word)))) {
				return
			}
		}
		if base|63 >= last {
			return
		}
		x = base + 64
	}
}

// word returns the first word of 64 children at or after x, which starts a word, that has
// a child in the given state. base is the first child of that word; each child in the
// state has its bit set.
func (s *Set) word(b *bitmap.Bitmap, state bool, x uint64) (base, word uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok = next(b, state, x); !ok {
		return
	}
	if word = b.Word(x); !state {
		word = ^word
	}
	if last := s.codec.Last(); last-x&^63 < 63 { // a bitmap has the bits beyond last set
		word &= 1<<(last-x&^63+1) - 1
	}
	return x &^ 63, word, true
}

// UsedPrefixes returns the taken space as the fewest possible prefixes, ascending.
// Neighbours are joined, so the result is not the list of allocated prefixes. It holds
// the lock like [Set.All], for one run of children at a time.
func (s *Set) UsedPrefixes() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) { s.prefixes(s.taken, true, yield) }
}

// FreePrefixes is like [Set.UsedPrefixes], but returns the free space.
func (s *Set) FreePrefixes() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) { s.prefixes(&s.busy, false, yield) }
}

func (s *Set) prefixes(b *bitmap.Bitmap, state bool, yield func(netip.Prefix) bool) {
	for x, last := uint64(0), s.codec.Last(); ; {
		lo, hi, ok := s.run(b, state, x)
		if !ok {
			return
		}
		for p := range s.codec.Cover(lo, hi) {
			if !yield(p) {
				return
			}
		}
		if hi == last {
			return
		}
		x = hi + 1
	}
}

// run returns the next run of children in the given state at or after x.
func (s *Set) run(b *bitmap.Bitmap, state bool, x uint64) (lo, hi uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lo, ok = next(b, state, x); !ok {
		return
	}
	if end, more := next(b, !state, lo); more {
		return lo, end - 1, true
	}
	return lo, s.codec.Last(), true
}

func next(b *bitmap.Bitmap, state bool, x uint64) (uint64, bool) {
	if state {
		return b.NextSet(x)
	}
	return b.NextClear(x)
}
