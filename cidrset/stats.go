package cidrset

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Stats are the counts of a [Set] at one moment, in children. They saturate at the
// largest uint64, which only a set of 2^64 children can reach.
// Capacity = Used + Cooling + Free.
type Stats struct {
	Capacity uint64
	Used     uint64 // taken
	Cooling  uint64 // released and not reused yet, also after the cooldown
	Free     uint64

	// LargestFree is the length of the largest prefix that is wholly free. It is -1 if no
	// child is free. Cooling children do not count, although [Set.AllocatePrefix] uses
	// children that have cooled long enough.
	LargestFree int
}

// Stats returns the counts of the set. O(1), except that LargestFree costs what
// [Set.AllocatePrefix] does.
func (s *Set) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	busy := s.busy.Count()
	st := Stats{Capacity: s.busy.Len(), Used: s.taken.Count(), Free: s.codec.Last() - busy, LargestFree: -1}
	st.Cooling = busy - st.Used
	switch {
	case s.busy.Full():
		if st.Free = 0; busy == ^uint64(0) && st.Used != 0 && !s.taken.Full() {
			st.Cooling++ // 2^64 children are busy, one more than Count returns
		}
	case st.Free != ^uint64(0): // Last is one less than the capacity
		st.Free++
	}
	if k, ok := s.busy.MaxClearOrder(); ok {
		st.LargestFree = s.ChildBits() - k
	}
	return st
}

// String returns pool, child length and counts, such as "10.0.0.0/16 in /24: 3 used, 1
// cooling, 252 free".
func (s *Set) String() string {
	st := s.Stats()
	return fmt.Sprintf("%v in /%d: %d used, %d cooling, %d free", s.Pool(), s.ChildBits(), st.Used, st.Cooling, st.Free)
}

// Ordinal returns the position of the child p, counted from 0 at the lowest address. The
// position is meaningful only if ok is true, which means that p is a child of the pool.
// O(1), lock-free.
func (s *Set) Ordinal(p netip.Prefix) (i uint64, ok bool) { return s.codec.Child(p) }

// Child returns the child whose [Set.Ordinal] is i; ok is false if there is none. O(1),
// lock-free.
func (s *Set) Child(i uint64) (p netip.Prefix, ok bool) {
	if i > s.codec.Last() {
		return netip.Prefix{}, false
	}
	return s.codec.Prefix(i), true
}

// Cursor returns the child where the next AllocateNext starts searching. Only
// AllocateNext and AllocateN with the default policy, and SetCursor, move it.
func (s *Set) Cursor() netip.Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.codec.Prefix(s.cursor)
}

// SetCursor sets where the next AllocateNext starts searching. A set rebuilt from another
// set's changes also needs that set's [Set.Cursor] to continue like it. SetCursor makes
// no change that [OnChange] reports.
//
// It fails as [Set.Occupy] does, and with [ipalloc.ErrOutOfRange] if p is not a child;
// the cursor is unchanged then. O(1).
func (s *Set) SetCursor(p netip.Prefix) error {
	i, ok := s.codec.Child(p)
	if !ok {
		_, _, rel, why := s.locate(p)
		if rel != addr.Foreign {
			rel = addr.Part // or larger than a child
		}
		return s.refused("set cursor", p, rel, why)
	}
	s.mu.Lock()
	s.cursor = i
	s.mu.Unlock()
	return nil
}

// Check recomputes everything the set derives. It returns nil, or an [*ipalloc.Error]
// that matches [ipalloc.ErrCorrupt] and names the first contradiction. It is for tests
// and for state from outside the program. O(pages).
func (s *Set) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.busy.Last()
	err := s.busy.Check()
	switch {
	case err != nil:
	case !ok || last != s.codec.Last():
		err = fmt.Errorf("children up to %d, want %d", last, s.codec.Last())
	case s.cursor > last:
		err = fmt.Errorf("cursor %d beyond %d", s.cursor, last)
	case s.cooling != nil:
		err = s.cooling.check(&s.busy)
	}
	if err != nil {
		return s.fail("check", netip.Prefix{}, fmt.Errorf("%w: %w", ipalloc.ErrCorrupt, err), "")
	}
	return nil
}
