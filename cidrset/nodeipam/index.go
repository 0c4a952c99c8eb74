package nodeipam

import (
	"math/bits"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// index is a map from prefixes of both families to small numbers that answers, in
// time proportional to the prefix length at worst, which of its prefixes contain a
// given one and which lie inside it. Prefixes either nest or are disjoint, so that
// is all there is to overlap.
//
// It is a path-compressed binary trie: a node stands for the bits that all below
// it share, and a node without a value has two children. Nodes live in one slice
// and name each other by position; position 0 is never used and means none.
type index struct {
	nodes []indexNode
	spare uint32    // first of the nodes given back, chained by child[0]
	roots [2]uint32 // IPv4, IPv6
	count int       // prefixes with a value
}

type indexNode struct {
	key   addr.U128 // the prefix's address, from the highest bit down
	child [2]uint32
	value int32 // absent for a node that only branches
	bits  uint8
	v6    bool
}

const absent = -1

// keyOf returns the address of p from the highest bit down, and its family.
func keyOf(p netip.Prefix) (key addr.U128, family int) {
	key = addr.FromAddr(p.Addr())
	if p.Addr().Is4() {
		return key.Shl(96), 0
	}
	return key, 1
}

func (n *indexNode) prefix() netip.Prefix {
	a := n.key.Addr6()
	if !n.v6 {
		a = n.key.Shr(96).Addr4()
	}
	return netip.PrefixFrom(a, int(n.bits))
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

func (x *index) node(key addr.U128, length uint8, family int) uint32 {
	n := indexNode{key: key, bits: length, v6: family == 1, value: absent}
	if i := x.spare; i != 0 {
		x.spare = x.nodes[i].child[0]
		x.nodes[i] = n
		return i
	}
	if len(x.nodes) == 0 {
		x.nodes = append(x.nodes, indexNode{value: absent})
	}
	x.nodes = append(x.nodes, n)
	return uint32(len(x.nodes) - 1)
}

func (x *index) giveBack(i uint32) {
	x.nodes[i] = indexNode{value: absent, child: [2]uint32{x.spare}}
	x.spare = i
}

// get returns the value of p, absent if it has none.
func (x *index) get(p netip.Prefix) int32 {
	key, family := keyOf(p)
	length := uint8(p.Bits())
	for i := x.roots[family]; i != 0; {
		n := &x.nodes[i]
		if n.bits > length || shared(n.key, key) < n.bits {
			break
		}
		if n.bits == length {
			return n.value
		}
		i = n.child[bit(key, n.bits)]
	}
	return absent
}

// put gives p a value, which is not absent, in place of the one it has.
func (x *index) put(p netip.Prefix, value int32) { x.nodes[x.at(p)].value = value }

// add gives p a value unless it has one, and reports whether it had none.
func (x *index) add(p netip.Prefix, value int32) bool {
	n := &x.nodes[x.at(p)]
	if n.value != absent {
		return false
	}
	n.value = value
	return true
}

// at returns the position of the node of p, to which the caller gives a value if it
// has none.
func (x *index) at(p netip.Prefix) uint32 {
	key, family := keyOf(p)
	length := uint8(p.Bits())
	at, above, side := x.roots[family], uint32(0), 0
	link := func(i uint32) {
		if above == 0 {
			x.roots[family] = i
		} else {
			x.nodes[above].child[side] = i
		}
	}
	for {
		if at == 0 {
			at = x.node(key, length, family)
			link(at)
			x.count++
			return at
		}
		n := &x.nodes[at]
		same := min(shared(n.key, key), n.bits, length)
		if same == n.bits && same < length {
			side = bit(key, same)
			above, at = at, n.child[side]
			continue
		}
		if same < n.bits { // p, or the branch where it leaves n, goes above n
			below := bit(n.key, same)
			top := addr.Low(128).Shl(128 - uint(same)).And(key)
			i := x.node(top, same, family)
			x.nodes[i].child[below] = at
			link(i)
			if same == length {
				at = i
				continue
			}
			above, side, at = i, 1-below, 0
			continue
		}
		if n.value == absent {
			x.count++
		}
		return at
	}
}

// remove takes p out, if it is in.
func (x *index) remove(p netip.Prefix) {
	key, family := keyOf(p)
	length := uint8(p.Bits())
	var above, top uint32 // the parent of at, and its parent
	at := x.roots[family]
	for at != 0 && x.nodes[at].bits < length && shared(x.nodes[at].key, key) >= x.nodes[at].bits {
		top, above, at = above, at, x.nodes[at].child[bit(key, x.nodes[at].bits)]
	}
	if at == 0 {
		return
	}
	if n := &x.nodes[at]; n.bits != length || n.key != key || n.value == absent {
		return
	}
	x.nodes[at].value = absent
	x.count--
	x.collapse(at, above, family)
	if above != 0 {
		x.collapse(above, top, family)
	}
}

// collapse takes node at, whose parent is above, out of the trie if it has no
// value and fewer than two children.
func (x *index) collapse(at, above uint32, family int) {
	n := &x.nodes[at]
	if n.value != absent || (n.child[0] != 0 && n.child[1] != 0) {
		return
	}
	only := n.child[0] | n.child[1]
	if above == 0 {
		x.roots[family] = only
	} else {
		p := &x.nodes[above]
		p.child[bit(n.key, p.bits)] = only
	}
	x.giveBack(at)
}

// covering calls f with the value of every prefix that contains p, p itself
// included, shortest first, until f returns false. f must not change the index.
func (x *index) covering(p netip.Prefix, f func(q netip.Prefix, value int32) bool) {
	key, family := keyOf(p)
	for i := x.roots[family]; i != 0; {
		n := &x.nodes[i]
		if n.bits > uint8(p.Bits()) || shared(n.key, key) < n.bits {
			return
		}
		if n.value != absent && !f(n.prefix(), n.value) {
			return
		}
		if n.bits == uint8(p.Bits()) {
			return
		}
		i = n.child[bit(key, n.bits)]
	}
}

// cover returns the value of the shortest prefix that contains p, absent if none
// does.
func (x *index) cover(p netip.Prefix) int32 {
	key, family := keyOf(p)
	for i := x.roots[family]; i != 0; {
		n := &x.nodes[i]
		if n.bits > uint8(p.Bits()) || shared(n.key, key) < n.bits {
			break
		}
		if n.value != absent {
			return n.value
		}
		if n.bits == uint8(p.Bits()) {
			break
		}
		i = n.child[bit(key, n.bits)]
	}
	return absent
}

// within calls f with the value of every prefix inside p, p itself included,
// ascending, a prefix before those inside it, until f returns false. f must not
// change the index.
func (x *index) within(p netip.Prefix, f func(q netip.Prefix, value int32) bool) {
	key, family := keyOf(p)
	i := x.roots[family]
	for i != 0 && x.nodes[i].bits < uint8(p.Bits()) {
		if shared(x.nodes[i].key, key) < x.nodes[i].bits {
			return
		}
		i = x.nodes[i].child[bit(key, x.nodes[i].bits)]
	}
	if i != 0 && shared(x.nodes[i].key, key) >= uint8(p.Bits()) {
		x.walk(i, f)
	}
}

// all calls f with every prefix and its value, as within does, IPv4 first.
func (x *index) all(f func(q netip.Prefix, value int32) bool) {
	for _, root := range x.roots {
		if root != 0 && !x.walk(root, f) {
			return
		}
	}
}

func (x *index) walk(i uint32, f func(q netip.Prefix, value int32) bool) bool {
	n := &x.nodes[i]
	if n.value != absent && !f(n.prefix(), n.value) {
		return false
	}
	return (n.child[0] == 0 || x.walk(n.child[0], f)) && (n.child[1] == 0 || x.walk(n.child[1], f))
}

// overlaps reports whether a prefix of the index overlaps p.
func (x *index) overlaps(p netip.Prefix) (found bool) {
	if x.cover(p) != absent {
		return true
	}
	x.within(p, func(netip.Prefix, int32) bool { found = true; return false })
	return found
}
