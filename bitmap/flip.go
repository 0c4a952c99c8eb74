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
	var p path
	page := p.descend(b.root, x)
	if page == nil {
		if page = b.open(&p, x, true); page == nil {
			return false
		}
	}
	return b.set(&p, page, x)
}

// Clear clears x and reports whether it was set. It panics if x is out of range.
// O(log64 n); it allocates as [Bitmap.Set] does.
func (b *Bitmap) Clear(x uint64) bool {
	b.check(x)
	if b.root == nil {
		return false
	}
	var p path
	page := p.descend(b.root, x)
	if page == nil {
		if page = b.open(&p, x, false); page == nil {
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
	b.count--
	for i := p.depth - 1; i >= 0; i-- {
		nd := p.node[i&15]
		s := nd.slot(x)
		nd.words[s]--
		nd.stale(1 << s)
	}
	if old == ^uint64(0) || now == 0 {
		page.room |= 1 << c
		if now == 0 {
			page.some &^= 1 << c
		}
		b.settle(&p, page, x)
	}
	return true
}

// set sets x in its page, which p leads to.
func (b *Bitmap) set(p *path, page *node, x uint64) bool {
	c := x / 64 % fan
	old := page.words[c]
	now := old | 1<<(x%64)
	if now == old {
		return false
	}
	page.words[c] = now
	page.stale(1 << c)
	b.count++
	for i := p.depth - 1; i >= 0; i-- {
		nd := p.node[i&15]
		s := nd.slot(x)
		nd.words[s]++
		nd.stale(1 << s)
	}
	if old == 0 || now == ^uint64(0) {
		page.some |= 1 << c
		if now == ^uint64(0) {
			page.room &^= 1 << c
		}
		b.settle(p, page, x)
	}
	return true
}

// A path is the inner nodes from the root down to the parent of a page.
type path struct {
	node  [16]*node // maxDepth of them are used; 16 spares the bounds check
	depth int
}

// descend follows x down from root and returns its page, or nil if the last node
// of the path has no child that holds x.
func (p *path) descend(root *node, x uint64) *node {
	nd := root
	for nd.kid != nil {
		step(1)
		p.node[p.depth&15] = nd
		p.depth++
		kid := nd.kid[nd.slot(x)]
		if kid == nil || !kid.holds(x) {
			return nil
		}
		nd = kid
	}
	step(1)
	return nd
}

// open makes the page that holds x, where p ends in a slot without one, and
// returns it. It returns nil if x is in the given state already.
func (b *Bitmap) open(p *path, x uint64, state bool) *node {
	nd := p.node[p.depth-1]
	c := nd.slot(x)
	kid := nd.kid[c]
	mixed := nd.mixed(c)
	rest := nd.some>>c&1 != 0
	if mixed {
		rest = kid.rest
	}
	if rest == state {
		return nil
	}
	if b.restock() {
		// That pulled a spare out of the tree and may have moved nodes of the path.
		p.depth = 0
		if page := p.descend(b.root, x); page != nil {
			return page
		}
		return b.open(p, x, state)
	}
	if mixed {
		nd = b.split(nd, c, x, x)
		p.node[p.depth] = nd
		p.depth++
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

// settle brings the summaries of the path up to date after a word of page became
// or ceased to be wholly clear or wholly set, and gives back what became
// superfluous by that.
func (b *Bitmap) settle(p *path, page *node, x uint64) {
	var idle *node
	for i := p.depth - 1; i >= 0; i-- {
		nd := p.node[i]
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
				b.splice(p.node[i-1], nd)
			}
		}
	}
	if idle != nil {
		b.keep(idle)
	}
}
