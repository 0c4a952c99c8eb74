package bitmap

// Limits of the unused nodes and arrays that a set keeps: 64 pages, which take 36 KiB,
// and an array of 512 places for pages, which takes 4 KiB, while no node needs it.
//
// A page that has just become wholly clear or wholly set stays in its slot, where the
// next flip finds it. In a set of 16 pages all pages may stay. In a larger set the next
// flip is probably elsewhere. Further pages are therefore removed at once, which costs
// less than finding them later. The removed pages absorb the swings of a workload and
// serve the two edges of every range operation.
const (
	maxSpares = 16
	maxPages  = 48
	maxInners = 8
	maxPlaces = 512
)

// A pool holds nodes that the set keeps in order not to allocate in steady state. The
// pages in spare became wholly clear or wholly set and are still in their slots; page and
// inner hold unused nodes.
type pool struct {
	spare []*node // node.spare is 1 + the index in here
	page  []*node
	inner []*node
}

func (p *pool) unspare(nd *node) {
	i, end := int(nd.spare)-1, len(p.spare)-1
	p.spare[i] = p.spare[end]
	p.spare[i].spare = uint8(i + 1)
	p.spare[end] = nil
	p.spare = p.spare[:end]
	nd.spare = 0
}

// keep keeps the page in slot c of nd as a spare, or removes it, after the slot ceased to
// be mixed. up is the parent of nd, nil for the root.
func (b *Bitmap) keep(up, nd *node, c uint64) {
	if b.pool == nil {
		b.pool = &pool{}
	}
	p := b.pool
	if len(p.spare) < maxSpares {
		page := nd.kid[c]
		p.spare = append(p.spare, page)
		page.spare = uint8(len(p.spare))
		return
	}
	b.drop(nd, c)
	if up != nil {
		b.splice(up, nd)
	}
}

// restock removes one spare from its slot if no page is unused and the spares are at
// their limit. It may move nodes, so it runs before an operation that may need a page.
func (b *Bitmap) restock() {
	p := b.pool
	if p == nil || len(p.page) != 0 || len(p.spare) < maxSpares {
		return
	}
	page := p.spare[0]
	up, nd := b.parents(page)
	b.drop(nd, nd.slot(page.base))
	if up != nil {
		b.splice(up, nd)
	}
}

// drop moves the child in slot c of nd and all nodes below it to the pool; nodes beyond
// the pool's limits are discarded.
func (b *Bitmap) drop(nd *node, c uint64) {
	kid := nd.kid[c]
	nd.kid[c] = nil
	b.discard(kid)
}

func (b *Bitmap) discard(nd *node) {
	step(1)
	if b.pool == nil {
		b.pool = &pool{}
	}
	p := b.pool
	if nd.spare != 0 {
		p.unspare(nd)
	}
	if nd.kid == nil {
		if len(p.page) < maxPages {
			p.page = append(p.page, nd)
		}
		return
	}
	for c, kid := range nd.kid {
		if kid != nil {
			nd.kid[c] = nil
			b.discard(kid)
		}
	}
	if b.gathers() && b.pages != nil {
		nd.kid = nil // it is a part of pages
		if len(b.pages) > maxPlaces && b.inners() == 0 {
			b.pages = nil
		}
	}
	if len(p.inner) < maxInners {
		p.inner = append(p.inner, nd)
	}
}

// takePage returns an unused page, from the pool if it has one.
func (b *Bitmap) takePage() *node {
	p := b.pool
	if p == nil || len(p.page) == 0 {
		return &node{shift: pageShift}
	}
	nd := p.page[len(p.page)-1]
	p.page[len(p.page)-1] = nil
	p.page = p.page[:len(p.page)-1]
	return nd
}

// takeNode returns an unused node of the given shift for ordinal x, a page or an inner
// node.
func (b *Bitmap) takeNode(shift uint8, x uint64) (nd *node) {
	if shift == pageShift {
		return b.takePage()
	}
	if p := b.pool; p == nil || len(p.inner) == 0 {
		nd = &node{}
	} else {
		nd = p.inner[len(p.inner)-1]
		p.inner[len(p.inner)-1] = nil
		p.inner = p.inner[:len(p.inner)-1]
	}
	nd.shift = shift
	nd.order.extend(shift)
	b.gather(1)
	if b.gathers() && b.pages != nil {
		nd.kid = b.section(x)
	} else if nd.kid == nil {
		nd.kid = new([fan]*node)
	}
	return nd
}

// gather moves the arrays of children of all nodes below the root to pages once a quarter
// of the slots has such a node. The count includes more, the nodes that are about to be
// made. At that fill the array costs at most 1.5 KiB more a node than the node's own. The
// array is kept while there is such a node; a small one (maxPlaces) is kept for the next
// node.
func (b *Bitmap) gather(more uint64) {
	switch b.root.shift {
	case pageShift:
		b.alone[0] = &b.root
		b.pages = b.alone[:]
	case pageBits:
		b.pages = b.root.kid[:]
	}
	slots := b.root.slot(b.last) + 1
	if !b.gathers() || b.pages != nil || 4*(b.inners()+more) < slots {
		return
	}
	b.pages = make([]*node, slots*fan)
	for _, kid := range b.root.kid {
		if kid != nil && kid.kid != nil {
			kids := b.section(kid.base)
			*kids = *kid.kid
			kid.kid = kids
		}
	}
}

// gathers reports whether the children of the root are the parents of pages.
func (b *Bitmap) gathers() bool { return b.root.shift == pageBits+fanBits }

// section returns the part of pages that belongs to the parent of the page of x.
func (b *Bitmap) section(x uint64) *[fan]*node { return (*[fan]*node)(b.pages[x>>pageBits&^(fan-1):]) }

// inners returns how many children of the root are inner nodes.
func (b *Bitmap) inners() (n uint64) {
	for _, kid := range b.root.kid {
		if kid != nil && kid.kid != nil {
			n++
		}
	}
	return n
}

// splice removes nd from between up and nd's only mixed child. It does so only if the
// rest of up's slot has one state and nd holds no other child.
func (b *Bitmap) splice(up, nd *node) {
	m := nd.room & nd.some
	if m == 0 || m&(m-1) != 0 || nd.kid == nil {
		return
	}
	state := nd.room&^m == 0 // the other slots are all set
	if !state && nd.some&^m != 0 {
		return
	}
	if up.smaller(nd) && nd.outer != state {
		return
	}
	c := lowest(m)
	kid := nd.kid[c]
	if nd.smaller(kid) && kid.outer != state {
		return
	}
	for i, other := range nd.kid {
		if other != nil && uint64(i) != c {
			return
		}
	}
	nd.kid[c] = nil
	kid.outer, kid.reported = state, unreported
	up.kid[up.slot(kid.base)] = kid
	b.discard(nd)
}
