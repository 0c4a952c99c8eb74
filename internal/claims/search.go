package claims

import (
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// Next returns the lowest block of the given size inside pool that begins at or
// after from and overlaps no claim. The size is not shorter than the pool's length,
// and from is a multiple of it.
//
// O(depth of the trie): on the way to from it looks at each node once; then it
// enters only subtrees that have room.
func (s *Space[O]) Next(pool Block, size uint8, from addr.U128) (addr.U128, bool) {
	at, taken := s.inside(pool)
	if taken {
		return addr.U128{}, false
	}
	return s.find(pool, at, size, from)
}

// inside returns the topmost node inside b, 0 if there is none, and whether a larger
// claim covers all of b.
func (s *Space[O]) inside(b Block) (at uint32, covered bool) {
	for at = s.root; at != 0 && s.nodes[at].bits < b.Bits; {
		invariant.Step(1)
		n := &s.nodes[at]
		if !(Block{n.key, n.bits}).Contains(b.Key) {
			return 0, covered
		}
		covered = covered || n.claims != nil
		at = n.child[bit(b.Key, n.bits)]
	}
	if at != 0 && !b.Contains(s.nodes[at].key) {
		at = 0
	}
	return at, covered
}

// find is next in a region of which everything outside node at is free.
//
//	region  |......................................|
//	node         |=============|
//	        free   has a child    free
func (s *Space[O]) find(region Block, at uint32, size uint8, from addr.U128) (addr.U128, bool) {
	if from.Cmp(region.Key) < 0 {
		from = region.Key
	}
	end := region.Last()
	if from.Cmp(end) > 0 {
		return from, false
	}
	if at == 0 {
		return from, true
	}
	invariant.Step(1)
	n := &s.nodes[at]
	// A node no larger than a block spoils the one block that it is in.
	in := Block{truncate(n.key, size), size}
	if n.bits < size {
		in = Block{n.key, n.bits}
	}
	if from.Cmp(in.Key) < 0 || from.Cmp(in.Last()) > 0 {
		return from, true
	}
	if n.best <= size { // so n.bits < size
		for side, child := range n.child {
			if got, ok := s.find(in.half(side), child, size, from); ok {
				return got, true
			}
		}
	}
	if in.Last() == end {
		return from, false
	}
	return in.Last().Add(addr.U128{Lo: 1}), true
}

// blocked returns how many blocks of the given size inside region overlap a claim,
// modulo 2^128; at is the topmost node inside it. O(claims in the region).
func (s *Space[O]) blocked(at uint32, size uint8) addr.U128 {
	if at == 0 {
		return addr.U128{}
	}
	n := &s.nodes[at]
	switch {
	case n.bits >= size:
		return addr.U128{Lo: 1}
	case n.best > size:
		return addr.U128{Lo: 1}.Shl(uint(size - n.bits))
	}
	return s.blocked(n.child[0], size).Add(s.blocked(n.child[1], size))
}

// Counts are numbers of blocks; 2^64-1 stands for that many or more.
type Counts struct {
	Capacity, Used, Reserved, Free uint64
}

// Tally counts the blocks of the given size inside pool. It returns their number, and
// how many overlap a claim but no reservation, overlap a reservation, and overlap
// nothing. O(claims in the pool).
func (s *Space[O]) Tally(pool Block, size uint8) (c Counts) {
	order := uint(size - pool.Bits)
	if c.Capacity = 1<<64 - 1; order < 64 {
		c.Capacity = 1 << order
	}
	at, covered := s.inside(pool)
	if at == 0 && !covered {
		c.Free = c.Capacity
		return c
	}
	all := addr.U128{Lo: 1}.Shl(order) // 0 for 2^128
	taken := all
	if !covered {
		taken = s.blocked(at, size)
	}
	c.Free = clamp(all.Sub(taken))
	whole := false
	s.Overlapping(pool, func(b Block, held *Claim[O]) bool {
		whole = b.Bits <= pool.Bits && held.reservation() != nil
		return !whole && b.Bits < pool.Bits
	})
	if whole {
		c.Reserved = c.Capacity
		return c
	}
	barred := s.reservedBelow(at, size)
	c.Used, c.Reserved = clamp(taken.Sub(barred)), clamp(barred)
	return c
}

// reservedBelow returns how many blocks of the given size overlap a reservation in the
// subtree of node at.
func (s *Space[O]) reservedBelow(at uint32, size uint8) addr.U128 {
	if at == 0 {
		return addr.U128{}
	}
	n := &s.nodes[at]
	if n.claims.reservation() != nil {
		return addr.U128{Lo: 1}.Shl(uint(max(size, n.bits) - n.bits))
	}
	sum := s.reservedBelow(n.child[0], size).Add(s.reservedBelow(n.child[1], size))
	if n.bits >= size && !sum.IsZero() { // parts of one block
		return addr.U128{Lo: 1}
	}
	return sum
}

// Reservation returns the claim of a reservation of exactly b, nil if there is none.
func (s *Space[O]) Reservation(b Block) *Claim[O] {
	at, _ := s.inside(b)
	if at == 0 || s.nodes[at].bits != b.Bits {
		return nil
	}
	return s.nodes[at].claims.reservation()
}

// reservation returns c, the first claim of a prefix, if it is a reservation.
func (c *Claim[O]) reservation() *Claim[O] {
	if c != nil && c.Owner != nil {
		return nil
	}
	return c
}

// clamp returns u, or 2^64-1 if that is less.
func clamp(u addr.U128) uint64 {
	if u.Hi != 0 {
		return 1<<64 - 1
	}
	return u.Lo
}

// Overlapping calls f with each claimed prefix that overlaps b and its claims until f
// returns false: the prefixes around b, largest first, then those inside it, ascending.
func (s *Space[O]) Overlapping(b Block, f func(Block, *Claim[O]) bool) {
	at := s.root
	for at != 0 && s.nodes[at].bits < b.Bits {
		n := &s.nodes[at]
		q := Block{n.key, n.bits}
		if !q.Contains(b.Key) || n.claims != nil && !f(q, n.claims) {
			return
		}
		at = n.child[bit(b.Key, n.bits)]
	}
	if at != 0 && b.Contains(s.nodes[at].key) {
		s.until(at, f)
	}
}

func (s *Space[O]) until(at uint32, f func(Block, *Claim[O]) bool) bool {
	if at == 0 {
		return true
	}
	n := &s.nodes[at]
	if n.claims != nil && !f(Block{n.key, n.bits}, n.claims) {
		return false
	}
	return s.until(n.child[0], f) && s.until(n.child[1], f)
}
