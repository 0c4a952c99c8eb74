package bitmap

import "math/bits"

// NextSet returns the lowest set ordinal at or after x; ok is false if there is
// none. It panics if x is out of range. O(log64 n).
func (b *Bitmap) NextSet(x uint64) (next uint64, ok bool) {
	b.check(x)
	_, next, ok = b.seek(x, true)
	return next, ok && next <= b.last
}

// NextClear returns the lowest clear ordinal at or after x; ok is false if there
// is none. It panics if x is out of range. O(log64 n).
func (b *Bitmap) NextClear(x uint64) (next uint64, ok bool) {
	b.check(x)
	if !b.touched {
		return x, true
	}
	_, next, ok = b.seek(x, false)
	return next, ok
}

// SetNextClear sets and returns the lowest clear ordinal at or after x. If there is none,
// it takes the lowest clear ordinal of the set. ok is false if the set is full. It panics
// if x is out of range. O(log64 n), and little more than [Bitmap.Set] alone when a clear
// ordinal is near.
func (b *Bitmap) SetNextClear(x uint64) (next uint64, ok bool) {
	page := b.near(x)
	if page == nil {
		return b.setNextFar(x)
	}
	c, w := page.clearFrom(x)
	if w == 0 {
		return b.setNextSlow(x)
	}
	next = page.base + c*64 + lowest(w)
	b.tally(next, 1)
	if b.root.order != nil {
		b.mark(next)
	}
	if page.set(next, w&-w) {
		b.setEdge(page, next)
	}
	return next, true
}

// setNextFar is SetNextClear where near has no page.
func (b *Bitmap) setNextFar(x uint64) (next uint64, ok bool) {
	b.ready(x)
	if b.pages != nil {
		return b.setNextSlow(x) // most likely the page does not exist
	}
	page := b.descend(x, 1) // assumes that the page has a clear ordinal at or after x
	if page == nil {
		return b.setNextSlow(x)
	}
	c, w := page.clearFrom(x)
	if w == 0 {
		b.takeBack(page, x, ^uint64(0))
		return b.setNextSlow(x)
	}
	page.stale(1 << c)
	next = page.base + c*64 + lowest(w)
	if page.set(next, w&-w) {
		b.setEdge(page, next)
	}
	return next, true
}

// clearFrom returns the slot of the first word of the page that has a clear ordinal at or after
// x, and a mask of these ordinals of the word, which is 0 if there is no such word.
func (nd *node) clearFrom(x uint64) (c, w uint64) {
	step(1)
	c = x / 64 % fan
	w = ^nd.words[c] & (^uint64(0) << (x % 64))
	if w == 0 {
		if m := nd.room &^ (2<<c - 1); m != 0 { // 2<<63 is 0
			step(1)
			c = lowest(m) % fan
			w = ^nd.words[c]
		}
	}
	return c, w
}

// setNextSlow is SetNextClear for an x without a page, or whose page has no clear ordinal
// at or after x.
func (b *Bitmap) setNextSlow(x uint64) (next uint64, ok bool) {
	page, next, ok := b.seek(x, false)
	if !ok && x != 0 {
		page, next, ok = b.seek(0, false)
	}
	if !ok {
		return 0, false
	}
	if page == nil {
		page = b.reach(next, true) // a spare, if there is one
	}
	b.account(next, 1)
	if page.set(next, 1<<(next%64)) {
		b.setEdge(page, next)
	}
	return next, true
}

// SetNextN sets the next len(dst) clear ordinals at or after x, wrapping once, and stores
// them in dst. It returns how many it set: fewer than len(dst) if the set became full. It
// panics if x is out of range. It reads each word once, and allocates only for pages, as
// [Bitmap.Set] does.
func (b *Bitmap) SetNextN(dst []uint64, x uint64) int {
	b.ready(x)
	n := b.setClear(dst, x)
	return n + b.setClear(dst[n:], 0)
}

// setClear sets the clear ordinals at or after x and stores them in dst, until dst is
// full.
func (b *Bitmap) setClear(dst []uint64, x uint64) (n int) {
	for n < len(dst) {
		page, at, ok := b.seek(x, false)
		if !ok {
			return n
		}
		if page == nil {
			page = b.reach(at, true) // a spare, if there is one
		}
		left := ^page.words[at/64%fan] & (^uint64(0) << (at % 64))
		mask := left
		for ; left != 0 && n < len(dst); left &= left - 1 {
			dst[n] = at&^63 + lowest(left)
			n++
		}
		mask &^= left
		b.account(at, uint64(bits.OnesCount64(mask)))
		if page.set(at, mask) {
			b.setEdge(page, at)
		}
		if x = at | 63; x >= b.last {
			return n
		}
		x++
	}
	return n
}

// seek returns the lowest ordinal of the given state at or after x, and its page. page is
// nil if a whole slot has that state. Ordinals from n on count as set.
//
// It descends to x and remembers the last node with the state in a later slot. The search
// continues there if the nodes below have no such ordinal at or after x. The search from
// there cannot fail, so no node is visited more than twice.
func (b *Bitmap) seek(x uint64, state bool) (page *node, y uint64, ok bool) {
	var later *node
	var laterX uint64
	for nd := &b.root; ; {
		step(1)
		c := nd.slot(x)
		has := nd.room
		if state {
			has = nd.some
		}
		if m := has & from(c+1); m != 0 {
			later, laterX = nd, nd.start(lowest(m))
		}
		if has>>c&1 != 0 {
			if nd.kid == nil {
				if w := (nd.words[c] ^ fill(!state)) & (^uint64(0) << (x % 64)); w != 0 {
					return nd, x&^63 | lowest(w), true
				}
			} else if !nd.mixed(c) {
				return nil, x, true
			} else if kid := nd.kid[c]; kid.holds(x) {
				if kid.outer == state && nd.smaller(kid) && kid.end() != nd.start(c)|(1<<nd.shift-1) {
					later, laterX = nd, kid.end()+1
				}
				nd = kid
				continue
			} else if kid.outer == state {
				return nil, x, true
			} else if x < kid.base {
				nd, x = kid, kid.base
				continue
			}
		}
		if later == nil || laterX <= x { // the latter is beyond n and has wrapped round 2^64
			return nil, 0, false
		}
		nd, x, later = later, laterX, nil
	}
}
