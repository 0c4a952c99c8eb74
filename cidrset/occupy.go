package cidrset

import (
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Occupy takes every child that overlaps p, and returns how many of them were not
// taken before, saturating at the largest uint64: a caller that expects p to be
// its own sees a double assignment by that. p may be larger than the pool, which
// takes the whole pool, or smaller than a child, which takes that child. Doing it
// again does nothing. A cooling child is taken at once. The cursor stays.
//
// It fails with an [*ipalloc.Error] that matches [ipalloc.ErrInvalid] if p is invalid,
// unmasked or 4-in-6, and [ipalloc.ErrOutOfRange] if p has no address in the pool; the set is
// unchanged then. O(log n) and what it cuts, for a prefix of any length. Safe for
// concurrent use.
func (s *Set) Occupy(p netip.Prefix) (taken uint64, err error) {
	i, ok := s.codec.Child(p)
	if !ok || !s.plain {
		return s.occupyPrefix(p)
	}
	s.mu.Lock()
	was := s.busy.Set(i)
	s.mu.Unlock()
	if was {
		taken = 1
	}
	return taken, nil
}

// occupyPrefix is Occupy of any prefix, and with options.
func (s *Set) occupyPrefix(p netip.Prefix) (taken uint64, err error) {
	lo, hi, _, err := s.locate(p)
	if err != nil {
		return 0, s.refused("occupy", p, err)
	}
	s.mu.Lock()
	if taken = s.take(lo, hi); taken != 0 {
		s.changed(OpOccupy, p)
	}
	s.mu.Unlock()
	s.changes.Deliver()
	return taken, nil
}

// take takes the children of [lo, hi] and returns how many were not taken. The lock is
// held.
func (s *Set) take(lo, hi uint64) (taken uint64) {
	taken = s.busy.SetRange(lo, hi)
	if s.cooling != nil {
		s.cooling.hot.SetRange(lo, hi)
		taken = addSat(taken, s.cooling.remove(lo, hi))
	}
	return taken
}

// Claim takes every child inside p, provided that none of them is taken. It takes a
// cooling child at once and leaves the cursor alone. The change is an OpOccupy.
//
// It fails with an [*ipalloc.Error] that matches [ipalloc.ErrOccupied] if a child is
// taken; InTheWay is the lowest such child. Otherwise it fails as [Set.Release] does.
// The set is unchanged then. O(log n) plus the nodes it discards, and with [Cooldown]
// the runs of cooling children in p. Safe for concurrent use.
func (s *Set) Claim(p netip.Prefix) error {
	lo, hi, err := s.within("claim", p)
	if err != nil {
		return err
	}
	s.mu.Lock()
	x, occupied := nextTaken(&s.busy, s.coolingSet(), lo, hi)
	if !occupied {
		s.take(lo, hi)
		s.changed(OpOccupy, p)
	}
	s.mu.Unlock()
	if occupied {
		err := s.fail("claim", p, ipalloc.ErrOccupied, "")
		err.InTheWay = s.codec.Prefix(x)
		return err
	}
	s.changes.Deliver()
	return nil
}

// Release gives back every child inside p, and returns how many of them were
// taken, saturating. Doing it again does nothing. The cursor stays.
//
// It fails with an [*ipalloc.Error] that matches [ipalloc.ErrInvalid] as [Set.Occupy]
// does; [ipalloc.ErrMisaligned] if p is smaller than a child, because giving back the
// child could free a neighbour's space; [ipalloc.ErrOutOfRange] if p is larger than the pool or
// not in it. The set is unchanged then. O(log n) and what it cuts. Safe for
// concurrent use.
func (s *Set) Release(p netip.Prefix) (freed uint64, err error) {
	i, ok := s.codec.Child(p)
	if !ok || !s.plain {
		return s.releasePrefix(p)
	}
	s.mu.Lock()
	was := s.busy.Clear(i)
	s.mu.Unlock()
	if was {
		freed = 1
	}
	return freed, nil
}

// releasePrefix is Release of any prefix, and with options.
func (s *Set) releasePrefix(p netip.Prefix) (freed uint64, err error) {
	lo, hi, err := s.within("release", p)
	if err != nil {
		return 0, err
	}
	now := s.clock()
	s.mu.Lock()
	freed = s.release(lo, hi, now)
	if freed != 0 {
		s.changed(OpRelease, p)
	}
	s.mu.Unlock()
	s.changes.Deliver()
	return freed, nil
}

// ReleaseN gives back every child inside each of ps, as [Set.Release] does, under
// one lock and as one change, and returns how many there were in all. If one of ps
// is refused, the error names it and nothing is released. Safe for concurrent use.
func (s *Set) ReleaseN(ps []netip.Prefix) (freed uint64, err error) {
	for _, p := range ps {
		if _, ok := s.codec.Child(p); ok {
			continue
		}
		if _, _, err := s.within("release", p); err != nil {
			return 0, err
		}
	}
	now := s.clock()
	s.mu.Lock()
	for _, p := range ps {
		i, ok := s.codec.Child(p)
		switch {
		case !ok:
			lo, hi, _, _ := s.locate(p)
			freed = addSat(freed, s.release(lo, hi, now))
		case s.cooling != nil:
			freed = addSat(freed, s.release(i, i, now))
		case s.busy.Clear(i):
			freed = addSat(freed, 1)
		}
	}
	if freed != 0 {
		s.changed(OpRelease, ps...)
	}
	s.mu.Unlock()
	s.changes.Deliver()
	return freed, nil
}

// release makes the taken children of [lo, hi] free or, with Cooldown, cooling.
func (s *Set) release(lo, hi uint64, now time.Time) (freed uint64) {
	if s.cooling == nil {
		return s.busy.ClearRange(lo, hi)
	}
	return s.cooling.add(&s.busy, lo, hi, now)
}

// Has reports whether p lies in the pool and every child it overlaps is taken;
// cooling children are not. False for a prefix that is not valid or not in the
// pool. O(log n). Safe for concurrent use.
func (s *Set) Has(p netip.Prefix) bool {
	lo, hi, rel, err := s.locate(p)
	if err != nil || rel == addr.Larger {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return wholly(&s.busy, lo, hi) && (s.cooling == nil || s.cooling.set.CountRange(lo, hi) == 0)
}

// HasAny reports whether any child that p overlaps is taken. p may be larger than
// the pool. False for a prefix that is not valid or not in the pool. O(log n).
// Safe for concurrent use.
func (s *Set) HasAny(p netip.Prefix) bool {
	lo, hi, _, err := s.locate(p)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cooling != nil {
		busy, cold := s.busy.CountRange(lo, hi), s.cooling.set.CountRange(lo, hi)
		// The counts of 2^64 and of one less are the same.
		return busy > cold || busy == ^uint64(0) && s.busy.Full() && !s.cooling.set.Full()
	}
	x, ok := s.busy.NextSet(lo)
	return ok && x <= hi
}
