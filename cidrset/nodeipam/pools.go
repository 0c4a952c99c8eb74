package nodeipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/claims"
)

// AddPool adds a pool to a slot, after the slot's other pools. Prefixes in it that nodes
// already hold, or that are reserved, are taken. Adding a pool that the slot already has
// does nothing, so a program may add its pools at each start.
//
// It fails as [New] does. Field is "slot" for a slot that does not exist, or a pool that
// is in another slot. It fails with [ipalloc.ErrMismatch] if the allocator has no slots.
// On error nothing changes. O(pools).
func (a *Allocator) AddPool(slot int, p netip.Prefix) error {
	return update(a, OpAddPool, func(s *slots) (*Change, *ipalloc.Error) {
		pl, err := s.newPool(slot, p)
		if err != nil {
			return nil, err
		}
		if other := s.overlapping(p, nil); other != nil {
			if other.prefix != p {
				return nil, exists(p, other)
			}
			if other.slot != slot {
				err := exists(p, other)
				err.Field, err.Reason = "slot", fmt.Sprintf("the pool exists in slot %d", other.slot)
				return nil, err
			}
			return nil, nil
		}
		s.enter(pl, len(s.slots[slot].pools))
		return &Change{Slot: slot, Prefix: p, Pools: s.layout()}, nil
	})
}

// GrowPool replaces a pool by a larger pool that contains it, at the same position in its
// slot. Nodes keep their prefixes and the cursor does not move.
//
// It fails with [ipalloc.ErrNotFound] if from is not a pool, and with
// [ipalloc.ErrInvalid] if to is not a pool that contains from. It fails with
// [ipalloc.ErrExists] if to overlaps another pool, and with [ipalloc.ErrMismatch] if the
// allocator has no slots. On error nothing changes. O(pools).
func (a *Allocator) GrowPool(from, to netip.Prefix) error {
	return update(a, OpGrowPool, func(s *slots) (*Change, *ipalloc.Error) {
		if err := s.grow(from, to); err != nil {
			return nil, err
		}
		return &Change{Prefix: from, Grown: to, Pools: s.layout()}, nil
	})
}

// DrainPool stops allocation from a pool, or resumes it if on is false. Nodes keep their
// prefixes; [Allocator.Holders] lists them. DrainPool fails with [ipalloc.ErrNotFound] if
// there is no such pool, or with [ipalloc.ErrMismatch] if the allocator has no slots.
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
		return &Change{Prefix: p, Pools: s.layout()}, nil
	})
}

// RemovePool removes a pool if no node holds a prefix of it. A slot may be left without a
// pool; every Allocate then fails.
//
// It fails with [ipalloc.ErrNotFound] if there is no such pool. It fails with
// [ipalloc.ErrInUse] while nodes hold prefixes that overlap it; Holder is then the first
// of [Allocator.Holders]. It fails with [ipalloc.ErrMismatch] if the allocator has no
// slots. On error nothing changes.
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
		return &Change{Prefix: p, Pools: s.layout()}, nil
	})
}

func noPool(p netip.Prefix) *ipalloc.Error {
	return &ipalloc.Error{Pool: p, Err: ipalloc.ErrNotFound, Reason: "no such pool"}
}

// enter inserts a pool at a position of its slot.
func (s *slots) enter(pl *pool, at int) {
	sl := &s.slots[pl.slot]
	sl.pools = slices.Insert(sl.pools, at, pl)
	s.pools = slices.Insert(s.pools, s.after(pl.prefix), pl)
}

// leave removes a pool from its slot and returns its former position there.
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
		err.Field, err.Pool = "to", from
		return err
	}
	if other := s.overlapping(to, old); other != nil {
		return exists(to, other)
	}
	pl.cursor, pl.draining = old.cursor, old.draining
	s.enter(pl, s.leave(old))
	return nil
}

// layout returns the pools of all slots in their order, for a change; nil if there is no
// receiver.
func (s *slots) layout() (pools []PoolState) {
	if s.a.changes == nil {
		return nil
	}
	for i := range s.slots {
		for _, pl := range s.slots[i].pools {
			cursor := claims.Block{Key: pl.cursor, Bits: pl.size}.Prefix(pl.prefix.Addr().Is4()).Addr()
			pools = append(pools, PoolState{Slot: i, Prefix: pl.prefix, Draining: pl.draining, Cursor: cursor})
		}
	}
	return pools
}

// foreign returns the error of a call about entries.
func (*slots) foreign() *ipalloc.Error {
	return &ipalloc.Error{Err: ipalloc.ErrMismatch, Reason: "the allocator has slots and no entries"}
}

// apply sets the pools to their state after the change. If the state is later than the
// change, it goes back to the change, with its order and cursors, and later changes
// continue from there.
func (s *slots) apply(c *Change) *ipalloc.Error {
	if c.Op > OpRemovePool {
		return s.foreign()
	}
	then := &slots{a: s.a, slots: slices.Clone(s.slots)}
	for i := range then.slots {
		then.slots[i].pools = nil
	}
	shown := c.Op == OpRemovePool
	for _, st := range c.Pools {
		pl, err := then.newPool(st.Slot, st.Prefix)
		if err != nil {
			return err
		}
		if !st.Cursor.IsValid() || st.Cursor.Is4() != st.Prefix.Addr().Is4() {
			return invalidPrefix("Pools", st.Prefix, "no cursor")
		}
		pl.draining, pl.cursor = st.Draining, claims.BlockOf(netip.PrefixFrom(st.Cursor, int(pl.size))).Key
		if !pl.block.Starts(pl.cursor, pl.size) {
			return invalidPrefix("Pools", st.Prefix, "the cursor is no child")
		}
		then.slots[st.Slot].pools = append(then.slots[st.Slot].pools, pl)
		shown = shown || c.shows(st)
	}
	if !shown {
		return invalidPrefix("Pools", c.Prefix, "the change is not among them")
	}
	if err := then.arrange(); err != nil {
		return err
	}
	s.slots, s.pools = then.slots, then.pools
	return nil
}

// shows reports whether st is the state that the change gave its pool.
func (c *Change) shows(st PoolState) bool {
	switch c.Op {
	case OpAddPool:
		return st.Prefix == c.Prefix && st.Slot == c.Slot
	case OpGrowPool:
		return st.Prefix == c.Grown && c.Grown.Bits() <= c.Prefix.Bits() && c.Grown.Contains(c.Prefix.Addr())
	}
	return st.Prefix == c.Prefix && st.Draining == (c.Op == OpDrainPool)
}
