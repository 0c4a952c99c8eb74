package cidrset

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/hook"
)

// Set hands out the children of one pool. Make a Set with [New] or [Restore]; the zero
// value is unusable. It is safe for concurrent use and must not be copied.
type Set struct {
	codec  addr.Codec
	policy policy
	plain  bool       // no option is set: the fast paths
	random *rand.Rand // with policyRandom

	mu      sync.Mutex
	busy    bitmap.Bitmap       // children that are taken or cooling
	taken   *bitmap.Bitmap      // children that are taken: busy itself without Cooldown
	cursor  uint64              // ordinal at which AllocateNext starts searching
	cooling *cooling            // nil without Cooldown
	changes *hook.Queue[Change] // nil without OnChange
	scratch []uint64            // ordinals of a batch
	full    *ipalloc.Error      // nil until the first call of exhausted
}

// New returns a set of pool's children of length childBits, all free.
//
// It fails with [ipalloc.ErrInvalid]. Field is "pool" if pool is invalid, has host bits
// set or is 4-in-6. Field is "childBits" if childBits is below the pool's length, above
// 32 (IPv4) or 128 (IPv6), or more than 64 above the pool's length. Otherwise Field names
// an option. An empty set of any size costs a few hundred bytes.
func New(pool netip.Prefix, childBits int, opts ...Option) (*Set, error) {
	return newSet("new", pool, childBits, opts)
}

func newSet(op string, pool netip.Prefix, childBits int, opts []Option) (*Set, error) {
	codec, err := addr.NewCodec(pool, childBits)
	c, bad := configure(opts)
	switch {
	case errors.Is(err, addr.ErrBits):
		bad = invalidBits("childBits", pool, childBits, min(pool.Addr().BitLen(), pool.Bits()+addr.MaxOrder))
	case err != nil:
		bad = invalid("pool", "%v", err)
		bad.Prefix = pool
	case bad != nil:
		bad.Pool = pool
	}
	if bad != nil {
		bad.Op = op
		return nil, bad
	}
	s := &Set{codec: codec, busy: *bitmap.NewPow2(codec.Order()), policy: c.policy, random: c.random}
	s.taken = &s.busy
	if c.now != nil {
		s.cooling = newCooling(&s.busy, codec.Order(), c.wait, c.now)
		s.taken = s.cooling.taken
	}
	if c.onChange != nil {
		s.changes = hook.New(&s.mu, c.onChange)
	}
	s.plain = s.policy == policyRoundRobin && s.cooling == nil && s.changes == nil
	return s, nil
}

// Pool returns the pool.
func (s *Set) Pool() netip.Prefix { return s.codec.Pool() }

// ChildBits returns the prefix length of a child.
func (s *Set) ChildBits() int { return s.codec.ChildBits() }

// locate returns the range of children that p overlaps and its relation to the pool. rel
// is Foreign if p overlaps none; why is set if p is not a valid prefix. Every method that
// takes a prefix calls it first.
func (s *Set) locate(p netip.Prefix) (lo, hi uint64, rel addr.Relation, why error) {
	if lo, hi, ok := s.codec.Block(p); ok {
		return lo, hi, addr.Whole, nil
	}
	if why := s.codec.Check(p); why != nil {
		return 0, 0, addr.Foreign, why
	}
	lo, hi, rel = s.codec.Locate(p)
	return lo, hi, rel, nil
}

// within is locate for an operation on whole children of the pool. It returns an error
// for any other prefix.
func (s *Set) within(op string, p netip.Prefix) (lo, hi uint64, err error) {
	lo, hi, rel, why := s.locate(p)
	if rel != addr.Whole {
		err = s.refused(op, p, rel, why)
	}
	return lo, hi, err
}

// refused returns the error of an operation that is impossible for p.
func (s *Set) refused(op string, p netip.Prefix, rel addr.Relation, why error) *ipalloc.Error {
	switch {
	case why != nil:
		e := s.fail(op, p, ipalloc.ErrInvalid, why.Error())
		e.Field = "prefix"
		return e
	case rel == addr.Foreign:
		return s.fail(op, p, ipalloc.ErrOutOfRange, "")
	case rel == addr.Larger:
		return s.fail(op, p, ipalloc.ErrOutOfRange, "larger than the pool")
	}
	return s.fail(op, p, ipalloc.ErrOutOfRange, fmt.Sprintf("a child is a /%d", s.ChildBits()))
}

// fail returns the error of an operation on p, which may be the zero Prefix.
func (s *Set) fail(op string, p netip.Prefix, err error, reason string) *ipalloc.Error {
	return &ipalloc.Error{Package: "cidrset", Op: op, Prefix: p, Pool: s.Pool(), Reason: reason, Err: err}
}
