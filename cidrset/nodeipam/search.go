package nodeipam

import (
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// next returns the lowest block of the given size inside pool that begins at or
// after from and overlaps no claim. The size is no shorter than the pool's length
// and from is a multiple of it.
//
// O(depth of the trie): on the way to from it looks at each node once; then it
// enters only subtrees that have room.
func (s *space) next(pool block, size uint8, from addr.U128) (addr.U128, bool) {
	at, taken := s.below(pool)
	if taken {
		return addr.U128{}, false
	}
	return s.find(pool, at, size, from)
}

// below returns the topmost node inside b, 0 if b is free, and whether a larger claim
// covers all of b.
func (s *space) below(b block) (at uint32, taken bool) {
	for at = s.root; at != 0; {
		invariant.Step(1)
		n := &s.nodes[at]
		if n.bits >= b.bits {
			if b.contains(n.key) {
				return at, false
			}
			return 0, false
		}
		if !(block{n.key, n.bits}).contains(b.key) {
			return 0, false
		}
		if n.claims != nil {
			return 0, true
		}
		at = n.child[bit(b.key, n.bits)]
	}
	return 0, false
}

// find is next in a region of which everything outside node at is free.
//
//	region  |......................................|
//	node         |=============|
//	        free   has a child    free
func (s *space) find(region block, at uint32, size uint8, from addr.U128) (addr.U128, bool) {
	if from.Cmp(region.key) < 0 {
		from = region.key
	}
	end := region.last()
	if from.Cmp(end) > 0 {
		return from, false
	}
	if at == 0 {
		return from, true
	}
	invariant.Step(1)
	n := &s.nodes[at]
	// A node no larger than a block spoils the one block that it is in.
	in := block{truncate(n.key, size), size}
	if n.bits < size {
		in = block{n.key, n.bits}
	}
	if from.Cmp(in.key) < 0 {
		return from, true
	}
	if from.Cmp(in.last()) > 0 {
		return from, true
	}
	if n.best <= size { // so n.bits < size
		for side, child := range n.child {
			if got, ok := s.find(in.half(side), child, size, from); ok {
				return got, true
			}
		}
	}
	if in.last() == end {
		return from, false
	}
	return in.last().Add(addr.U128{Lo: 1}), true
}

// blocked returns how many blocks of the given size inside region overlap a claim,
// modulo 2^128; at is the topmost node inside it. O(claims in the region).
func (s *space) blocked(at uint32, size uint8) addr.U128 {
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

// tally returns how many blocks of the given size inside pool overlap a claim but no
// reservation, overlap a reservation, and overlap nothing; 2^64-1 stands for that many
// or more. O(claims in the pool).
func (s *space) tally(pool block, size uint8) (used, reserved, free uint64) {
	all := addr.U128{Lo: 1}.Shl(uint(size - pool.bits)) // 0 for 2^128
	taken := all
	at, covered := s.below(pool)
	if !covered {
		taken = s.blocked(at, size)
	}
	if free = clamp(all.Sub(taken)); !covered && at == 0 {
		free = saturate(int(size) - int(pool.bits))
	}
	whole := false
	s.overlapping(pool, func(b block, c *claim) bool {
		whole = b.bits <= pool.bits && isReserved(c)
		return !whole && b.bits < pool.bits
	})
	if whole {
		return 0, saturate(int(size) - int(pool.bits)), free
	}
	at, _ = s.inside(pool)
	barred := s.reservedBelow(at, size)
	return clamp(taken.Sub(barred)), clamp(barred), free
}

// reservedBelow returns how many blocks of the given size overlap a reservation in the
// subtree of node at.
func (s *space) reservedBelow(at uint32, size uint8) addr.U128 {
	if at == 0 {
		return addr.U128{}
	}
	n := &s.nodes[at]
	if isReserved(n.claims) {
		return addr.U128{Lo: 1}.Shl(uint(max(size, n.bits) - n.bits))
	}
	sum := s.reservedBelow(n.child[0], size).Add(s.reservedBelow(n.child[1], size))
	if n.bits >= size && !sum.IsZero() { // parts of one block
		return addr.U128{Lo: 1}
	}
	return sum
}

// isReserved reports whether one of the claims is a reservation.
func isReserved(c *claim) bool {
	for ; c != nil; c = c.next {
		if c.owner == nil {
			return true
		}
	}
	return false
}

// clamp returns u, or 2^64-1 if that is less.
func clamp(u addr.U128) uint64 {
	if u.Hi != 0 {
		return 1<<64 - 1
	}
	return u.Lo
}

// saturate returns 2^order, or 2^64-1 if that is too large.
func saturate(order int) uint64 {
	if order >= 64 {
		return 1<<64 - 1
	}
	return 1 << order
}

// rival returns the owner of a claim that overlaps b, other than o: of the shortest
// prefix around b, else of the lowest inside it; of several claims of that prefix the
// owner whose name sorts first. It returns nil if there is none.
func (s *space) rival(b block, o *owner) (found *owner) {
	s.overlapping(b, func(_ block, c *claim) bool {
		for ; c != nil; c = c.next {
			if c.owner != nil && c.owner != o && (found == nil || c.owner.name < found.name) {
				found = c.owner
			}
		}
		return found == nil
	})
	return found
}

// isReserved reports whether a reservation overlaps b.
func (s *space) isReserved(b block) (found bool) {
	s.overlapping(b, func(_ block, c *claim) bool {
		found = isReserved(c)
		return !found
	})
	return found
}

// overlapping calls f with each claimed prefix that overlaps b and its claims until f
// returns false: the prefixes around b, largest first, then those inside it, ascending.
func (s *space) overlapping(b block, f func(block, *claim) bool) {
	at := s.root
	for at != 0 && s.nodes[at].bits < b.bits {
		n := &s.nodes[at]
		q := block{n.key, n.bits}
		if !q.contains(b.key) || n.claims != nil && !f(q, n.claims) {
			return
		}
		at = n.child[bit(b.key, n.bits)]
	}
	if at != 0 && b.contains(s.nodes[at].key) {
		s.until(at, f)
	}
}

func (s *space) until(at uint32, f func(block, *claim) bool) bool {
	if at == 0 {
		return true
	}
	n := &s.nodes[at]
	if n.claims != nil && !f(block{n.key, n.bits}, n.claims) {
		return false
	}
	return s.until(n.child[0], f) && s.until(n.child[1], f)
}

// inside returns the topmost node inside b, 0 if there is none, and the claims of
// exactly b.
func (s *space) inside(b block) (at uint32, same *claim) {
	for at = s.root; at != 0 && s.nodes[at].bits < b.bits; {
		if !(block{s.nodes[at].key, s.nodes[at].bits}).contains(b.key) {
			return 0, nil
		}
		at = s.nodes[at].child[bit(b.key, s.nodes[at].bits)]
	}
	if at == 0 || !b.contains(s.nodes[at].key) {
		return 0, nil
	}
	if s.nodes[at].bits == b.bits {
		same = s.nodes[at].claims
	}
	return at, same
}
