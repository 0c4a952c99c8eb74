package bitmap

import "math/bits"

// Set sets x and reports whether it was clear. It panics if x is out of range.
// O(log64 n). It allocates only when the page of x becomes partly filled and no spare
// page is left.
func (b *Bitmap) Set(x uint64) bool {
	page := b.near(x)
	if page == nil {
		return b.setFar(x)
	}
	if page.has(x) {
		return false
	}
	b.tally(x, 1)
	if b.root.order != nil {
		b.mark(x)
	}
	if page.set(x, 1<<(x%64)) {
		b.setEdge(page, x)
	}
	return true
}

// setFar is Set where near has no page.
func (b *Bitmap) setFar(x uint64) bool {
	b.ready(x)
	page := b.reach(x, true)
	if page == nil || page.has(x) {
		return false
	}
	b.account(x, 1)
	if page.set(x, 1<<(x%64)) {
		b.setEdge(page, x)
	}
	return true
}

// Clear clears x and reports whether it was set. It panics if x is out of range.
// O(log64 n); it allocates as [Bitmap.Set] does.
func (b *Bitmap) Clear(x uint64) bool {
	page := b.near(x)
	if page == nil {
		return b.clearFar(x)
	}
	if !page.has(x) {
		return false
	}
	b.tally(x, ^uint64(0))
	if b.root.order != nil {
		b.mark(x)
	}
	if page.unset(x) {
		b.unsetEdge(page, x)
	}
	return true
}

// clearFar is Clear where near has no page.
func (b *Bitmap) clearFar(x uint64) bool {
	b.ready(x)
	page := b.descend(x, ^uint64(0)) // assumes that x is set
	switch {
	case page == nil:
		if page = b.open(x, false); page == nil {
			return false
		}
		b.account(x, ^uint64(0))
	case !page.has(x):
		b.account(x, 1)
		return false
	}
	if page.unset(x) {
		b.unsetEdge(page, x)
	}
	return true
}

// near returns the page of x if x is an ordinal of the set and pages has its page. A flip of
// such a page makes no call, except at an edge, where the state of a whole word or page
// changes, and for order summaries.
func (b *Bitmap) near(x uint64) *node {
	if i := x >> pageBits; x <= b.last && i < uint64(len(b.pages)) {
		return b.pages[i]
	}
	return nil
}

// tally adds diff to the count of the set and of every slot on the way to the page of x,
// which near returned.
func (b *Bitmap) tally(x, diff uint64) {
	b.count += diff
	nd := &b.root
	step(1)
	if nd.shift > pageBits {
		step(1)
		c := x >> (pageBits + fanBits) % fan
		nd.words[c] += diff
		nd.kid[c].words[x>>pageBits%fan] += diff
	} else if nd.shift == pageBits {
		nd.words[x>>pageBits%fan] += diff
	}
}

// mark marks the order summaries of the word of x, whose page exists, as out of date. It looks
// at the nodes that tally has counted as steps.
func (b *Bitmap) mark(x uint64) {
	for nd := &b.root; ; {
		c := nd.slot(x)
		nd.stale(1 << c)
		if nd.kid == nil {
			return
		}
		nd = nd.kid[c]
	}
}

// account is tally and mark for any page that exists.
func (b *Bitmap) account(x, diff uint64) {
	b.count += diff
	nd := &b.root
	for {
		c := nd.slot(x)
		nd.stale(1 << c)
		if nd.kid == nil {
			return
		}
		step(1)
		nd.words[c] += diff
		nd = nd.kid[c]
	}
}

// descend is find and account in one walk. If there is no page, it changes no count.
func (b *Bitmap) descend(x, diff uint64) *node {
	b.count += diff
	nd := &b.root
	c := nd.slot(x)
	for nd.kid != nil {
		step(1)
		kid := nd.kid[c]
		if kid == nil || !kid.holds(x) {
			b.takeBack(nd, x, -diff)
			return nil
		}
		nd.words[c] += diff
		nd.stale(1 << c)
		nd = kid
		c = nd.slot(x)
	}
	nd.stale(1 << c)
	return nd
}

// takeBack adds diff to the counts of the set and above nd on the way to x, to undo an
// assumption.
func (b *Bitmap) takeBack(nd *node, x, diff uint64) {
	b.count += diff
	for up := &b.root; up != nd; {
		c := up.slot(x)
		up.words[c] += diff
		up = up.kid[c]
	}
}

// has reports whether x, which lies in the page, is set.
func (nd *node) has(x uint64) bool {
	step(1)
	return nd.words[x/64%fan]>>(x%64)&1 != 0
}

// set sets the ordinals of mask, which are clear, in the word of x of a page. x is one of
// them. It reports whether that is an edge: the word was all clear, or the page is full.
//
// It writes the bit of room even if the bit does not change. Near full, every other flip
// fills or opens a word, so a branch would be mispredicted as often. A word rarely
// becomes all clear, so that case is a branch.
func (nd *node) set(x, mask uint64) (edge bool) {
	c := x / 64 % fan
	old := nd.words[c]
	now := old | mask
	nd.words[c] = now
	nd.room = nd.room&^(1<<c) | nonzero(^now)<<c
	return old == 0 || nd.room == 0
}

// setEdge completes set at an edge.
func (b *Bitmap) setEdge(page *node, x uint64) {
	was := page.some
	page.some |= 1 << (x / 64 % fan)
	if was == 0 || page.room == 0 {
		b.settle(page, x)
	}
}

// unset clears x, which is set, in a page. It reports whether that is an edge: the word is all
// clear, or the page was full.
func (nd *node) unset(x uint64) (edge bool) {
	c := x / 64 % fan
	now := nd.words[c] &^ (1 << (x % 64))
	was := nd.room
	nd.words[c] = now
	nd.room = was | 1<<c // written whether it changes or not; see set
	return now == 0 || was == 0
}

// unsetEdge completes unset at an edge.
func (b *Bitmap) unsetEdge(page *node, x uint64) {
	bit := uint64(1) << (x / 64 % fan)
	if page.words[x/64%fan] == 0 {
		page.some &^= bit
	}
	if page.room == bit || page.some == 0 { // if room was 0, it now has this bit alone
		b.settle(page, x)
	}
}

// nonzero returns 0 if w is 0 and 1 if it is not, without a branch.
func nonzero(w uint64) uint64 { return (w | -w) >> 63 }

// find returns the page that holds x, nil if there is none.
func (b *Bitmap) find(x uint64) *node {
	nd := &b.root
	for {
		step(1)
		if nd.kid == nil {
			return nd
		}
		nd = nd.kid[nd.slot(x)]
		if nd == nil || !nd.holds(x) {
			return nil
		}
	}
}

// reach returns the page of x and makes it if needed. It returns nil if there is no page
// and x already has the given state.
func (b *Bitmap) reach(x uint64, state bool) *node {
	if i := x >> pageBits; i < uint64(len(b.pages)) && b.pages[i] != nil {
		return b.pages[i]
	}
	if page := b.find(x); page != nil {
		return page
	}
	return b.open(x, state)
}

// open makes and returns the page that holds x, which does not exist yet. It returns
// nil if x has the given state already.
func (b *Bitmap) open(x uint64, state bool) *node {
	b.restock()
	nd := &b.root
	c := nd.slot(x)
	kid := nd.kid[c]
	for kid != nil && kid.holds(x) {
		nd = kid
		c = nd.slot(x)
		kid = nd.kid[c]
	}
	mixed := nd.mixed(c)
	rest := nd.some>>c&1 != 0
	if mixed {
		rest = kid.outer
	}
	if rest == state {
		return nil
	}
	if mixed {
		nd = b.split(nd, c, x, x)
		c = nd.slot(x)
	} else if kid != nil {
		b.drop(nd, c)
	}
	return b.put(nd, c, b.takePage(), x, rest)
}

// put makes the unused node kid the child in slot c of nd. kid covers x and gets the
// given state, like the rest of the slot.
func (b *Bitmap) put(nd *node, c uint64, kid *node, x uint64, state bool) *node {
	b.wipe(kid, x, state)
	kid.outer = state && nd.smaller(kid)
	nd.kid[c] = kid
	return kid
}

// split inserts a node between nd and the child in its slot c, just large enough to
// cover that child and [lo, hi].
func (b *Bitmap) split(nd *node, c, lo, hi uint64) *node {
	kid := nd.kid[c]
	taken, size := nd.words[c], b.size(nd, c)
	rest := kid.outer
	mid := b.put(nd, c, b.takeNode(coverShift(min(lo, kid.base), max(hi, kid.end())), lo), lo, rest)
	k := mid.slot(kid.base)
	mid.kid[k] = kid
	kid.reported = unreported
	mid.words[k] = taken
	if rest {
		mid.words[k] = b.size(mid, k) - (size - taken) // what is clear is all in the child
	}
	if !mid.smaller(kid) {
		kid.outer = false
	}
	if mid.sync(k); !mid.mixed(k) {
		b.drop(mid, k) // wholly clear or set: two bits are enough now
	}
	return mid
}

// coverShift returns the shift of the smallest node that covers lo and hi.
func coverShift(lo, hi uint64) uint8 {
	n := max(bits.Len64(lo^hi), pageBits)
	return uint8((n+fanBits-1)/fanBits*fanBits - fanBits)
}

// settle updates the summaries above page after the page became, or ceased to be, wholly
// clear or wholly set.
func (b *Bitmap) settle(page *node, x uint64) {
	nd := &b.root
	if page == nd {
		return
	}
	var up *node
	c := nd.slot(x)
	for nd.kid[c] != page {
		step(1)
		up, nd = nd, nd.kid[c]
		c = nd.slot(x)
	}
	room, some := nd.room, nd.some
	if !nd.sync(c) {
		return
	}
	if up != nil && ((room == 0) != (nd.room == 0) || (some == 0) != (nd.some == 0)) && b.settleInner(nd, x) {
		return
	}
	switch {
	case !nd.mixed(c):
		b.keep(up, nd, c)
	case page.spare != 0:
		b.pool.unspare(page)
	}
}

// settleInner is settle for an inner node. It moves nodes that are no longer needed to
// the pool. dropped reports whether nd, and with it the page of x, was moved.
func (b *Bitmap) settleInner(nd *node, x uint64) (dropped bool) {
	var path [maxDepth]*node
	depth := 0
	for up := &b.root; up != nd; up = up.kid[up.slot(x)] {
		step(1)
		path[depth] = up
		depth++
	}
	for i := depth - 1; i >= 0; i-- {
		up := path[i]
		c := up.slot(x)
		if !up.sync(c) {
			break
		}
		if up.mixed(c) {
			continue
		}
		b.drop(up, c)
		dropped = true
		if i > 0 {
			b.splice(path[i-1], up)
		}
	}
	return dropped
}
