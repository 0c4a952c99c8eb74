// Package claims is an index of taken prefixes, for allocators whose pools may overlap,
// be added and removed, and have children of different sizes.
package claims

import (
	"math/bits"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// Space is a multiset of claimed prefixes of one address family. The prefixes have
// any length and may nest and repeat. One descent finds the first block of a given
// size, in a given pool, at or after a given address, that no claim overlaps.
//
// It is a path-compressed binary trie of the claimed prefixes. A node stands for
// the bits that everything below it shares; it is claimed or has two children. An
// edge that skips several bits leaves blocks beside it, which are free. The field
// best of a node is the size of the largest free block inside it, so a search
// enters only nodes that have room. The trie has no grid: claims of all sizes
// coexist, and a pool costs nothing until something in it is claimed.
//
//	 10.0.0.0/14 branches, best /16 (the larger free half of its left side)
//	├── 10.0.0.0/24 claimed
//	└── 10.2.0.0/15 branches, best /16
//	    ├── 10.2.7.0/24 claimed
//	    └── 10.3.0.0/16 claimed
//
// Addresses are numbers aligned to the highest of 128 bits, so an IPv4 prefix is an
// ordinary block of at most 32 bits. Nodes live in one slice and refer to each other
// by position; position 0 is unused and means no node.
type Space[O any] struct {
	nodes []node[O]
	spare uint32 // first of the free nodes, which are chained by child[0]
	root  uint32
}

type node[O any] struct {
	key    addr.U128
	claims *Claim[O] // of exactly this prefix, linked both ways, reservations first
	child  [2]uint32
	bits   uint8
	best   uint8 // prefix length of the largest free block, none if there is none
}

// none is longer than any prefix length: a node without room compares as too small
// for every block.
const none = 255

// Claim is one claim of one prefix. O is the type of its owner.
type Claim[O any] struct {
	Owner      *O // nil for a reservation
	prev, next *Claim[O]
}

// Next returns the next claim of the same prefix, nil after the last: reservations
// first, then the others, the latest first.
func (c *Claim[O]) Next() *Claim[O] { return c.next }

// Block is a prefix of one family as a Space sees it.
type Block struct {
	Key  addr.U128 // the address, aligned to the highest of 128 bits
	Bits uint8
}

const maxDepth = 129 // nodes from the root to the deepest leaf: lengths 0 to 128

// BlockOf returns p as a block.
func BlockOf(p netip.Prefix) Block {
	key := addr.FromAddr(p.Addr())
	if p.Addr().Is4() {
		key = key.Shl(96)
	}
	return Block{key, uint8(p.Bits())}
}

// Prefix returns the prefix that b stands for, an IPv4 one if v4 is set.
func (b Block) Prefix(v4 bool) netip.Prefix {
	if v4 {
		return netip.PrefixFrom(b.Key.Shr(96).Addr4(), int(b.Bits))
	}
	return netip.PrefixFrom(b.Key.Addr6(), int(b.Bits))
}

// Last returns the last number of b.
func (b Block) Last() addr.U128 { return b.Key.Or(addr.Low(128 - uint(b.Bits))) }

// Contains reports whether b contains a block that begins at key and is not larger.
func (b Block) Contains(key addr.U128) bool { return shared(b.Key, key) >= b.Bits }

// half returns the lower (0) or upper (1) half of b.
func (b Block) half(side int) Block {
	h := Block{b.Key, b.Bits + 1}
	if side == 1 {
		h.Key = h.Key.Or(addr.U128{Lo: 1}.Shl(127 - uint(b.Bits)))
	}
	return h
}

// Starts reports whether a block of the given size inside b begins at key.
func (b Block) Starts(key addr.U128, size uint8) bool {
	return b.Contains(key) && truncate(key, size) == key
}

// truncate returns key with all but its highest n bits cleared.
func truncate(key addr.U128, n uint8) addr.U128 {
	return key.And(addr.Low(128).Shl(128 - uint(n)))
}

// bit returns bit i of key, counted from the highest.
func bit(key addr.U128, i uint8) int {
	if i < 64 {
		return int(key.Hi >> (63 - i) & 1)
	}
	return int(key.Lo >> (127 - i) & 1)
}

// shared returns how many of the highest bits a and b have in common.
func shared(a, b addr.U128) uint8 {
	if x := a.Hi ^ b.Hi; x != 0 {
		return uint8(bits.LeadingZeros64(x))
	}
	return uint8(64 + bits.LeadingZeros64(a.Lo^b.Lo))
}

// walk is a path from the root: the nodes passed and the side taken at each.
type walk struct {
	at    [maxDepth]uint32
	side  [maxDepth]uint8
	depth int
}

func (w *walk) push(i uint32, side int) {
	w.at[w.depth], w.side[w.depth] = i, uint8(side)
	w.depth++
}

// Grow makes room for n more claims. A claim takes two nodes at most.
func (s *Space[O]) Grow(n int) { s.nodes = slices.Grow(s.nodes, 2*n) }

// Put adds a claim of b and reports whether no other claim overlaps b. It allocates
// only when the slice of nodes grows.
func (s *Space[O]) Put(b Block, c *Claim[O]) (alone bool) {
	var w walk
	alone = true
	at := s.root
	for at != 0 {
		invariant.Step(1)
		n := &s.nodes[at]
		if n.bits >= b.Bits || !(Block{n.key, n.bits}).Contains(b.Key) {
			break
		}
		alone = alone && n.claims == nil
		side := bit(b.Key, n.bits)
		w.push(at, side)
		at = n.child[side]
	}
	if at != 0 && s.nodes[at].bits == b.Bits && s.nodes[at].key == b.Key {
		n := &s.nodes[at]
		c.prev, c.next = nil, n.claims
		for c.Owner != nil && c.next != nil && c.next.Owner == nil {
			invariant.Step(1)
			c.prev, c.next = c.next, c.next.next
		}
		n.join(c.prev, c)
		n.join(c, c.next)
		n.best = none
		s.climb(&w)
		return false // the node was claimed, or has claims below it
	}
	i := s.node(b.Key, b.Bits)
	c.prev, c.next = nil, nil
	s.nodes[i].claims = c
	if at != 0 { // b, or the branch where it leaves the node, goes above the node
		old := &s.nodes[at]
		same := min(shared(old.key, b.Key), old.bits, b.Bits)
		if same == b.Bits {
			alone = false
			s.nodes[i].child[bit(old.key, same)] = at
		} else {
			side := bit(b.Key, same)
			top := s.node(truncate(b.Key, same), same)
			s.nodes[top].child[side], s.nodes[top].child[1-side] = i, at
			s.nodes[top].best = s.bestOf(top)
			i = top
		}
	}
	s.link(&w, i)
	s.climb(&w)
	return alone
}

// join makes y follow x among the claims of n; without x it is the first, without y x is
// the last.
func (n *node[O]) join(x, y *Claim[O]) {
	if x != nil {
		x.next = y
	} else {
		n.claims = y
	}
	if y != nil {
		y.prev = x
	}
}

// Remove removes a claim of b, however many others b has. It does not allocate.
func (s *Space[O]) Remove(b Block, c *Claim[O]) {
	var w walk
	at := s.root
	for s.nodes[at].bits != b.Bits {
		invariant.Step(1)
		side := bit(b.Key, s.nodes[at].bits)
		w.push(at, side)
		at = s.nodes[at].child[side]
	}
	n := &s.nodes[at]
	n.join(c.prev, c.next)
	c.prev, c.next = nil, nil
	switch {
	case n.claims != nil:
		return
	case n.child[0] != 0 && n.child[1] != 0:
		n.best = s.bestOf(at)
	case n.child[0]|n.child[1] != 0:
		s.link(&w, n.child[0]|n.child[1])
		s.giveBack(at)
	default:
		s.giveBack(at)
		s.link(&w, 0)
		if w.depth == 0 {
			return
		}
		above := w.at[w.depth-1]
		if s.nodes[above].claims != nil {
			return
		}
		w.depth--
		s.link(&w, s.nodes[above].child[1-w.side[w.depth]])
		s.giveBack(above)
	}
	s.climb(&w)
}

// link makes i the end of the walk.
func (s *Space[O]) link(w *walk, i uint32) {
	if w.depth == 0 {
		s.root = i
		return
	}
	s.nodes[w.at[w.depth-1]].child[w.side[w.depth-1]] = i
}

// climb updates the summaries of the walk's nodes from the last upward and stops at
// the first that does not change.
func (s *Space[O]) climb(w *walk) {
	for d := w.depth - 1; d >= 0; d-- {
		invariant.Step(1)
		n := &s.nodes[w.at[d]]
		best := s.bestOf(w.at[d])
		if best == n.best {
			return
		}
		n.best = best
	}
}

// bestOf computes the summary of node i from its children.
func (s *Space[O]) bestOf(i uint32) uint8 {
	n := &s.nodes[i]
	if n.claims != nil {
		return none
	}
	best := uint8(none)
	for _, c := range n.child {
		child := &s.nodes[c]
		b := child.best
		if child.bits > n.bits+1 {
			b = n.bits + 2 // the first block to leave the edge
		}
		best = min(best, b)
	}
	return best
}

func (s *Space[O]) node(key addr.U128, length uint8) uint32 {
	n := node[O]{key: key, bits: length, best: none}
	if i := s.spare; i != 0 {
		s.spare = s.nodes[i].child[0]
		s.nodes[i] = n
		return i
	}
	if len(s.nodes) == 0 {
		s.nodes = append(s.nodes, node[O]{best: none})
	}
	s.nodes = append(s.nodes, n)
	return uint32(len(s.nodes) - 1)
}

func (s *Space[O]) giveBack(i uint32) {
	s.nodes[i] = node[O]{best: none, child: [2]uint32{s.spare}}
	s.spare = i
}
