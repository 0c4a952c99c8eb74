package nodeipam

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/claims"
)

// AddPool adds a pool to a slot, behind the pools it has. What nodes hold in it
// already, and what is reserved in it, is taken.
//
// It fails as [New] does, with Field "slot" for a slot that does not exist, and with
// [ipalloc.ErrMismatch] if the allocator has no slots; nothing has changed then.
// O(pools).
func (a *Allocator) AddPool(slot int, p netip.Prefix) error {
	return update(a, OpAddPool, func(s *slots) (*Change, *ipalloc.Error) {
		pl, err := s.newPool(slot, p)
		if err != nil {
			return nil, err
		}
		if other := s.overlapping(p, nil); other != nil {
			return nil, exists(p, other)
		}
		s.enter(pl, len(s.slots[slot].pools))
		return &Change{Slot: slot, Prefix: p}, nil
	})
}

// GrowPool replaces a pool by a larger one that contains it, at the same place of its
// slot. Nodes keep what they hold and the cursor stays where it is.
//
// It fails with an [*ipalloc.Error] that matches [ipalloc.ErrNotFound] without the
// pool from; [ipalloc.ErrInvalid] if to is not a pool that contains it;
// [ipalloc.ErrExists] if it overlaps another pool; [ipalloc.ErrMismatch] if the
// allocator has no slots. Nothing has changed then. O(pools).
func (a *Allocator) GrowPool(from, to netip.Prefix) error {
	return update(a, OpGrowPool, func(s *slots) (*Change, *ipalloc.Error) {
		if err := s.grow(from, to); err != nil {
			return nil, err
		}
		pl := s.pool(to)
		cursor := claims.Block{Key: pl.cursor, Bits: pl.size}.Prefix(to.Addr().Is4()).Addr()
		return &Change{Prefix: from, Grown: to, Cursor: cursor}, nil
	})
}

// DrainPool stops allocation from a pool, or with on false resumes it. Nodes keep what
// they hold; [Allocator.Holders] lists them. It fails with an [*ipalloc.Error] that
// matches [ipalloc.ErrNotFound] without the pool, or [ipalloc.ErrMismatch] if the
// allocator has no slots.
func (a *Allocator) DrainPool(p netip.Prefix, on bool) error {
	op := OpDrainPool
	if !on {
		op = OpUndrainPool
	}
	return update(a, op, func(s *slots) (*Change, *ipalloc.Error) {
		pl := s.pool(p)
		switch {
		case pl == nil:
			return nil, noPool(p)
		case pl.draining == on:
			return nil, nil
		}
		pl.draining = on
		return &Change{Prefix: p}, nil
	})
}

// RemovePool removes a pool in which no node holds anything. A slot may be left
// without a pool; nothing can be allocated then.
//
// It fails with an [*ipalloc.Error] that matches [ipalloc.ErrNotFound] without the
// pool; [ipalloc.ErrInUse], with the first of [Allocator.Holders] in Holder, while nodes
// hold something that overlaps it; [ipalloc.ErrMismatch] if the allocator has no slots.
// Nothing has changed then.
func (a *Allocator) RemovePool(p netip.Prefix) error {
	return update(a, OpRemovePool, func(s *slots) (*Change, *ipalloc.Error) {
		pl := s.pool(p)
		if pl == nil {
			return nil, noPool(p)
		}
		if holder, _ := a.rival(p, nil, len(a.owners)+1); holder != nil {
			return nil, &ipalloc.Error{Pool: p, Holder: holder.name, Err: ipalloc.ErrInUse}
		}
		s.leave(pl)
		return &Change{Prefix: p}, nil
	})
}

func noPool(p netip.Prefix) *ipalloc.Error {
	return &ipalloc.Error{Pool: p, Err: ipalloc.ErrNotFound, Reason: "no such pool"}
}

// enter puts a pool at a place of its slot.
func (s *slots) enter(pl *pool, at int) {
	sl := &s.slots[pl.slot]
	sl.pools = slices.Insert(sl.pools, at, pl)
	s.pools = slices.Insert(s.pools, s.after(pl.prefix), pl)
}

// leave takes a pool out of its slot and returns the place that it had there.
func (s *slots) leave(pl *pool) int {
	sl := &s.slots[pl.slot]
	at := slices.Index(sl.pools, pl)
	sl.pools = slices.Delete(sl.pools, at, at+1)
	i := s.after(pl.prefix) - 1
	s.pools = slices.Delete(s.pools, i, i+1)
	return at
}

func (s *slots) grow(from, to netip.Prefix) *ipalloc.Error {
	old := s.pool(from)
	if old == nil {
		return noPool(from)
	}
	pl, err := s.newPool(old.slot, to)
	if err == nil && (to.Bits() > from.Bits() || !to.Contains(from.Addr())) {
		err = invalidPrefix("to", to, "does not contain the pool")
	}
	if err != nil {
		err.Pool = from
		return err
	}
	if other := s.overlapping(to, old); other != nil {
		return exists(to, other)
	}
	pl.cursor, pl.draining = old.cursor, old.draining
	s.enter(pl, s.leave(old))
	return nil
}

// apply makes a change of pools. A change that another pool stands in the way of is
// left out, because a later one, which the state shows already, put that pool there.
func (s *slots) apply(c *Change) *ipalloc.Error {
	pl := s.pool(c.Prefix)
	switch c.Op {
	case OpAddPool:
		fresh, err := s.newPool(c.Slot, c.Prefix)
		if err != nil {
			return err
		}
		switch {
		case pl != nil && pl.slot == c.Slot: // as it was when it was added; later changes follow
			pl.cursor, pl.draining = fresh.cursor, false
		case s.overlapping(c.Prefix, nil) == nil:
			s.enter(fresh, len(s.slots[c.Slot].pools))
		}
	case OpGrowPool:
		if err := checkPool(c.Grown); err != nil {
			return invalid("Grown", err.Error())
		}
		if pl != nil && s.overlapping(c.Grown, pl) == nil {
			if err := s.grow(c.Prefix, c.Grown); err != nil {
				return err
			}
		}
		if pl = s.pool(c.Grown); pl != nil && c.Cursor.IsValid() {
			if cursor := claims.BlockOf(netip.PrefixFrom(c.Cursor, int(pl.size))).Key; pl.block.Starts(cursor, pl.size) {
				pl.cursor = cursor
			}
		}
	case OpDrainPool, OpUndrainPool:
		if pl != nil {
			pl.draining = c.Op == OpDrainPool
		}
	case OpRemovePool:
		if pl != nil {
			s.leave(pl)
		}
	default:
		return &ipalloc.Error{Err: ipalloc.ErrMismatch, Reason: "a change of entries, and the allocator has slots"}
	}
	return nil
}
