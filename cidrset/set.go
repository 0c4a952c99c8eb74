package cidrset

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Set hands out the children of one pool. Make one with [New] or [Restore]; the
// zero value is unusable. It is safe for concurrent use and must not be copied.
type Set struct {
	codec  addr.Codec
	policy policy
	plain  bool       // round robin, no cooldown, nobody to tell: the fast paths
	random *rand.Rand // with policyRandom

	mu      sync.Mutex
	busy    bitmap.Bitmap // children that are taken or cooling
	cursor  uint64        // ordinal at which AllocateNext starts to look
	cooling *cooling      // nil without Cooldown
	events  *events       // nil without OnChange
	scratch []uint64      // ordinals of a batch
}

type policy uint8

const (
	policyRoundRobin policy = iota
	policyLowest
	policyRandom
)

// An Option changes how a [Set] picks children or whom it tells.
type Option func(*Set) error

// LowestFirst makes AllocateNext take the lowest free child instead of the first
// after the cursor.
func LowestFirst() Option {
	return func(s *Set) error { return s.choose(policyLowest) }
}

// Random makes AllocateNext take a free child at random, each with the same
// probability, from the given source. The set's lock guards the source: nothing else
// may use it, and it must not use the set.
func Random(src rand.Source) Option {
	return func(s *Set) error {
		if src == nil {
			return fmt.Errorf("%w: no random source", ErrBadOption)
		}
		s.random = rand.New(src)
		return s.choose(policyRandom)
	}
}

func (s *Set) choose(p policy) error {
	if s.policy != policyRoundRobin {
		return fmt.Errorf("%w: two policies", ErrBadOption)
	}
	s.policy = p
	return nil
}

// Cooldown keeps children that were released from being allocated again before d
// has passed on the given clock. Children that were never used come first; then
// those that were released, oldest first. Occupy takes a cooling child at once. A
// clock that is set back makes children cool longer, never shorter.
//
// The clock is read once by each call that allocates or releases, before it takes
// the set's lock.
func Cooldown(d time.Duration, now func() time.Time) Option {
	return func(s *Set) error {
		switch {
		case d <= 0:
			return fmt.Errorf("%w: cooldown of %v", ErrBadOption, d)
		case now == nil:
			return fmt.Errorf("%w: cooldown without a clock", ErrBadOption)
		case s.cooling != nil:
			return fmt.Errorf("%w: two cooldowns", ErrBadOption)
		}
		s.cooling = newCooling(s.codec.Order(), d, now)
		return nil
	}
}

// OnChange has f called with every change, in the order in which they happened,
// before the method that made the change returns and outside the set's lock. A
// batch is one change. f may read the set; if it changes it, it waits for itself for
// ever. One f is called at a time. If f panics, the change it was called with counts
// as told.
func OnChange(f func(Change)) Option {
	return func(s *Set) error {
		switch {
		case f == nil:
			return fmt.Errorf("%w: no function to call on a change", ErrBadOption)
		case s.events != nil:
			return fmt.Errorf("%w: two functions to call on a change", ErrBadOption)
		}
		s.events = &events{f: f}
		return nil
	}
}

// New returns a set of the children of length childBits of pool, all free.
//
// It fails with an [*Error] that matches ErrBadPool for a pool that is invalid,
// has host bits set or is 4-in-6; ErrBadBits unless childBits is from the length
// of the pool to 32 or 128, and at most 64 above it; ErrBadOption. Nothing is
// repaired silently. It costs the same for any size: a few hundred bytes.
func New(pool netip.Prefix, childBits int, opts ...Option) (*Set, error) {
	s, err := newSet(pool, childBits, opts)
	if err != nil {
		return nil, &Error{Op: "new", Pool: pool, Err: err}
	}
	return s, nil
}

func newSet(pool netip.Prefix, childBits int, opts []Option) (*Set, error) {
	codec, err := addr.NewCodec(pool, childBits)
	switch {
	case errors.Is(err, addr.ErrBits):
		return nil, fmt.Errorf("%w: %w", ErrBadBits, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrBadPool, err)
	}
	s := &Set{codec: codec, busy: *bitmap.NewPow2(codec.Order())}
	return s, s.apply(opts)
}

func (s *Set) apply(opts []Option) error {
	for _, opt := range opts {
		if opt == nil {
			return fmt.Errorf("%w: nil", ErrBadOption)
		}
		if err := opt(s); err != nil {
			return err
		}
	}
	s.plain = s.policy == policyRoundRobin && s.cooling == nil && s.events == nil
	return nil
}

// Pool returns the pool.
func (s *Set) Pool() netip.Prefix { return s.codec.Pool() }

// ChildBits returns the prefix length of a child.
func (s *Set) ChildBits() int { return s.codec.ChildBits() }

// locate returns the range of children that p overlaps and how p lies to them.
// Every method that is given a prefix asks here first.
func (s *Set) locate(p netip.Prefix) (lo, hi uint64, rel addr.Relation, err error) {
	if lo, hi, ok := s.codec.Block(p); ok {
		return lo, hi, addr.Whole, nil
	}
	if err := s.codec.Check(p); err != nil {
		return 0, 0, addr.Foreign, fmt.Errorf("%w: %w", ErrBadPrefix, err)
	}
	lo, hi, rel = s.codec.Locate(p)
	if rel == addr.Foreign {
		err = ErrOutOfRange
	}
	return lo, hi, rel, err
}

// fail wraps an error about prefix p, which may be the zero Prefix.
func (s *Set) fail(op string, p netip.Prefix, err error) error {
	return &Error{Op: op, Pool: s.codec.Pool(), Prefix: p, Err: err}
}
