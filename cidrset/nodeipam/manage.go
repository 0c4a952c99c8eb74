package nodeipam

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Holding is a prefix that an owner holds.
type Holding struct {
	Owner  string
	Prefix netip.Prefix
}

// Reserve takes p out of circulation, in the pools there are and in those that are
// added later. No owner can take it or, by being released, free it. Owners that
// hold something overlapping it keep it and are returned, as [Allocator.Holders]
// does. Reservations may overlap; again for the same prefix it does nothing.
//
// It fails with an [*Error] that matches [ErrBadPrefix]. Safe for concurrent use.
func (a *Allocator) Reserve(p netip.Prefix) ([]Holding, error) {
	if err := addr.Check(p); err != nil {
		return nil, &Error{Op: "reserve", Slot: -1, Prefix: p, Err: fmt.Errorf("%w: %w", ErrBadPrefix, err)}
	}
	a.mu.Lock()
	if a.reserve(p) {
		a.tell(Change{Op: OpReserve, Prefix: p})
	}
	in := a.holders(p)
	a.mu.Unlock()
	a.deliver()
	return in, nil
}

// Unreserve takes back the reservation of exactly p. What no owner and no other
// reservation overlaps becomes free.
//
// It fails with an [*Error] that matches [ErrBadPrefix] if p is not reserved.
// Safe for concurrent use.
func (a *Allocator) Unreserve(p netip.Prefix) error {
	a.mu.Lock()
	if addr.Check(p) != nil || a.reserved.get(p) == absent {
		a.mu.Unlock()
		return &Error{Op: "unreserve", Slot: -1, Prefix: p, Err: fmt.Errorf("%w: not reserved", ErrBadPrefix)}
	}
	a.reserved.remove(p)
	a.free(p)
	a.tell(Change{Op: OpUnreserve, Prefix: p})
	a.mu.Unlock()
	a.deliver()
	return nil
}

// Reserved returns the reservations, IPv4 first, ascending, a prefix before those
// inside it.
func (a *Allocator) Reserved() (ps []netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reserved.all(func(p netip.Prefix, _ int32) bool {
		ps = append(ps, p)
		return true
	})
	return ps
}

// AddPool adds a pool to a slot, behind those it has. What owners hold in it
// already, because a record said so, and what is reserved in it is taken.
//
// It fails with an [*Error] that matches [ErrNoSlot], [ErrFamily], [ErrBadPool],
// [ErrBadBits] or [ErrOverlap], as [New] does; nothing has changed then. Safe for
// concurrent use.
func (a *Allocator) AddPool(slot int, p netip.Prefix) error {
	a.mu.Lock()
	err := error(ErrNoSlot)
	if slot >= 0 && slot < len(a.slots) {
		err = a.addPool(slot, p)
	}
	if err != nil {
		a.mu.Unlock()
		return &Error{Op: "add pool", Slot: slot, Pool: p, Err: err}
	}
	a.tell(Change{Op: OpAddPool, Slot: slot, Prefix: p})
	a.mu.Unlock()
	a.deliver()
	return nil
}

// GrowPool replaces a pool by a larger one that contains it, in the same place of
// its slot. Owners keep what they hold, the cursor stays where it is.
//
// It fails with an [*Error] that matches [ErrNoPool]; [ErrBadPool] if the new pool
// is bad or does not contain the old one; [ErrBadBits] if it has too many children;
// [ErrOverlap]; nothing has changed then. O(prefixes in the new pool). Safe for
// concurrent use.
func (a *Allocator) GrowPool(from, to netip.Prefix) error {
	a.mu.Lock()
	if err := a.growPool(from, to); err != nil {
		a.mu.Unlock()
		return &Error{Op: "grow pool", Slot: -1, Pool: from, Prefix: to, Err: err}
	}
	a.tell(Change{Op: OpGrowPool, Prefix: from, Grown: to})
	a.mu.Unlock()
	a.deliver()
	return nil
}

func (a *Allocator) growPool(from, to netip.Prefix) error {
	old := a.pool(from)
	if old == nil {
		return ErrNoPool
	}
	pl, err := a.newPool(old.slot, to)
	switch {
	case err != nil:
		return err
	case to.Bits() > from.Bits() || !to.Contains(from.Addr()):
		return fmt.Errorf("%w: does not contain the old one", ErrBadPool)
	}
	if other := a.overlappingPool(to, old); other != nil {
		return fmt.Errorf("%w: %v", ErrOverlap, other.codec.Pool())
	}
	pl.cursor, _ = pl.codec.Ordinal(old.codec.Addr(old.cursor))
	pl.draining = old.draining
	at := a.leave(old)
	a.enter(pl)
	s := a.slots[pl.slot]
	copy(s.pools[at+1:], s.pools[at:])
	s.pools[at] = pl
	return nil
}

// DrainPool stops allocating from a pool. Owners keep what they hold; see
// [Allocator.Holders] for who they are. It fails with an [*Error] that matches
// [ErrNoPool]. Safe for concurrent use.
func (a *Allocator) DrainPool(p netip.Prefix) error { return a.drain(p, true, OpDrainPool) }

// UndrainPool allocates from a pool again. It fails with an [*Error] that matches
// [ErrNoPool]. Safe for concurrent use.
func (a *Allocator) UndrainPool(p netip.Prefix) error { return a.drain(p, false, OpUndrainPool) }

func (a *Allocator) drain(p netip.Prefix, on bool, op Op) error {
	a.mu.Lock()
	pl := a.pool(p)
	if pl == nil {
		a.mu.Unlock()
		return &Error{Op: op.String(), Slot: -1, Pool: p, Err: ErrNoPool}
	}
	if pl.draining != on {
		pl.draining = on
		a.tell(Change{Op: op, Prefix: p})
	}
	a.mu.Unlock()
	a.deliver()
	return nil
}

// RemovePool removes a pool in which no owner holds anything. A slot may be left
// without a pool; nothing can be allocated then.
//
// It fails with an [*Error] that matches [ErrNoPool], or [ErrInUse] together with
// the holdings that are left; nothing has changed then. Safe for concurrent use.
func (a *Allocator) RemovePool(p netip.Prefix) ([]Holding, error) {
	a.mu.Lock()
	pl := a.pool(p)
	if pl == nil {
		a.mu.Unlock()
		return nil, &Error{Op: "remove pool", Slot: -1, Pool: p, Err: ErrNoPool}
	}
	if in := a.holders(p); len(in) > 0 {
		a.mu.Unlock()
		return in, &Error{Op: "remove pool", Slot: pl.slot, Pool: p, Other: in[0].Owner,
			Err: fmt.Errorf("%w: %d prefixes, the first", ErrInUse, len(in))}
	}
	a.leave(pl)
	a.tell(Change{Op: OpRemovePool, Prefix: p})
	a.mu.Unlock()
	a.deliver()
	return nil, nil
}

// pool returns the pool that is exactly p, nil if there is none.
func (a *Allocator) pool(p netip.Prefix) *pool {
	if addr.Check(p) != nil {
		return nil
	}
	if i := a.poolIndex.get(p); i != absent {
		return a.pools[i]
	}
	return nil
}

// Holders returns who holds something that overlaps p: a pool, a reservation, any
// prefix. Larger prefixes that contain p come first, then those inside it,
// ascending, the owners of one prefix by name. Safe for concurrent use.
func (a *Allocator) Holders(p netip.Prefix) []Holding {
	if addr.Check(p) != nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.holders(p)
}

func (a *Allocator) holders(p netip.Prefix) (in []Holding) {
	add := func(q netip.Prefix, first int32) bool {
		at := len(in)
		in = append(in, Holding{a.owners[first].name, q})
		for _, i := range a.others[q] {
			in = append(in, Holding{a.owners[i].name, q})
		}
		slices.SortFunc(in[at:], func(x, y Holding) int { return strings.Compare(x.Owner, y.Owner) })
		return true
	}
	a.claims.covering(p, func(q netip.Prefix, first int32) bool { return q == p || add(q, first) })
	a.claims.within(p, add)
	return in
}

// Prefixes returns what the owner holds, nil if nothing. Safe for concurrent use.
func (a *Allocator) Prefixes(name string) []netip.Prefix { return a.AppendPrefixes(nil, name) }

// AppendPrefixes appends to dst what the owner holds. It does not allocate if dst
// has room. Safe for concurrent use.
func (a *Allocator) AppendPrefixes(dst []netip.Prefix, name string) []netip.Prefix {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := a.owner(name); o != nil {
		dst = append(dst, o.prefixes...)
	}
	return dst
}

// Has reports whether the owner holds anything. Safe for concurrent use.
func (a *Allocator) Has(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.owner(name) != nil
}

// Owners returns the owners by name with what they hold, as it was when the loop
// began. No lock is held while the body runs. The prefixes are the body's to keep.
func (a *Allocator) Owners() iter.Seq2[string, []netip.Prefix] {
	return func(yield func(string, []netip.Prefix) bool) {
		a.mu.Lock()
		sorted := a.sortedOwners()
		nodes := make([]Node, len(sorted))
		for i, o := range sorted {
			nodes[i] = Node{Name: o.name, Prefixes: clone(o.prefixes)}
		}
		a.mu.Unlock()
		for _, n := range nodes {
			if !yield(n.Name, n.Prefixes) {
				return
			}
		}
	}
}

// sortedOwners returns the owners by name. The lock is held.
func (a *Allocator) sortedOwners() []*owner {
	sorted := make([]*owner, 0, len(a.numbers))
	for _, i := range a.numbers {
		sorted = append(sorted, &a.owners[i])
	}
	slices.SortFunc(sorted, func(x, y *owner) int { return strings.Compare(x.name, y.name) })
	return sorted
}
