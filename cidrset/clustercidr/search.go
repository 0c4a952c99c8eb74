package clustercidr

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

// below returns the topmost node inside b, none if b is free, and whether a larger
// claim covers all of b.
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
// modulo 2^128, at being the topmost node inside it. O(claims in the region).
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

// free returns how many blocks of the given size inside pool overlap no claim;
// 2^64-1 stands for that many or more.
func (s *space) free(pool block, size uint8) uint64 {
	at, taken := s.below(pool)
	if taken {
		return 0
	}
	used := s.blocked(at, size)
	if used.IsZero() {
		return saturate(int(size) - int(pool.bits))
	}
	n := addr.U128{Lo: 1}.Shl(uint(size - pool.bits)).Sub(used) // modulo 2^128, used not being 0
	if n.Hi != 0 {
		return 1<<64 - 1
	}
	return n.Lo
}

// saturate returns 2^order, or 2^64-1 if that is too large.
func saturate(order int) uint64 {
	if order >= 64 {
		return 1<<64 - 1
	}
	return 1 << order
}

// rival returns, of the claims of nodes other than o that overlap b, the owner of
// the shortest prefix around b, else of the lowest inside it; of several claims of
// that prefix the owner whose name is first. It returns nil if there is none.
func (s *space) rival(b block, o *owner) *owner {
	at := s.root
	for at != 0 && s.nodes[at].bits <= b.bits && (block{s.nodes[at].key, s.nodes[at].bits}).contains(b.key) {
		n := &s.nodes[at]
		if r := firstClaim(n.claims, o); r != nil {
			return r
		}
		if n.bits == b.bits {
			break
		}
		at = n.child[bit(b.key, n.bits)]
	}
	if at == 0 || !b.contains(s.nodes[at].key) {
		return nil
	}
	return s.rivalWithin(at, o)
}

func (s *space) rivalWithin(at uint32, o *owner) *owner {
	if at == 0 {
		return nil
	}
	n := &s.nodes[at]
	if r := firstClaim(n.claims, o); r != nil {
		return r
	}
	if r := s.rivalWithin(n.child[0], o); r != nil {
		return r
	}
	return s.rivalWithin(n.child[1], o)
}

// firstClaim returns the owner other than o that is first by name.
func firstClaim(c *claim, o *owner) (first *owner) {
	for ; c != nil; c = c.next {
		if c.owner != nil && c.owner != o && (first == nil || c.owner.name < first.name) {
			first = c.owner
		}
	}
	return first
}

// around calls f with every claimed prefix that contains b and is larger, and its
// claims, largest first.
func (s *space) around(b block, f func(block, *claim)) {
	for at := s.root; at != 0; {
		n := &s.nodes[at]
		if n.bits >= b.bits || !(block{n.key, n.bits}).contains(b.key) {
			return
		}
		if n.claims != nil {
			f(block{n.key, n.bits}, n.claims)
		}
		at = n.child[bit(b.key, n.bits)]
	}
}

// each calls f with every claimed prefix inside b and its claims, ascending, a
// prefix before those inside it.
func (s *space) each(b block, f func(block, *claim)) {
	at := s.root
	for at != 0 && s.nodes[at].bits < b.bits {
		if !(block{s.nodes[at].key, s.nodes[at].bits}).contains(b.key) {
			return
		}
		at = s.nodes[at].child[bit(b.key, s.nodes[at].bits)]
	}
	if at != 0 && b.contains(s.nodes[at].key) {
		s.eachBelow(at, f)
	}
}

func (s *space) eachBelow(at uint32, f func(block, *claim)) {
	if at == 0 {
		return
	}
	n := &s.nodes[at]
	if n.claims != nil {
		f(block{n.key, n.bits}, n.claims)
	}
	s.eachBelow(n.child[0], f)
	s.eachBelow(n.child[1], f)
}
