package cidrset

import (
	"fmt"
	"net/netip"
	"time"
)

// AllocateNext takes the next free child by the set's policy and returns it: the
// first at or after the cursor, wrapping, unless an option says otherwise.
//
// It returns [ErrFull] if no child is free, at once however large the set, and an
// error that matches [ErrCooling] if all that is free is cooling; the set is
// unchanged then. The result is masked, of length ChildBits and inside the pool.
// O(log n); it does not allocate in steady state. Safe for concurrent use.
func (s *Set) AllocateNext() (netip.Prefix, error) {
	if !s.plain {
		return s.allocateNext()
	}
	s.mu.Lock()
	i, ok := s.busy.SetNextClear(s.cursor)
	if !ok {
		s.mu.Unlock()
		return netip.Prefix{}, ErrFull
	}
	s.cursor = (i + 1) & s.codec.Last()
	s.mu.Unlock()
	return s.codec.Prefix(i), nil
}

// allocateNext is AllocateNext with options.
func (s *Set) allocateNext() (netip.Prefix, error) {
	p, err := s.lockedNext(s.clock())
	if err == nil && s.events != nil {
		s.deliver()
	}
	return p, err
}

// lockedNext takes a child and queues the change. It gives the lock back even if the
// random source panics.
func (s *Set) lockedNext(now time.Time) (netip.Prefix, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.next(now)
	if err != nil {
		return netip.Prefix{}, err
	}
	p := s.codec.Prefix(i)
	if s.events != nil {
		s.events.add(Change{Op: OpAllocate, Prefixes: []netip.Prefix{p}})
	}
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
		return 0, ErrFull
	}
	if i, ok = s.cooling.pop(now); !ok {
		return 0, s.exhausted(now, ErrFull)
	}
	return i, nil
}

// draw returns a random rank among the free children, of which there is one.
func (s *Set) draw() uint64 {
	free := s.codec.Last() - s.busy.Count() + 1
	if free == 0 {
		return s.random.Uint64() // 2^64 of them
	}
	return s.random.Uint64N(free)
}

// exhausted returns the error for a request that found no space: ErrCooling if
// waiting may help, else err.
func (s *Set) exhausted(now time.Time, err error) error {
	if s.cooling != nil {
		if until, ok := s.cooling.until(now); ok {
			return &Error{Op: "allocate", Pool: s.codec.Pool(), Until: until, Err: ErrCooling}
		}
	}
	if err == ErrFull {
		return err
	}
	return s.fail("allocate", netip.Prefix{}, err)
}

// AllocateN fills dst with children, as len(dst) calls of [Set.AllocateNext]
// would, under one lock and as one change: all of them or none.
//
// If fewer are free it returns an error that matches [ErrFull], or [ErrCooling] if
// enough of the others are cooling, with Until when the last of them has cooled;
// the set is as it was then, and the contents of dst are unspecified. O(log n)
// for a child at worst, far less where free children are neighbours. Safe for
// concurrent use.
func (s *Set) AllocateN(dst []netip.Prefix) error {
	if len(dst) == 0 {
		return nil
	}
	err := s.lockedNextN(dst, s.clock())
	if err == nil && s.events != nil {
		s.deliver()
	}
	return err
}

func (s *Set) lockedNextN(dst []netip.Prefix, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.nextN(dst, now); err != nil {
		return err
	}
	if s.events != nil {
		s.events.add(Change{Op: OpAllocate, Prefixes: append([]netip.Prefix(nil), dst...)})
	}
	return nil
}

func (s *Set) nextN(dst []netip.Prefix, now time.Time) error {
	n := uint64(len(dst))
	last := s.codec.Last()
	fresh := uint64(0)
	if !s.busy.Full() {
		fresh = last - s.busy.Count() // one too few, which a set of 2^64 needs
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
				return &Error{Op: "allocate", Pool: s.codec.Pool(), Until: until, Err: ErrCooling}
			}
			return nil
		}
	}
	return s.fail("allocate", netip.Prefix{}, fmt.Errorf("%w: %d children asked for, fewer are free", ErrFull, n))
}

// Allocate takes a free prefix of the given length, from that of the pool to that
// of a child, and returns it: the first part of the lowest of the smallest free
// aligned spaces that hold it. It leaves the cursor alone; policies do not matter
// to it. With [Cooldown], if nothing else fits, all that has cooled long enough
// becomes free, provided that it fits then.
//
// It fails with an [*Error] that matches [ErrBadBits] for an impossible length;
// [ErrFull] if no free space is that large, though smaller ones may be;
// [ErrCooling] if something is cooling: one may be that large once it has cooled, or
// not. The set is unchanged then.
// O(log n) amortised, independent of how many prefixes are live, and where it comes
// to that, for each run of children that has cooled; it does not allocate in steady
// state. Safe for concurrent use.
func (s *Set) Allocate(bits int) (netip.Prefix, error) {
	k := s.codec.ChildBits() - bits
	if k < 0 || k > s.codec.Order() {
		return netip.Prefix{}, s.fail("allocate", netip.Prefix{}, fmt.Errorf("%w: /%d, want /%d to /%d",
			ErrBadBits, bits, s.Pool().Bits(), s.ChildBits()))
	}
	now := s.clock()
	s.mu.Lock()
	lo, ok := s.busy.BestFit(k)
	if !ok && s.cooling != nil {
		lo, ok = s.thaw(k, now)
	}
	if !ok {
		err := s.exhausted(now, fmt.Errorf("%w: no free /%d", ErrFull, bits))
		s.mu.Unlock()
		return netip.Prefix{}, err
	}
	s.busy.SetRange(lo, lo|^uint64(0)>>(64-k))
	p := s.codec.PrefixOf(lo, bits)
	if s.events != nil {
		s.events.add(Change{Op: OpAllocate, Prefixes: []netip.Prefix{p}})
	}
	s.mu.Unlock()
	if s.events != nil {
		s.deliver()
	}
	return p, nil
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
