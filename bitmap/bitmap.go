package bitmap

import (
	"fmt"
	"math"
	"math/bits"
)

const (
	fanBits = 6 // log2 of a node's slots: one machine word summarises them all
	fan     = 1 << fanBits

	// pageShift is the shift of a leaf: each of its 64 slots is one word.
	pageShift = fanBits
	pageBits  = pageShift + fanBits
	pageSize  = 1 << pageBits

	// maxDepth is the number of levels over 2^64 ordinals: shifts 6, 12, ... 60.
	maxDepth = 10
)

// Bitmap is a set of ordinals [0, n). Make a Bitmap with [New] or [NewPow2]; the zero
// value is an empty set over no ordinals, ready for [Bitmap.UnmarshalBinary].
//
// A Bitmap must not be copied after first use, and is not safe for concurrent use.
type Bitmap struct {
	last  uint64 // n-1
	some  bool   // n > 0
	count uint64 // set ordinals modulo 2^64: a full set over 2^64 counts 0

	// touched is set once root exists. Until then root is zero and every ordinal is
	// clear. A zero root reads as a page without set ordinals, so only code that looks
	// for clear ordinals or changes ordinals checks touched.
	touched bool

	// root covers [0, 2^(shift+6)) for the smallest such power of 64 that holds n.
	// Ordinals from n on stay set, so no search finds them clear. It is part of the
	// Bitmap, which saves a load on the way to a word.
	root node

	// pages[i] is the page of the ordinals from i*pageSize on if the page's parent has
	// shift pageBits, else nil. A flip then finds its page with one load, where a walk
	// down the tree does dependent loads. In a root of that shift it is the root's own
	// array of children. Below the next larger root, it is the arrays of the root's
	// children laid end to end; see gather. A root that is a page is the only one, in
	// alone. It is nil for any other root, and a walk finds the pages.
	pages []*node
	alone [1]*node

	pool *pool // unused nodes; nil until there is one
}

// New returns an empty set over [0, n). It costs one allocation for any n.
func New(n uint64) *Bitmap {
	if n == 0 {
		return &Bitmap{}
	}
	return &Bitmap{last: n - 1, some: true}
}

// NewPow2 returns an empty set over [0, 2^order). It panics unless order is in
// [0, 64]. Order 64 is the whole of uint64. It costs one allocation for any order.
func NewPow2(order int) *Bitmap {
	if uint(order) > 64 {
		badOrder(order)
	}
	return &Bitmap{last: math.MaxUint64 >> (64 - uint(order)), some: true}
}

//go:noinline
func badOrder(order int) { panic(fmt.Sprintf("bitmap: order %d out of range [0, 64]", order)) }

// Len returns n, the number of ordinals, set or not. For 2^64 ordinals it returns
// [math.MaxUint64], the same as for 2^64-1; [Bitmap.Last] tells them apart. O(1).
func (b *Bitmap) Len() uint64 {
	if !b.some {
		return 0
	}
	if b.last == math.MaxUint64 {
		return math.MaxUint64
	}
	return b.last + 1
}

// Last returns n-1, the highest ordinal; ok is false if n is 0. O(1).
func (b *Bitmap) Last() (last uint64, ok bool) { return b.last, b.some }

// Count returns how many ordinals are set, saturating at [math.MaxUint64]. O(1).
func (b *Bitmap) Count() uint64 {
	if b.count == 0 && b.Full() && b.some {
		return math.MaxUint64
	}
	return b.count
}

// Empty reports whether no ordinal is set; true if n is 0. O(1).
func (b *Bitmap) Empty() bool { return b.count == 0 && (!b.some || !b.Full()) }

// Full reports whether every ordinal is set; true if n is 0. O(1).
func (b *Bitmap) Full() bool {
	if !b.touched {
		return !b.some
	}
	return b.root.room == 0
}

// check panics if x is not an ordinal of the set.
func (b *Bitmap) check(x uint64) {
	if x > b.last || !b.some {
		b.outOfRange(x)
	}
}

// ready panics if x is not an ordinal of the set, and allocates the root if needed.
func (b *Bitmap) ready(x uint64) {
	if x > b.last || !b.touched {
		b.prepare(x)
	}
}

//go:noinline
func (b *Bitmap) prepare(x uint64) {
	b.check(x)
	b.plant()
}

func (b *Bitmap) checkRange(lo, hi uint64) {
	b.check(hi)
	if lo > hi {
		panic(fmt.Sprintf("bitmap: range [%d, %d] is inverted", lo, hi))
	}
}

//go:noinline
func (b *Bitmap) outOfRange(x uint64) {
	if !b.some {
		panic(fmt.Sprintf("bitmap: ordinal %d out of range: the set has none", x))
	}
	panic(fmt.Sprintf("bitmap: ordinal %d out of range [0, %d]", x, b.last))
}

// Test reports whether x is set. It panics if x is out of range. O(log64 n).
func (b *Bitmap) Test(x uint64) bool {
	b.check(x)
	nd := &b.root
	for nd.kid != nil {
		step(1)
		c := nd.slot(x)
		if !nd.mixed(c) {
			return nd.some>>c&1 != 0
		}
		kid := nd.kid[c]
		if !kid.holds(x) {
			return kid.outer
		}
		nd = kid
	}
	step(1)
	return nd.words[nd.slot(x)]>>(x%64)&1 != 0
}

// Word returns the aligned word of 64 ordinals that contains x, lowest ordinal in the
// lowest bit. Bits of ordinals >= n are 1. It panics if x is out of range. O(log64 n).
func (b *Bitmap) Word(x uint64) uint64 {
	b.check(x)
	if !b.touched {
		if x|63 <= b.last {
			return 0
		}
		return ^uint64(0) << (b.last%64 + 1)
	}
	nd := &b.root
	for nd.kid != nil {
		step(1)
		c := nd.slot(x)
		if !nd.mixed(c) {
			return fill(nd.some>>c&1 != 0)
		}
		kid := nd.kid[c]
		if !kid.holds(x) {
			return fill(kid.outer)
		}
		nd = kid
	}
	step(1)
	return nd.words[nd.slot(x)]
}

// Equal reports whether b and o have the same n and the same ordinals set. O(pages).
func (b *Bitmap) Equal(o *Bitmap) bool {
	if b.some != o.some || b.last != o.last {
		return false
	}
	for x, state := uint64(0), true; b.some; state = !state {
		edge, ok := b.nextOf(x, state)
		if other, is := o.nextOf(x, state); is != ok || ok && other != edge {
			return false
		}
		if !ok {
			break
		}
		x = edge
	}
	return true
}

// Clone returns a copy that shares nothing with b. O(pages).
func (b *Bitmap) Clone() *Bitmap {
	c := &Bitmap{last: b.last, some: b.some, count: b.count}
	if b.touched {
		c.root, c.touched = *b.root.clone(), true
		c.gather(0)
	}
	return c
}

// fill returns the word whose bits all have the given state.
func fill(state bool) uint64 {
	if state {
		return ^uint64(0)
	}
	return 0
}

// from returns the mask of bits c and above; c may be 64.
func from(c uint64) uint64 {
	if c > 63 {
		return 0
	}
	return ^uint64(0) << c
}

// through returns the mask of bits c and below; c is at most 63.
func through(c uint64) uint64 { return ^uint64(0) >> (63 - c) }

func lowest(w uint64) uint64 { return uint64(bits.TrailingZeros64(w)) }
