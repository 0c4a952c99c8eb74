package bitmap

import (
	"math/bits"

	"github.com/ipalloc/ipalloc/internal/invariant"
)

// A node is a page (kid == nil) or an inner node. Both cover the ordinals
// [base, base + 2^(shift+6)) in 64 slots of 2^shift ordinals each.
//
// The bits room and some are the state of a slot: room alone means clear, some alone
// means set, both mean mixed. Every slot has at least one of the two bits.
//
// Paths are compressed. Ordinal 5,000,000 alone in a set of 2^36 looks like this:
//
//	root    shift 30  slot 0 is mixed, slots 1 to 63 are clear
//	          |       no inner nodes of shifts 24, 18 and 12 between them
//	page    shift 6   base 4,997,120, outer false: all of root's slot 0
//	                  outside [4,997,120, 5,001,215] is clear
//	          word 45 bit 0 is set
//
// A node is 560 bytes. The Go allocator puts 8 bytes before an object of this size, so it
// just fits the size class of 576 bytes. With 9 bytes more it would need the class of
// 640.
type node struct {
	room uint64 // slot c has a clear ordinal
	some uint64 // slot c has a set ordinal

	// base is the first ordinal, a multiple of 2^(shift+6).
	base uint64

	// kid holds the child of every mixed slot; nil for a page. A slot that is not
	// mixed has no child, except a page kept as a spare, whose contents then agree
	// with the slot's state.
	kid *[fan]*node

	// order is the order summary, nil until the first call of BestFit or
	// MaxClearOrder; see order.go.
	order *order

	shift uint8 // log2 of the ordinals in a slot: 6 for a page, 12, 18 ... 60 above

	// outer is the state of the ordinals that are in the node's slot but outside the
	// node; false if there are none.
	outer bool

	// spare is 1 + the page's index in pool.spare if the page is kept in a slot that is
	// not mixed, else 0.
	spare uint8

	// reported is the orders of a page that its parent has recorded, or unreported; see
	// order.go.
	reported uint16

	// words are the ordinals of a page. In an inner node, words[c] counts the set
	// ordinals of slot c that are below n.
	words [fan]uint64
}

func step(n int) {
	if invariant.Enabled {
		invariant.Step(n)
	}
}

// slot returns the slot of ordinal x.
func (nd *node) slot(x uint64) uint64 { return x >> (nd.shift & 63) % fan }

// start returns the first ordinal of slot c.
func (nd *node) start(c uint64) uint64 { return nd.base + c<<(nd.shift&63) }

// end returns the last ordinal of the node.
func (nd *node) end() uint64 {
	return nd.base | (1<<(nd.shift+fanBits) - 1) // a shift of 64 or more gives 0
}

// holds reports whether x is within the node.
func (nd *node) holds(x uint64) bool { return (x^nd.base)>>(nd.shift&63) < fan }

func (nd *node) mixed(c uint64) bool { return nd.room&nd.some>>c&1 != 0 }

// smaller reports whether kid is smaller than a slot of nd.
func (nd *node) smaller(kid *node) bool { return kid.shift+fanBits != nd.shift }

// stale marks the order summaries of the slots in mask as out of date.
func (nd *node) stale(mask uint64) {
	if nd.order != nil {
		nd.order.stale |= mask
	}
}

// state returns the bits room and some of the slot of nd that holds kid.
func (nd *node) state(kid *node) (room, some uint64) {
	room, some = nonzero(kid.room), nonzero(kid.some)
	if nd.smaller(kid) {
		if kid.outer {
			some = 1
		} else {
			room = 1
		}
	}
	return room, some
}

// sync updates the two bits of slot c from its child and reports whether they changed.
func (nd *node) sync(c uint64) bool {
	room, some := nd.state(nd.kid[c])
	wasRoom, wasSome := nd.room, nd.some
	nd.room = wasRoom&^(1<<c) | room<<c
	nd.some = wasSome&^(1<<c) | some<<c
	return nd.room != wasRoom || nd.some != wasSome
}

// mark makes the slots in mask wholly clear or wholly set.
func (nd *node) mark(mask uint64, state bool) {
	if state {
		nd.some |= mask
		nd.room &^= mask
	} else {
		nd.room |= mask
		nd.some &^= mask
	}
}

// wipe makes nd a node over the 2^(shift+6) ordinals around x, all of them in
// the given state. An inner node must have no children left.
func (b *Bitmap) wipe(nd *node, x uint64, state bool) {
	nd.base = x &^ (1<<(nd.shift+fanBits) - 1)
	nd.outer = false
	nd.reported = unreported
	nd.stale(^uint64(0))
	nd.mark(^uint64(0), state)
	switch {
	case nd.kid == nil && state:
		nd.words = allSet
	case nd.kid == nil || !state:
		nd.words = [fan]uint64{}
	default:
		for c := range uint64(fan) {
			nd.words[c] = b.size(nd, c)
		}
	}
}

// allSet holds the words of a page that is wholly set.
var allSet = func() (w [fan]uint64) {
	for i := range w {
		w[i] = ^uint64(0)
	}
	return w
}()

// size returns how many ordinals below n slot c of nd has. A slot of 2^64 does
// not exist, so the number always fits.
func (b *Bitmap) size(nd *node, c uint64) uint64 {
	lo := nd.start(c)
	if lo > b.last || c > (^uint64(0)-nd.base)>>nd.shift { // beyond n, or beyond 2^64
		return 0
	}
	return min(b.last-lo, 1<<nd.shift-1) + 1
}

// total returns how many ordinals of the node are set. The node must not reach
// beyond n.
func (nd *node) total() (sum uint64) {
	step(fan)
	for _, w := range nd.words {
		if nd.kid == nil {
			sum += uint64(bits.OnesCount64(w))
		} else {
			sum += w
		}
	}
	return sum
}

func (nd *node) clone() *node {
	c := *nd
	c.order, c.spare, c.reported = nil, 0, unreported
	if nd.kid == nil {
		return &c
	}
	c.kid = new([fan]*node)
	for m := nd.room & nd.some; m != 0; m &= m - 1 {
		i := lowest(m)
		c.kid[i] = nd.kid[i].clone()
	}
	return &c
}

// rootShift is the shift of a root over [0, last].
func rootShift(last uint64) uint8 {
	shift := uint8(pageShift)
	for shift+fanBits < 64 && last>>(shift+fanBits) != 0 {
		shift += fanBits
	}
	return shift
}

// plant makes the root of an untouched set: ordinals up to last are clear, those beyond
// are set. If n is not a multiple of a slot, plant also makes a path of nodes down to n.
func (b *Bitmap) plant() {
	b.root.plant(rootShift(b.last), b.last)
	b.touched = true
	b.gather(0)
}

func (nd *node) plant(shift uint8, last uint64) {
	*nd = node{shift: shift, room: ^uint64(0), base: last &^ (1<<(shift+fanBits) - 1), reported: unreported}
	c := nd.slot(last)
	nd.mark(from(c+1), true)
	cut := last&(1<<shift-1) != 1<<shift-1 // n lies inside slot c
	if shift == pageShift {
		for i := c + 1; i < fan; i++ {
			nd.words[i] = ^uint64(0)
		}
		if cut {
			nd.words[c] = from(last%64 + 1)
			nd.some |= 1 << c
		}
		return
	}
	nd.kid = new([fan]*node)
	if cut {
		nd.kid[c] = new(node)
		nd.kid[c].plant(shift-fanBits, last)
		nd.sync(c)
	}
}
