package cidrset

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
)

// AllocateNext takes the next free child by the set's policy and returns it: the
// first at or after the cursor, wrapping, unless an option says otherwise.
//
// It fails with an [*ipalloc.Error] that matches [ipalloc.ErrFull] if no child is
// free, or [ipalloc.ErrCooling] if all free children are cooling; Until then says when
// the next one becomes free. The set is unchanged. The result is masked, of length
// ChildBits and inside the pool. O(log n), and O(1) if the set is full; it does not
// allocate in steady state. Safe for concurrent use.
func (s *Set) AllocateNext() (netip.Prefix, error) {
	if !s.plain {
		return s.allocateNext()
	}
	s.mu.Lock()
	i, ok := s.busy.SetNextClear(s.cursor)
	if !ok {
		err := s.exhausted()
		s.mu.Unlock()
		return netip.Prefix{}, err
	}
	s.cursor = (i + 1) & s.codec.Last()
	s.mu.Unlock()
	return s.codec.Prefix(i), nil
}

// allocateNext is AllocateNext with options.
func (s *Set) allocateNext() (netip.Prefix, error) {
	p, err := s.lockedNext(s.clock())
	if err == nil {
		s.changes.Deliver()
	}
	return p, err
}

// lockedNext takes a child and queues the change. It unlocks even if the random source
// panics.
func (s *Set) lockedNext(now time.Time) (netip.Prefix, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.next(now)
	if err != nil {
		return netip.Prefix{}, err
	}
	p := s.codec.Prefix(i)
	s.changed(OpAllocate, p)
	return p, nil
}

// next takes a child and returns its ordinal. The lock is held.
func (s *Set) next(now time.Time) (i uint64, err error) {
	ok := false
	switch s.policy {
	case policyRoundRobin:
		if i, ok = s.busy.SetNextClear(s.cursor); ok {
			s.cursor = (i + 1) & s.codec.Last()
		}
	case policyLowest:
		i, ok = s.busy.SetNextClear(0)
	case policyRandom:
		if !s.busy.Full() {
			i, ok = s.busy.SelectClear(s.draw())
			s.busy.Set(i)
		}
	}
	switch {
	case ok:
		return i, nil
	case s.cooling == nil:
		return 0, s.exhausted()
	}
	if i, ok = s.cooling.pop(now); !ok {
		return 0, s.unavailable(now)
	}
	return i, nil
}

// draw returns a random rank among the free children, of which there is at least one.
func (s *Set) draw() uint64 {
	free := s.codec.Last() - s.busy.Count() + 1
	if free == 0 {
		return s.random.Uint64() // 2^64 of them
	}
	return s.random.Uint64N(free)
}

// exhausted returns the error of a full set: always the same one, because callers retry
// and the first call made it. The lock is held.
func (s *Set) exhausted() *ipalloc.Error {
	if s.full == nil {
		s.full = s.fail("allocate", netip.Prefix{}, ipalloc.ErrFull, "")
	}
	return s.full
}

// unavailable returns the error of a call that found no free child: ErrCooling if one
// is cooling. The lock is held.
func (s *Set) unavailable(now time.Time) *ipalloc.Error {
	if s.cooling != nil {
		if until, ok := s.cooling.until(now); ok {
			return s.coolingUntil(until)
		}
	}
	return s.exhausted()
}

func (s *Set) coolingUntil(until time.Time) *ipalloc.Error {
	e := s.fail("allocate", netip.Prefix{}, ipalloc.ErrCooling, "")
	e.Until = until
	return e
}

// AllocateN fills dst with children, as len(dst) calls of [Set.AllocateNext]
// would, under one lock and as one change: all of them or none.
//
// If fewer are free it fails with an error that matches [ipalloc.ErrFull], or
// [ipalloc.ErrCooling] if enough of the others are cooling; Until then says when the
// last of them becomes free. The set is unchanged and the contents of dst are
// unspecified. O(log n) for each child, and less where free children are neighbours.
// Safe for concurrent use.
func (s *Set) AllocateN(dst []netip.Prefix) error {
	if len(dst) == 0 {
		return nil
	}
	err := s.lockedNextN(dst, s.clock())
	if err == nil {
		s.changes.Deliver()
	}
	return err
}

func (s *Set) lockedNextN(dst []netip.Prefix, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.nextN(dst, now); err != nil {
		return err
	}
	s.changed(OpAllocate, dst...)
	return nil
}

func (s *Set) nextN(dst []netip.Prefix, now time.Time) error {
	n := uint64(len(dst))
	last := s.codec.Last()
	fresh := uint64(0)
	if !s.busy.Full() {
		fresh = last - s.busy.Count() // free-1: the count of an empty 2^64 set does not fit a uint64
		if fresh >= n {
			fresh = n
		} else {
			fresh++
		}
	}
	if fresh < n {
		if err := s.enough(n-fresh, n, now); err != nil {
			return err
		}
	}
	if s.policy == policyRandom || fresh < n {
		for i := range dst {
			o, err := s.next(now)
			if err != nil {
				panic("cidrset: " + err.Error()) // there were enough a moment ago, under this lock
			}
			dst[i] = s.codec.Prefix(o)
		}
		return nil
	}
	start := s.cursor
	if s.policy == policyLowest {
		start = 0
	}
	if uint64(cap(s.scratch)) < n {
		s.scratch = make([]uint64, n)
	}
	ordinals := s.scratch[:n]
	s.busy.SetNextN(ordinals, start)
	for i, o := range ordinals {
		dst[i] = s.codec.Prefix(o)
	}
	if s.policy == policyRoundRobin {
		s.cursor = (ordinals[n-1] + 1) & last
	}
	return nil
}

// enough returns nil if the missing ones of n children have cooled long enough.
func (s *Set) enough(missing, n uint64, now time.Time) error {
	if s.cooling != nil {
		if until, ok := s.cooling.when(missing); ok {
			if until.After(now) {
				return s.coolingUntil(until)
			}
			return nil
		}
	}
	return s.fail("allocate", netip.Prefix{}, ipalloc.ErrFull, fmt.Sprintf("fewer than %d children are free", n))
}

// Allocate takes a free prefix of the given length, from that of the pool to that of a
// child, and returns it: the first part of the lowest of the smallest free aligned
// spaces that hold it. It leaves the cursor alone and ignores the policy. With
// [Cooldown], if nothing else fits, all children that have cooled long enough become
// free, provided that the prefix fits then.
//
// It fails with an [*ipalloc.Error] that matches [ipalloc.ErrInvalid], with Field
// "bits", for an impossible length; [ipalloc.ErrFull] if no free space is that large,
// though smaller ones may be; [ipalloc.ErrCooling] if children are cooling, which may
// or may not make room. The set is unchanged then. O(log n) amortised, however many
// prefixes are live; it does not allocate in steady state. Safe for concurrent use.
func (s *Set) Allocate(bits int) (netip.Prefix, error) {
	k := s.codec.ChildBits() - bits
	if k < 0 || k > s.codec.Order() {
		err := invalidBits("bits", s.Pool(), bits, s.ChildBits())
		err.Op = "allocate"
		return netip.Prefix{}, err
	}
	now := s.clock()
	s.mu.Lock()
	lo, ok := s.busy.BestFit(k)
	if !ok && s.cooling != nil {
		lo, ok = s.thaw(k, now)
	}
	if !ok {
		err := s.noFit(bits, now)
		s.mu.Unlock()
		return netip.Prefix{}, err
	}
	s.busy.SetRange(lo, lo|^uint64(0)>>(64-k))
	p := s.codec.PrefixOf(lo, bits)
	s.changed(OpAllocate, p)
	s.mu.Unlock()
	s.changes.Deliver()
	return p, nil
}

// noFit returns the error for a prefix length that does not fit. The lock is held.
func (s *Set) noFit(bits int, now time.Time) error {
	err := *s.unavailable(now)
	err.Bits = bits
	if err.Err == ipalloc.ErrFull {
		err.Reason = "nothing is free"
		if k, ok := s.busy.MaxClearOrder(); ok {
			err.Reason = fmt.Sprintf("no free prefix of that length (largest is /%d)", s.ChildBits()-k)
		}
	}
	return &err
}

// thaw is BestFit with what has cooled long enough free as well. If that fits, it
// is free from then on; else it goes on cooling, for the call fails.
func (s *Set) thaw(k int, now time.Time) (lo uint64, ok bool) {
	for _, r := range s.cooling.ready(now) {
		s.busy.ClearRange(r.lo, r.hi)
	}
	lo, ok = s.busy.BestFit(k)
	for i, r := range s.cooling.ready(now) {
		if ok {
			s.cooling.cut(i, r.lo, r.hi)
		} else {
			s.busy.SetRange(r.lo, r.hi)
		}
	}
	return lo, ok
}
