package nodeipam

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Config says what an [Allocator] hands out.
type Config struct {
	// Slots has one entry for each prefix of a node, in the order of its podCIDRs.
	Slots []Slot
	// Reserved are prefixes that no owner can take or free, whatever pools there are
	// or come later: service CIDRs, for example. They may overlap one another.
	Reserved []netip.Prefix
}

// Slot is one prefix of every node and where it comes from.
type Slot struct {
	Bits  int            // prefix length of what a node gets
	Pools []netip.Prefix // at least one, of one family, tried in this order
}

// Allocator gives each owner one prefix for each slot. Make one with [New] or
// [Restore]; the zero value is unusable. It is safe for concurrent use and must
// not be copied.
type Allocator struct {
	events *events // nil without OnChange

	mu          sync.Mutex
	slots       []*slot
	pools       []*pool // by the number in poolIndex; nil where one was removed
	poolIndex   index   // pool prefix -> its number
	reserved    index   // reservations
	claims      index   // every prefix that is held -> its first owner
	others      map[netip.Prefix][]int32
	owners      []owner // by number
	numbers     map[string]int32
	spare       []int32 // numbers of owners that are gone
	held        int     // owners there are
	terminating int
	loads       uint32 // calls of Load
	scratch     []netip.Prefix
}

type slot struct {
	bits  int
	v4    bool
	pools []*pool
}

// pool is one cluster CIDR. A child is taken if a claim or a reservation overlaps
// it, and only then.
type pool struct {
	slot     int
	codec    addr.Codec
	taken    *bitmap.Bitmap
	cursor   uint64 // ordinal at which to look for the next free child
	draining bool
}

// owner is what is known of an owner. Its prefixes are in the order of the slots
// when the allocator chose them, else as they were given.
type owner struct {
	name        string
	prefixes    []netip.Prefix
	terminating bool
	load        uint32 // the Load that last listed it
}

// An Option changes how an [Allocator] works or whom it tells.
type Option func(*Allocator) error

// OnChange has f called with every change, in the order in which they happened,
// before the method that made the change returns and outside the allocator's
// lock. [Allocator.Load] is one change. f may read the allocator; it must not
// change it. One f is called at a time.
func OnChange(f func(Change)) Option {
	return func(a *Allocator) error {
		switch {
		case f == nil:
			return fmt.Errorf("%w: no function to call on a change", ErrBadOption)
		case a.events != nil:
			return fmt.Errorf("%w: two functions to call on a change", ErrBadOption)
		}
		a.events = &events{f: f}
		return nil
	}
}

// New returns an allocator in which nobody holds anything.
//
// It fails with an [*Error] that names slot and pool and matches [ErrNoSlot]
// without a slot; [ErrNoPool] for a slot without a pool; [ErrFamily] for a slot
// of two families; [ErrBadPool] and [ErrBadBits] as cidrset.New does;
// [ErrOverlap] for a pool that overlaps another of any slot; [ErrBadPrefix] for
// a bad reservation; [ErrBadOption]. Nothing is repaired silently.
func New(c Config, opts ...Option) (*Allocator, error) {
	a := &Allocator{numbers: map[string]int32{}, others: map[netip.Prefix][]int32{}}
	for _, opt := range opts {
		err := fmt.Errorf("%w: nil", ErrBadOption)
		if opt != nil {
			err = opt(a)
		}
		if err != nil {
			return nil, &Error{Op: "new", Slot: -1, Err: err}
		}
	}
	if len(c.Slots) == 0 {
		return nil, &Error{Op: "new", Slot: -1, Err: fmt.Errorf("%w: none is configured", ErrNoSlot)}
	}
	for i, s := range c.Slots {
		if len(s.Pools) == 0 {
			return nil, &Error{Op: "new", Slot: i, Err: fmt.Errorf("%w: none is configured", ErrNoPool)}
		}
		a.slots = append(a.slots, &slot{bits: s.Bits, v4: s.Pools[0].Addr().Is4()})
		for _, p := range s.Pools {
			if err := a.addPool(i, p); err != nil {
				return nil, &Error{Op: "new", Slot: i, Pool: p, Err: err}
			}
		}
	}
	for _, p := range c.Reserved {
		if err := addr.Check(p); err != nil {
			return nil, &Error{Op: "new", Slot: -1, Prefix: p, Err: fmt.Errorf("%w: reservation: %w", ErrBadPrefix, err)}
		}
		a.reserve(p)
	}
	return a, nil
}

// addPool adds a pool to slot i, with what is held and reserved in it taken.
func (a *Allocator) addPool(i int, p netip.Prefix) error {
	pl, err := a.newPool(i, p)
	if err != nil {
		return err
	}
	if other := a.overlappingPool(p, nil); other != nil {
		return fmt.Errorf("%w: %v", ErrOverlap, other.codec.Pool())
	}
	a.enter(pl)
	return nil
}

// newPool returns an empty pool that is in no index yet.
func (a *Allocator) newPool(i int, p netip.Prefix) (*pool, error) {
	s := a.slots[i]
	if err := addr.Check(p); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPool, err)
	}
	if p.Addr().Is4() != s.v4 {
		return nil, ErrFamily
	}
	codec, err := addr.NewCodec(p, s.bits)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadBits, err)
	}
	return &pool{slot: i, codec: codec, taken: bitmap.NewPow2(codec.Order())}, nil
}

// overlappingPool returns a pool that overlaps p, but for the given one.
func (a *Allocator) overlappingPool(p netip.Prefix, but *pool) (found *pool) {
	a.eachPool(p, func(pl *pool) {
		if pl != but {
			found = pl
		}
	})
	return found
}

// enter makes pl the last pool of its slot and marks what is taken in it.
func (a *Allocator) enter(pl *pool) {
	number := slices.Index(a.pools, nil)
	if number < 0 {
		number = len(a.pools)
		a.pools = append(a.pools, nil)
	}
	a.pools[number] = pl
	a.poolIndex.put(pl.codec.Pool(), int32(number))
	s := a.slots[pl.slot]
	s.pools = append(s.pools, pl)
	a.mark(pl, pl.codec.Pool())
}

// leave takes pl out of its slot and returns the place that it had there.
func (a *Allocator) leave(pl *pool) int {
	s := a.slots[pl.slot]
	at := slices.Index(s.pools, pl)
	s.pools = slices.Delete(s.pools, at, at+1)
	a.pools[slices.Index(a.pools, pl)] = nil
	a.poolIndex.remove(pl.codec.Pool())
	return at
}

// mark takes the children of pl that a claim or a reservation inside p, or around
// p, overlaps.
func (a *Allocator) mark(pl *pool, p netip.Prefix) {
	for _, x := range []*index{&a.claims, &a.reserved} {
		if x.cover(p) != absent {
			pl.set(p)
			return
		}
		x.within(p, func(q netip.Prefix, _ int32) bool {
			pl.set(q)
			return true
		})
	}
}

// set takes the children that p overlaps and reports whether all were free.
func (pl *pool) set(p netip.Prefix) bool {
	lo, hi, _ := pl.codec.Locate(p)
	return pl.taken.SetRange(lo, hi)-1 == hi-lo
}

// eachPool calls f with every pool that overlaps p.
func (a *Allocator) eachPool(p netip.Prefix, f func(*pool)) {
	if i := a.poolIndex.cover(p); i != absent {
		f(a.pools[i])
		return // pools do not overlap
	}
	a.poolIndex.within(p, func(_ netip.Prefix, i int32) bool {
		f(a.pools[i])
		return true
	})
}

// owner returns the owner of that name, nil if it holds nothing.
func (a *Allocator) owner(name string) *owner {
	if i, ok := a.numbers[name]; ok {
		return &a.owners[i]
	}
	return nil
}

// newOwner returns an owner without prefixes; the caller gives it some.
func (a *Allocator) newOwner(name string) (*owner, int32) {
	var i int32
	if n := len(a.spare); n > 0 {
		i = a.spare[n-1]
		a.spare = a.spare[:n-1]
	} else {
		i = int32(len(a.owners))
		a.owners = append(a.owners, owner{})
	}
	a.numbers[name] = i
	a.held++
	o := &a.owners[i]
	o.name, o.prefixes = name, o.prefixes[:0]
	return o, i
}

func (a *Allocator) setTerminating(o *owner, on bool) {
	if o.terminating != on {
		o.terminating = on
		if on {
			a.terminating++
		} else {
			a.terminating--
		}
	}
}

// claim records that owner number i holds p, and reports whether every child that
// p overlaps was free.
func (a *Allocator) claim(p netip.Prefix, i int32) (clean bool) {
	if !a.claims.add(p, i) {
		a.others[p] = append(a.others[p], i)
	}
	clean = true
	a.eachPool(p, func(pl *pool) { clean = pl.set(p) && clean })
	return clean
}

// disclaim takes back that owner number i holds p. Children that no other claim
// and no reservation overlaps become free.
func (a *Allocator) disclaim(p netip.Prefix, i int32) {
	if more := a.others[p]; len(more) > 0 {
		if a.claims.get(p) == i {
			a.claims.put(p, more[0])
			more = more[1:]
		} else if at := slices.Index(more, i); at >= 0 {
			more = slices.Delete(more, at, at+1)
		}
		if len(more) == 0 {
			delete(a.others, p)
		} else {
			a.others[p] = more
		}
		return
	}
	a.claims.remove(p)
	a.free(p)
}

// free makes the children that p overlaps free, but for those that are still
// claimed or reserved.
func (a *Allocator) free(p netip.Prefix) {
	a.eachPool(p, func(pl *pool) {
		lo, hi, rel := pl.codec.Locate(p)
		q := p
		switch rel {
		case addr.Part: // a neighbour may hold another part of the child
			q = pl.codec.Prefix(lo)
		case addr.Larger:
			q = pl.codec.Pool()
		}
		pl.taken.ClearRange(lo, hi)
		a.mark(pl, q)
	})
}

// reserve adds a reservation; it reports whether it was new.
func (a *Allocator) reserve(p netip.Prefix) bool {
	if !a.reserved.add(p, 0) {
		return false
	}
	a.eachPool(p, func(pl *pool) { pl.set(p) })
	return true
}
