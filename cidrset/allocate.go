package cidrset

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
)

// AllocateNext takes the next free child by the set's policy and returns it. Without an
// option, that is the first free child at or after the cursor, wrapping.
//
// It fails with [ipalloc.ErrFull] if no child is free, or with [ipalloc.ErrCooling] if
// children are cooling. Until then tells when the next one becomes free. The set is
// unchanged. The result is masked, of length ChildBits and inside the pool. O(log n), and
// O(1) if the set is full; it does not allocate in steady state.
func (s *Set) AllocateNext() (netip.Prefix, error) {
	if !s.plain {
		var dst [1]netip.Prefix
		err := s.AllocateN(dst[:])
		return dst[0], err
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

// AllocateN fills dst with children, as len(dst) calls of [Set.AllocateNext] would, under
// one lock and as one change. It allocates all of them or none.
//
// It fails with [ipalloc.ErrFull] if fewer are free, or with [ipalloc.ErrCooling] if
// enough of the others are cooling. Until then tells when the last of them becomes free.
// The set is unchanged and the contents of dst are unspecified. O(log n) for each child,
// and less where free children are neighbours.
func (s *Set) AllocateN(dst []netip.Prefix) error {
	if len(dst) == 0 {
		return nil
	}
	err := s.lockedN(dst, s.clock())
	if err == nil {
		s.changes.Deliver()
	}
	return err
}

// lockedN unlocks even if the random source panics.
func (s *Set) lockedN(dst []netip.Prefix, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := uint64(len(dst))
	fresh := uint64(0)
	if !s.busy.Full() {
		fresh = s.codec.Last() - s.busy.Count() // free-1: the count of an empty 2^64 set does not fit a uint64
		fresh = min(fresh, n-1) + 1
	}
	if fresh < n {
		if err := s.enough(n-fresh, n, now); err != nil {
			return err
		}
	}
	if uint64(cap(s.scratch)) < n {
		s.scratch = make([]uint64, n)
	}
	ordinals := s.scratch[:n]
	s.nextFresh(ordinals[:fresh])
	for i := fresh; i < n; i++ {
		ordinals[i] = s.cooling.pop()
	}
	for i, o := range ordinals {
		dst[i] = s.codec.Prefix(o)
	}
	s.changed(OpAllocate, dst...)
	return nil
}

// enough returns nil if the missing children, out of n, have cooled long enough.
func (s *Set) enough(missing, n uint64, now time.Time) error {
	until, ok := s.cooling.when(missing)
	switch {
	case until.After(now): // it is the zero time if not ok
		return s.coolingUntil(until)
	case ok:
		return nil
	case n == 1:
		return s.exhausted()
	}
	return s.fail("allocate", netip.Prefix{}, ipalloc.ErrFull, fmt.Sprintf("fewer than %d children are free", n))
}

// exhausted returns the error of a full set. The first call makes the error, and every
// call returns the same one. The lock is held.
func (s *Set) exhausted() *ipalloc.Error {
	if s.full == nil {
		s.full = s.fail("allocate", netip.Prefix{}, ipalloc.ErrFull, "")
	}
	return s.full
}

func (s *Set) coolingUntil(until time.Time) *ipalloc.Error {
	e := s.fail("allocate", netip.Prefix{}, ipalloc.ErrCooling, "")
	e.Until = until
	return e
}

// nextFresh takes free children by the policy and stores their ordinals. The set has
// enough of them.
func (s *Set) nextFresh(dst []uint64) {
	switch {
	case len(dst) == 0:
		return
	case s.policy == policyRandom:
		for i := range dst { // all before the first change, because the source may panic
			dst[i] = s.draw(uint64(i))
		}
		for i, rank := range dst {
			dst[i], _ = s.busy.SelectClear(rank)
			s.busy.Set(dst[i])
		}
	case s.policy == policyLowest:
		s.busy.SetNextN(dst, 0)
	default:
		s.busy.SetNextN(dst, s.cursor)
		s.cursor = (dst[len(dst)-1] + 1) & s.codec.Last()
	}
	if s.cooling != nil {
		for _, i := range dst {
			s.cooling.taken.Set(i)
			s.cooling.hot.Set(i)
		}
	}
}

// draw returns a random rank among the free children that remain when taken of them are
// taken. At least one must remain.
func (s *Set) draw(taken uint64) uint64 {
	free := s.codec.Last() - s.busy.Count() - taken + 1
	if free == 0 {
		return s.random.Uint64() // 2^64 of them
	}
	return s.random.Uint64N(free)
}

// AllocatePrefix takes and returns a free prefix of the given length, which is between
// the pool's length and a child's. It takes the first part of the smallest free aligned
// space that holds the prefix; of equally small spaces, the lowest. It leaves the cursor
// alone and ignores the policy. With [Cooldown], if nothing else fits, children that have
// cooled long enough count as free.
//
// It fails with [ipalloc.ErrInvalid], and Field "bits", for an impossible length. It
// fails with [ipalloc.ErrFull] if no free space is that large, although smaller ones may
// exist. It fails with [ipalloc.ErrCooling] instead if children are cooling, because
// these might make room later. On error the set is unchanged. O(log n) amortised, however
// many prefixes are live; it does not allocate in steady state.
func (s *Set) AllocatePrefix(bits int) (netip.Prefix, error) {
	k := s.codec.ChildBits() - bits
	if k < 0 || k > s.codec.Order() {
		err := invalidBits("bits", s.Pool(), bits, s.ChildBits())
		err.Op = "allocate"
		return netip.Prefix{}, err
	}
	now := s.clock()
	s.mu.Lock()
	lo, ok := s.busy.BestFit(k)
	for !ok && s.cooling != nil {
		if s.cooling.ripen(now) {
			lo, ok = s.cooling.hot.BestFit(k)
			break
		}
		s.cooling.hot.MaxClearOrder() // refreshes the summaries of what ripen changed
		s.mu.Unlock()                 // others need not wait for all runs
		s.mu.Lock()
		lo, ok = s.busy.BestFit(k)
	}
	if !ok {
		err := s.noFit(bits)
		s.mu.Unlock()
		return netip.Prefix{}, err
	}
	s.take(lo, lo|^uint64(0)>>(64-k))
	p := s.codec.PrefixOf(lo, bits)
	s.changed(OpAllocate, p)
	s.mu.Unlock()
	s.changes.Deliver()
	return p, nil
}

// noFit returns the error for a prefix length that does not fit. The lock is held.
func (s *Set) noFit(bits int) error {
	err, free := *s.exhausted(), &s.busy
	if c := s.cooling; c != nil {
		free = c.hot
		if c.edge != 0 {
			err = *s.coolingUntil(c.runs[c.edge].until)
		}
	}
	err.Bits = bits
	if k, ok := free.MaxClearOrder(); ok && err.Err == ipalloc.ErrFull {
		err.Reason = fmt.Sprintf("no free prefix of that length (largest is /%d)", s.ChildBits()-k)
	}
	return &err
}
