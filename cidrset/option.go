package cidrset

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
)

// An Option changes how a [Set] chooses children or reports changes. Only [New] and
// [Restore] apply options; each kind may be given once.
type Option interface{ apply(*config) *ipalloc.Error }

// config is the combined options of one call.
type config struct {
	policy   policy
	random   *rand.Rand
	wait     time.Duration
	now      func() time.Time
	onChange func(Change)
}

type policy uint8

const (
	policyRoundRobin policy = iota
	policyLowest
	policyRandom
)

// option implements Option.
type option func(*config) *ipalloc.Error

func (o option) apply(c *config) *ipalloc.Error { return o(c) }

// invalid returns the error of an impossible argument or option.
func invalid(field, reason string, args ...any) *ipalloc.Error {
	return &ipalloc.Error{Package: "cidrset", Field: field, Reason: fmt.Sprintf(reason, args...), Err: ipalloc.ErrInvalid}
}

// invalidBits returns the error of an impossible prefix length in pool.
func invalidBits(field string, pool netip.Prefix, bits, longest int) *ipalloc.Error {
	err := invalid(field, "want /%d to /%d", pool.Bits(), longest)
	err.Pool, err.Bits = pool, bits
	if bits == 0 { // not in the text otherwise
		err.Reason += ", not /0"
	}
	return err
}

// LowestFirst makes AllocateNext take the lowest free child instead of the first
// after the cursor.
func LowestFirst() Option {
	return option(func(c *config) *ipalloc.Error { return c.choose("LowestFirst", policyLowest) })
}

// Random makes AllocateNext take a free child at random, each with the same
// probability. The set draws from src under its lock: nothing else may use src, and
// src must not use the set.
func Random(src rand.Source) Option {
	return option(func(c *config) *ipalloc.Error {
		if src == nil {
			return invalid("Random", "no source")
		}
		c.random = rand.New(src)
		return c.choose("Random", policyRandom)
	})
}

func (c *config) choose(field string, p policy) *ipalloc.Error {
	if c.policy != policyRoundRobin {
		return invalid(field, "a second policy")
	}
	c.policy = p
	return nil
}

// Cooldown keeps released children from being allocated again before d has passed on the
// given clock. Children that were never used are allocated first, then released ones,
// oldest first. If 4,096 runs of neighbours were released later, a child that has cooled
// is treated as never used. Occupy takes a cooling child at once. A clock that is set
// back makes children cool longer, never shorter.
//
// Each call that allocates or releases reads the clock once, without holding the
// set's lock.
func Cooldown(d time.Duration, now func() time.Time) Option {
	return option(func(c *config) *ipalloc.Error {
		switch {
		case d <= 0:
			return invalid("Cooldown", "a duration of %v", d)
		case now == nil:
			return invalid("Cooldown", "no clock")
		case c.now != nil:
			return invalid("Cooldown", "a second cooldown")
		}
		c.wait, c.now = d, now
		return nil
	})
}

// OnChange makes the set call f with every change, in order. f runs outside the set's
// lock, before the method that made the change returns. A batch is one change, and only
// one call of f runs at a time.
//
// f may read the set but must not modify it: a modifying call deadlocks. If f panics,
// that change is not delivered again, and later changes are still delivered. The panic
// continues in the call that was delivering.
func OnChange(f func(Change)) Option {
	return option(func(c *config) *ipalloc.Error {
		switch {
		case f == nil:
			return invalid("OnChange", "no function")
		case c.onChange != nil:
			return invalid("OnChange", "a second function")
		}
		c.onChange = f
		return nil
	})
}

// noOptions is the configuration without options. Nothing writes to it.
var noOptions config

// configure applies the options.
func configure(opts []Option) (*config, *ipalloc.Error) {
	if len(opts) == 0 {
		return &noOptions, nil
	}
	c := new(config)
	for i, opt := range opts {
		if opt == nil {
			return nil, invalid(fmt.Sprintf("opts[%d]", i), "nil option")
		}
		if err := opt.apply(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Op is the kind of a [Change].
type Op uint8

// Op values.
const (
	OpAllocate Op = iota + 1 // the set chose the prefixes
	OpOccupy                 // the caller named them
	OpRelease                // the caller gave them back
)

// String returns "allocate", "occupy" or "release".
func (o Op) String() string {
	if names := [...]string{OpAllocate: "allocate", OpOccupy: "occupy", OpRelease: "release"}; o != 0 && int(o) < len(names) {
		return names[o]
	}
	return "unknown"
}

// Change is one change of a [Set], as passed to the function given to [OnChange]. To
// reproduce the taken children in another set, occupy the prefixes of OpAllocate and
// OpOccupy there, and release the prefixes of OpRelease, in order.
type Change struct {
	Op       Op
	Prefixes []netip.Prefix // owned by the receiver
}

// changed queues a change for the receiver, if any. The lock is held.
func (s *Set) changed(op Op, ps ...netip.Prefix) {
	if s.changes != nil {
		s.changes.Add(Change{Op: op, Prefixes: append([]netip.Prefix(nil), ps...)})
	}
}
