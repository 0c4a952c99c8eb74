package bitmap

import "math/bits"

// Set sets x and reports whether it was clear. It panics if x is out of range.
// O(log64 n); it allocates only when x is the first of its page to differ and no
// spare page is left.
func (b *Bitmap) Set(x uint64) bool {
	b.check(x)
	if b.root == nil {
		b.plant()
	}
	page := b.find(x)
	if page == nil {
		if page = b.open(x, true); page == nil {
			return false
		}
	}
	return b.set(page, x)
}

// Clear clears x and reports whether it was set. It panics if x is out of range.
// O(log64 n); it allocates as [Bitmap.Set] does.
func (b *Bitmap) Clear(x uint64) bool {
	b.check(x)
	if b.root == nil {
		return false
	}
	page := b.find(x)
	if page == nil {
		if page = b.open(x, false); page == nil {
			return false
		}
	}
	c := x / 64 % fan
	old := page.words[c]
	now := old &^ (1 << (x % 64))
	if now == old {
		return false
	}
	page.words[c] = now
	page.stale(1 << c)
	b.account(x, ^uint64(0))
	if now == 0 || old == ^uint64(0) {
		was := page.room
		page.room |= 1 << c
		if now == 0 {
			page.some &^= 1 << c
		}
		if was == 0 || page.some == 0 {
			b.settle(page, x)
		}
	}
	return true
}

// set sets x in its page.
func (b *Bitmap) set(page *node, x uint64) bool {
	c := x / 64 % fan
	old := page.words[c]
	now := old | 1<<(x%64)
	if now == old {
		return false
	}
	page.words[c] = now
	page.stale(1 << c)
	b.account(x, 1)
	if old == 0 || now == ^uint64(0) {
		was := page.some
		page.some |= 1 << c
		if now == ^uint64(0) {
			page.room &^= 1 << c
		}
		if was == 0 || page.room == 0 {
			b.settle(page, x)
		}
	}
	return true
}

// find returns the page that holds x, nil if there is none.
func (b *Bitmap) find(x uint64) *node {
	nd := b.root
	for nd.kid != nil {
		step(1)
		nd = nd.kid[nd.slot(x)]
		if nd == nil || !nd.holds(x) {
			return nil
		}
	}
	step(1)
	return nd
}

// account adds diff to every count above the page of x, which exists.
func (b *Bitmap) account(x, diff uint64) {
	b.count += diff
	for nd := b.root; nd.kid != nil; {
		step(1)
		s := nd.slot(x)
		nd.words[s] += diff
		nd.stale(1 << s)
		nd = nd.kid[s]
	}
}

// open makes the page that holds x, of which there is none, and returns it. It
// returns nil if x is in the given state already.
func (b *Bitmap) open(x uint64, state bool) *node {
	b.restock(1) // first, because it may move nodes
	nd := b.root
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
		rest = kid.rest
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

// put makes kid, which is unused, the child in slot c of nd: it covers x, and is
// in the given state like the rest of the slot.
func (b *Bitmap) put(nd *node, c uint64, kid *node, x uint64, state bool) *node {
	b.wipe(kid, x, state)
	kid.rest = state && nd.smaller(kid)
	nd.kid[c] = kid
	return kid
}

// split puts a node between nd and the child in its slot c, just large enough to
// cover that child and [lo, hi], which the child does not hold all of.
func (b *Bitmap) split(nd *node, c, lo, hi uint64) *node {
	kid := nd.kid[c]
	taken, size := nd.words[c], b.size(nd, c)
	rest := kid.rest
	mid := b.put(nd, c, b.takeNode(coverShift(min(lo, kid.base), max(hi, kid.end()))), lo, rest)
	k := mid.slot(kid.base)
	mid.kid[k] = kid
	mid.words[k] = taken
	if rest {
		mid.words[k] = b.size(mid, k) - (size - taken) // what is clear is all in the child
	}
	if !mid.smaller(kid) {
		kid.rest = false
	}
	if mid.sync(k); !mid.mixed(k) {
		b.drop(mid, k) // wholly clear or set, which its slot can say alone now
	}
	return mid
}

// coverShift returns the shift of the smallest node that covers lo and hi.
func coverShift(lo, hi uint64) uint8 {
	n := max(bits.Len64(lo^hi), pageBits)
	return uint8((n+fanBits-1)/fanBits*fanBits - fanBits)
}

// settle brings the summaries above page up to date after it became or ceased to
// be wholly clear or wholly set, and gives back what became superfluous by that.
func (b *Bitmap) settle(page *node, x uint64) {
	var path [maxDepth]*node
	depth := 0
	for nd := b.root; nd != page; nd = nd.kid[nd.slot(x)] {
		step(1)
		path[depth] = nd
		depth++
	}
	var idle *node
	for i := depth - 1; i >= 0; i-- {
		nd := path[i]
		c := nd.slot(x)
		if !nd.sync(c) {
			break
		}
		kid := nd.kid[c]
		switch {
		case nd.mixed(c):
			if kid.spare != 0 {
				b.pool.unspare(kid)
			}
		case kid == page:
			idle = page
		default:
			b.drop(nd, c) // its children, the page among them, go into reserve
			idle = nil
			if i > 0 {
				b.splice(path[i-1], nd)
			}
		}
	}
	if idle != nil {
		b.keep(idle)
	}
}
