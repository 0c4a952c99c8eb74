package cidrset

import (
	"iter"
	"math/bits"
	"net/netip"
)

// All returns the taken children, ascending. The lock is held only between steps,
// while the next up to 64 children are looked up, so the body of the loop may call
// any method. A child that changes while the loop runs is reported as it was or as
// it is; every other one is reported right. It does not allocate for a child.
func (s *Set) All() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) { s.each(true, yield) }
}

// FreeChildren returns the free children, ascending, as [Set.All] does the taken ones.
// Cooling children are neither. A wide pool has very many: 2^64 at most.
func (s *Set) FreeChildren() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) { s.each(false, yield) }
}

func (s *Set) each(taken bool, yield func(netip.Prefix) bool) {
	for x, last := uint64(0), s.codec.Last(); ; {
		base, word, ok := s.word(x, taken)
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

// word returns a word, at or after the one that x starts, before which no child from
// x on is in the given state, and as bits the children of it that are. There may be
// none: a search skips one run of cooling children and no more, so that the lock is
// not held for long.
func (s *Set) word(x uint64, taken bool) (base, word uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !taken {
		if x, ok = s.busy.NextClear(x); ok {
			word = ^s.busy.Word(x)
		}
		return x &^ 63, word, ok
	}
	cold := s.coolingSet()
	x, ok = s.busy.NextSet(x)
	if ok && cold != nil && cold.Test(x) {
		x, ok = cold.NextClear(x)
	}
	if !ok {
		return 0, 0, false
	}
	word = s.busy.Word(x)
	if cold != nil {
		word &^= cold.Word(x)
	}
	if last := s.codec.Last(); last-x&^63 < 63 {
		word &= 1<<(last-x&^63+1) - 1
	}
	return x &^ 63, word, true
}

// UsedPrefixes returns the taken space as the fewest prefixes, ascending. They are
// not what was allocated: neighbours are joined. It holds the lock as [Set.All]
// does, for one run of children at a time.
func (s *Set) UsedPrefixes() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) { s.prefixes(true, yield) }
}

// FreePrefixes returns the free space as the fewest prefixes, ascending, as
// [Set.UsedPrefixes] does the taken space.
func (s *Set) FreePrefixes() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) { s.prefixes(false, yield) }
}

func (s *Set) prefixes(taken bool, yield func(netip.Prefix) bool) {
	for x, last := uint64(0), s.codec.Last(); ; {
		lo, hi, ok := s.run(x, taken)
		if !ok {
			return
		}
		for left := true; left; {
			// The largest aligned block that starts at lo and ends by hi.
			k := min(bits.TrailingZeros64(lo), s.codec.Order())
			for k > 0 && ^uint64(0)>>(64-k) > hi-lo {
				k--
			}
			if !yield(s.codec.PrefixOf(lo, s.ChildBits()-k)) {
				return
			}
			end := lo | ^uint64(0)>>(64-k)
			left = end != hi
			lo = end + 1
		}
		if hi == last {
			return
		}
		x = hi + 1
	}
}

// run returns the next run of children at or after x that are in the given state.
func (s *Set) run(x uint64, taken bool) (lo, hi uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !taken {
		if lo, ok = s.busy.NextClear(x); !ok {
			return 0, 0, false
		}
		hi = s.codec.Last()
		if y, more := s.busy.NextSet(lo); more {
			hi = y - 1
		}
		return lo, hi, true
	}
	cold := s.coolingSet()
	if lo, ok = nextTaken(&s.busy, cold, x, s.codec.Last()); !ok {
		return 0, 0, false
	}
	return lo, endTaken(&s.busy, cold, lo), true
}
