package cidrset

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bitmap"
)

// Stats are the counts of a [Set] at one moment, in children. They saturate at the
// largest uint64, which only a set of 2^64 children can reach.
// Capacity = Used + Cooling + Free.
type Stats struct {
	Capacity uint64
	Used     uint64 // taken
	Cooling  uint64 // given back, not to be reused yet; an expired child counts until it is reused
	Free     uint64

	// LargestFree is the length of the shortest prefix in the free space: the largest
	// aligned part of it. It is -1 if no child is free. Cooling children do not count,
	// though [Set.AllocatePrefix] may use those that have cooled long enough.
	LargestFree int
}

// Stats returns the counts of the set. O(1), but for LargestFree, which costs what
// [Set.AllocatePrefix] does. Safe for concurrent use.
func (s *Set) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	busy := s.busy.Count()
	st := Stats{Capacity: s.busy.Len(), Used: busy, Free: s.codec.Last() - busy, LargestFree: -1}
	switch {
	case s.busy.Full():
		st.Free = 0
	case st.Free != ^uint64(0): // Last is one less than the capacity
		st.Free++
	}
	if s.cooling != nil {
		st.Cooling = s.cooling.set.Count()
		st.Used -= st.Cooling
		if busy == ^uint64(0) && s.busy.Full() && st.Cooling != 0 && !s.cooling.set.Full() {
			st.Used++ // busy is 2^64, one more than it says
		}
	}
	if k, ok := s.busy.MaxClearOrder(); ok {
		st.LargestFree = s.ChildBits() - k
	}
	return st
}

// Ordinal returns the position of the child p from the lowest address, from 0; ok is
// false unless p is a child of the pool. O(1), without the lock.
func (s *Set) Ordinal(p netip.Prefix) (i uint64, ok bool) {
	if i, ok = s.codec.Child(p); !ok {
		return 0, false
	}
	return i, true
}

// Child returns the child whose [Set.Ordinal] is i; ok is false if there is none. O(1),
// without the lock.
func (s *Set) Child(i uint64) (p netip.Prefix, ok bool) {
	if i > s.codec.Last() {
		return netip.Prefix{}, false
	}
	return s.codec.Prefix(i), true
}

// String returns pool, child length and counts: "10.0.0.0/16 in /24: 3 used, 1 cooling,
// 252 free". Safe for concurrent use.
func (s *Set) String() string {
	st := s.Stats()
	return fmt.Sprintf("%v in /%d: %d used, %d cooling, %d free", s.Pool(), s.ChildBits(), st.Used, st.Cooling, st.Free)
}

// Cursor returns the child at which the next AllocateNext starts to look. Only
// round robin moves it. Safe for concurrent use.
func (s *Set) Cursor() netip.Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.codec.Prefix(s.cursor)
}

// SetCursor has the next AllocateNext start to look at the given child, as [Set.Cursor] says it of another set: a set
// that is rebuilt by occupying what [OnChange] has told then answers as the other one would. It changes nothing else
// and is not told.
//
// It fails with an [*ipalloc.Error] as [Set.Occupy] does, and one that matches [ipalloc.ErrMisaligned]
// unless p is a child; the cursor stays then. O(1). Safe for concurrent use.
func (s *Set) SetCursor(p netip.Prefix) error {
	i, ok := s.codec.Child(p)
	if !ok {
		if _, _, _, err := s.locate(p); err != nil {
			return s.refused("set cursor", p, err)
		}
		return s.fail("set cursor", p, ipalloc.ErrMisaligned, fmt.Sprintf("a child is a /%d", s.ChildBits()))
	}
	s.mu.Lock()
	s.cursor = i
	s.mu.Unlock()
	return nil
}

// coolingSet returns the cooling children, nil without Cooldown.
func (s *Set) coolingSet() *bitmap.Bitmap {
	if s.cooling == nil {
		return nil
	}
	return s.cooling.set
}

// Check recomputes everything the set derives and returns the first contradiction,
// nil if there is none. It is for tests and for state that came from outside.
// O(children touched). Safe for concurrent use.
func (s *Set) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.busy.Check()}
	if s.cursor > s.codec.Last() {
		errs = append(errs, fmt.Errorf("cursor %d beyond %d", s.cursor, s.codec.Last()))
	}
	if last, ok := s.busy.Last(); !ok || last != s.codec.Last() {
		errs = append(errs, fmt.Errorf("children up to %d, want %d", last, s.codec.Last()))
	} else if s.cooling != nil {
		errs = append(errs, s.cooling.check(&s.busy))
	}
	if err := errors.Join(errs...); err != nil {
		return s.fail("check", netip.Prefix{}, fmt.Errorf("%w: %w", ipalloc.ErrCorrupt, err), "")
	}
	return nil
}
