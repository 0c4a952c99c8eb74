package nodeipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Stats are the counts of an [Allocator] at one moment.
type Stats struct {
	Owners      int // that hold something
	Terminating int // of these, about to go
	Prefixes    int // distinct ones held, in a pool or not
	Slots       []SlotStats
}

// SlotStats are the counts of one slot.
type SlotStats struct {
	Bits  int // prefix length of a child
	Pools []PoolStats
}

// PoolStats are the counts of one pool in children, saturating at the largest
// uint64. Capacity = Used + Reserved + Free.
type PoolStats struct {
	Pool     netip.Prefix
	Draining bool
	Capacity uint64
	Used     uint64 // taken by owners alone
	Reserved uint64 // overlapped by a reservation
	Free     uint64
}

// Stats returns the counts. O(pools and reservations). Safe for concurrent use.
func (a *Allocator) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := Stats{Owners: a.held, Terminating: a.terminating, Prefixes: a.claims.count}
	for _, s := range a.slots {
		ss := SlotStats{Bits: s.bits}
		for _, pl := range s.pools {
			ss.Pools = append(ss.Pools, a.poolStats(pl))
		}
		st.Slots = append(st.Slots, ss)
	}
	return st
}

func (a *Allocator) poolStats(pl *pool) PoolStats {
	taken := pl.taken.Count()
	ps := PoolStats{Pool: pl.codec.Pool(), Draining: pl.draining, Capacity: pl.taken.Len()}
	switch {
	case pl.taken.Full():
	case taken == 0:
		ps.Free = ps.Capacity
	default:
		ps.Free = pl.codec.Last() - taken + 1
	}
	if a.reserved.cover(ps.Pool) != absent {
		ps.Reserved = ps.Capacity
		return ps
	}
	next := uint64(0) // reservations nest, and several may meet in one child
	a.reserved.within(ps.Pool, func(p netip.Prefix, _ int32) bool {
		lo, hi, _ := pl.codec.Locate(p)
		if lo = max(lo, next); lo <= hi {
			ps.Reserved += hi - lo + 1
			next = hi + 1 // above 0: the whole pool was covered above
		}
		return next != 0
	})
	ps.Used = taken - ps.Reserved
	return ps
}

// Check recomputes everything the allocator derives from who holds what and
// returns the first contradictions, nil if there is none. It is for tests and for
// state that came from outside. O(everything). Safe for concurrent use.
func (a *Allocator) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	errs := []error{a.checkOwners()}
	for _, x := range []*index{&a.claims, &a.reserved, &a.poolIndex} {
		errs = append(errs, x.check())
	}
	pools := 0
	for i, s := range a.slots {
		for _, pl := range s.pools {
			pools++
			errs = append(errs, a.checkPool(i, pl))
		}
	}
	if pools != a.poolIndex.count {
		errs = append(errs, fmt.Errorf("%d pools, %d in the index", pools, a.poolIndex.count))
	}
	if err := errors.Join(errs...); err != nil {
		return &Error{Op: "check", Slot: -1, Err: err}
	}
	return nil
}

func (a *Allocator) checkPool(slot int, pl *pool) error {
	p := pl.codec.Pool()
	number := a.poolIndex.get(p)
	if pl.slot != slot || number == absent || a.pools[number] != pl {
		return fmt.Errorf("pool %v is not where the index says", p)
	}
	if pl.codec.ChildBits() != a.slots[slot].bits || p.Addr().Is4() != a.slots[slot].v4 || pl.cursor > pl.codec.Last() {
		return fmt.Errorf("pool %v does not fit slot %d", p, slot)
	}
	if other := a.overlappingPool(p, pl); other != nil {
		return fmt.Errorf("pools %v and %v overlap", p, other.codec.Pool())
	}
	want := bitmap.NewPow2(pl.codec.Order())
	for _, x := range []*index{&a.claims, &a.reserved} {
		x.all(func(q netip.Prefix, _ int32) bool {
			if lo, hi, rel := pl.codec.Locate(q); rel != addr.Foreign {
				want.SetRange(lo, hi)
			}
			return true
		})
	}
	if err := pl.taken.Check(); err != nil {
		return err
	}
	if !want.Equal(pl.taken) {
		return fmt.Errorf("pool %v: taken %v, want %v", p, pl.taken, want)
	}
	return nil
}

func (a *Allocator) checkOwners() error {
	held := map[netip.Prefix][]int32{}
	terminating := 0
	for name, i := range a.numbers {
		o := &a.owners[i]
		if o.name != name || len(o.prefixes) == 0 {
			return fmt.Errorf("owner %q is kept as %q with %v", name, o.name, o.prefixes)
		}
		if o.terminating {
			terminating++
		}
		for _, p := range o.prefixes {
			if slices.Contains(held[p], i) || addr.Check(p) != nil {
				return fmt.Errorf("owner %q holds a bad %v", name, p)
			}
			held[p] = append(held[p], i)
		}
	}
	if len(held) != a.claims.count || terminating != a.terminating || len(a.numbers) != a.held ||
		len(a.numbers)+len(a.spare) != len(a.owners) {
		return fmt.Errorf("%d prefixes, %d terminating, %d owners, %d spare: want %d, %d, %d, %d", a.claims.count,
			a.terminating, a.held, len(a.spare), len(held), terminating, len(a.numbers), len(a.owners)-len(a.numbers))
	}
	shared := 0
	for p, want := range held {
		got := append([]int32{a.claims.get(p)}, a.others[p]...)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			return fmt.Errorf("prefix %v is held by %v, want %v", p, got, want)
		}
		if len(want) > 1 {
			shared++
		}
	}
	if shared != len(a.others) {
		return fmt.Errorf("%d prefixes with several owners, want %d", len(a.others), shared)
	}
	return nil
}

// check returns the first contradiction in the trie.
func (x *index) check() error {
	seen, count := 0, 0
	var down func(i uint32, above *indexNode, side int) error
	down = func(i uint32, above *indexNode, side int) error {
		if i == 0 {
			return nil
		}
		n := &x.nodes[i]
		seen++
		if n.value != absent {
			count++
		}
		switch p := n.prefix(); {
		case p != p.Masked():
			return fmt.Errorf("index: %v is not masked", p)
		case n.value == absent && (n.child[0] == 0 || n.child[1] == 0):
			return fmt.Errorf("index: %v has no value and does not branch", p)
		case above != nil && (n.bits <= above.bits || n.v6 != above.v6 ||
			shared(n.key, above.key) < above.bits || bit(n.key, above.bits) != side):
			return fmt.Errorf("index: %v below %v", p, above.prefix())
		}
		return errors.Join(down(n.child[0], n, 0), down(n.child[1], n, 1))
	}
	for family, root := range x.roots {
		if root != 0 && x.nodes[root].v6 != (family == 1) {
			return fmt.Errorf("index: root of the wrong family")
		}
		if err := down(root, nil, 0); err != nil {
			return err
		}
	}
	for i := x.spare; i != 0; i = x.nodes[i].child[0] {
		seen++
	}
	if len(x.nodes) > 0 {
		seen++ // position 0
	}
	if seen != len(x.nodes) || count != x.count {
		return fmt.Errorf("index: %d nodes and %d prefixes, want %d and %d", seen, count, len(x.nodes), x.count)
	}
	return nil
}
