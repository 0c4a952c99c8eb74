package cidrset

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Occupy takes every child that overlaps p and returns how many of them were not taken
// before, saturating at [math.MaxUint64]. A count below the size of p means that someone
// else already holds part of it; [Set.Claim] refuses that. A prefix larger than the pool
// takes the whole pool, and a prefix smaller than a child takes that child. Occupy is
// idempotent, takes a cooling child at once and leaves the cursor alone.
//
// It fails with [ipalloc.ErrInvalid] if p is invalid, unmasked or 4-in-6, and with
// [ipalloc.ErrOutOfRange] if p has no address in the pool. The set is unchanged then.
// O(log n) plus the nodes it discards, for a prefix of any length.
func (s *Set) Occupy(p netip.Prefix) (taken uint64, err error) {
	if i, ok := s.codec.Child(p); ok && s.plain {
		s.mu.Lock()
		was := s.busy.Set(i)
		s.mu.Unlock()
		if was {
			taken = 1
		}
		return taken, nil
	}
	lo, hi, rel, why := s.locate(p)
	if rel == addr.Foreign {
		return 0, s.refused("occupy", p, rel, why)
	}
	s.mu.Lock()
	if taken = s.take(lo, hi); taken != 0 {
		s.changed(OpOccupy, p)
	}
	s.mu.Unlock()
	s.changes.Deliver()
	return taken, nil
}

// take takes the children of [lo, hi] and returns how many were not taken before. The
// lock is held.
func (s *Set) take(lo, hi uint64) uint64 {
	fresh := s.busy.SetRange(lo, hi)
	if s.cooling == nil {
		return fresh
	}
	return s.cooling.take(lo, hi)
}

// Claim takes every child inside p if none of them is taken. It takes a cooling child at
// once and leaves the cursor alone. It reports the change as [OpOccupy].
//
// It fails with [ipalloc.ErrOccupied] if a child is taken; InTheWay is the lowest such
// child. Otherwise it fails as [Set.Release] does. On error the set is unchanged. It
// costs what [Set.Occupy] does.
func (s *Set) Claim(p netip.Prefix) error {
	lo, hi, err := s.within("claim", p)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if x, ok := s.taken.NextSet(lo); ok && x <= hi {
		s.mu.Unlock()
		err := s.fail("claim", p, ipalloc.ErrOccupied, "")
		err.InTheWay = s.codec.Prefix(x)
		return err
	}
	s.take(lo, hi)
	s.changed(OpOccupy, p)
	s.mu.Unlock()
	s.changes.Deliver()
	return nil
}

// Release returns every child inside p to the pool and returns how many of them were
// taken, saturating at [math.MaxUint64]. It is idempotent and leaves the cursor alone.
//
// It fails with [ipalloc.ErrInvalid] as [Set.Occupy] does. It fails with
// [ipalloc.ErrOutOfRange] if p is not in the pool, or is larger than the pool. A prefix
// smaller than a child also fails with ErrOutOfRange, because releasing the child could
// free a neighbour's space. On error the set is unchanged. O(log n) plus the nodes it
// discards.
func (s *Set) Release(p netip.Prefix) (freed uint64, err error) {
	if i, ok := s.codec.Child(p); ok && s.plain {
		s.mu.Lock()
		was := s.busy.Clear(i)
		s.mu.Unlock()
		if was {
			freed = 1
		}
		return freed, nil
	}
	lo, hi, err := s.within("release", p)
	if err != nil {
		return 0, err
	}
	now := s.clock()
	s.mu.Lock()
	if freed = s.release(lo, hi, now); freed != 0 {
		s.changed(OpRelease, p)
	}
	s.mu.Unlock()
	s.changes.Deliver()
	return freed, nil
}

// ReleaseN releases every prefix of ps, as [Set.Release] does, under one lock and as one
// change. It returns how many children were taken in all. If a prefix is refused, the
// error names it and nothing is released.
func (s *Set) ReleaseN(ps []netip.Prefix) (freed uint64, err error) {
	for i, p := range ps {
		if _, ok := s.codec.Child(p); ok {
			continue
		}
		if _, _, rel, why := s.locate(p); rel != addr.Whole {
			e := s.refused("release", p, rel, why)
			e.Field = fmt.Sprintf("prefixes[%d]", i)
			return 0, e
		}
	}
	now := s.clock()
	s.mu.Lock()
	for _, p := range ps {
		n := uint64(0)
		if i, ok := s.codec.Child(p); !ok {
			lo, hi, _, _ := s.locate(p)
			n = s.release(lo, hi, now)
		} else if s.cooling != nil {
			n = s.release(i, i, now)
		} else if s.busy.Clear(i) {
			n = 1
		}
		if freed += n; freed < n {
			freed = ^uint64(0)
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
	return s.cooling.release(lo, hi, now)
}

// Has reports whether p is in the pool and every child that p overlaps is taken and not
// cooling. It is false for a prefix that is invalid or not in the pool. O(log n).
func (s *Set) Has(p netip.Prefix) bool {
	lo, hi, rel, _ := s.locate(p)
	if rel == addr.Foreign || rel == addr.Larger {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return wholly(s.taken, lo, hi)
}

// HasAny reports whether any child that p overlaps is taken. p may be larger than the
// pool. It is false for a prefix that is invalid or not in the pool. O(log n).
func (s *Set) HasAny(p netip.Prefix) bool {
	lo, hi, rel, _ := s.locate(p)
	if rel == addr.Foreign {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.taken.NextSet(lo)
	return ok && x <= hi
}
