package bitmap

// Limits of the reserve: enough for the pages at the two edges of every range
// operation and for a churn that fills and opens pages at random, little enough
// not to matter (64 pages are 36 KiB).
//
// A page that has just filled up should stay where the next release is likely to
// find it, so at first a new page is allocated rather than a spare pulled out of
// its slot. Once there have been minPages spares, it is the other way round: from
// then on the spares absorb the ups and downs of a churn.
const (
	maxPages  = 64
	minPages  = maxPages / 2
	maxInners = 8
)

// A pool is what a set keeps so that it need not allocate in steady state: pages
// that became wholly clear or wholly set and still stand in their slot, where
// the next flip finds them ready (spare), and unused nodes (page, inner).
type pool struct {
	spare []*node // node.spare is 1 + the index in here
	page  []*node
	inner []*node
	hand  int  // where the next spare is pulled from, so that each stays a while
	warm  bool // there have been minPages spares
}

func (p *pool) unspare(nd *node) {
	i, end := int(nd.spare)-1, len(p.spare)-1
	p.spare[i] = p.spare[end]
	p.spare[i].spare = uint8(i + 1)
	p.spare[end] = nil
	p.spare = p.spare[:end]
	nd.spare = 0
}

// keep keeps a page whose slot ceased to be mixed, in place of an older one if
// need be.
func (b *Bitmap) keep(page *node) {
	if b.pool == nil {
		b.pool = &pool{}
	}
	p := b.pool
	if len(p.spare)+len(p.page) == maxPages {
		if len(p.page) == 0 {
			b.pull()
		}
		p.page[len(p.page)-1] = nil
		p.page = p.page[:len(p.page)-1]
	}
	p.spare = append(p.spare, page)
	page.spare = uint8(len(p.spare))
	p.warm = p.warm || len(p.spare) >= minPages
}

// restock pulls spares out of the tree until n unused pages are in reserve, as far
// as there are spares, unless it is better to allocate.
func (b *Bitmap) restock(n int) {
	for b.pool != nil && b.pool.warm && len(b.pool.page) < n && len(b.pool.spare) != 0 {
		b.pull()
	}
}

// pull takes a spare out of the tree and makes it an unused page.
func (b *Bitmap) pull() {
	p := b.pool
	if p.hand >= len(p.spare) {
		p.hand = 0
	}
	page := p.spare[p.hand]
	p.hand++
	var up *node
	nd := &b.root
	for nd.kid[nd.slot(page.base)] != page {
		up, nd = nd, nd.kid[nd.slot(page.base)]
	}
	b.drop(nd, nd.slot(page.base))
	if up != nil {
		b.splice(up, nd)
	}
}

// drop takes the child out of slot c of nd and puts it and all below it into
// reserve, as far as there is room.
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
		if len(p.spare)+len(p.page) < maxPages {
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
	if len(p.inner) < maxInners {
		p.inner = append(p.inner, nd)
	}
}

// takePage returns an unused page, from the reserve if it has one.
func (b *Bitmap) takePage() *node {
	if b.pool == nil || len(b.pool.page) == 0 {
		return &node{shift: pageShift}
	}
	p := b.pool
	nd := p.page[len(p.page)-1]
	p.page[len(p.page)-1] = nil
	p.page = p.page[:len(p.page)-1]
	return nd
}

// takeNode returns an unused node of the given shift, a page or an inner node.
func (b *Bitmap) takeNode(shift uint8) *node {
	if shift == pageShift {
		return b.takePage()
	}
	if b.pool == nil || len(b.pool.inner) == 0 {
		return &node{shift: shift, kid: make([]*node, fan)}
	}
	p := b.pool
	nd := p.inner[len(p.inner)-1]
	p.inner[len(p.inner)-1] = nil
	p.inner = p.inner[:len(p.inner)-1]
	if nd.shift != shift {
		nd.shift, nd.order = shift, nil
	}
	return nd
}

// splice takes nd out from between up and nd's only mixed child, if all the rest
// of up's slot is in one state and nd holds no other child.
func (b *Bitmap) splice(up, nd *node) {
	m := nd.room & nd.some
	if m == 0 || m&(m-1) != 0 || nd.kid == nil {
		return
	}
	state := nd.room&^m == 0 // the other slots are all set
	if !state && nd.some&^m != 0 {
		return
	}
	if up.smaller(nd) && nd.rest != state {
		return
	}
	c := lowest(m)
	kid := nd.kid[c]
	if nd.smaller(kid) && kid.rest != state {
		return
	}
	for i, other := range nd.kid {
		if other != nil && uint64(i) != c {
			return
		}
	}
	nd.kid[c] = nil
	kid.rest, kid.told = state, untold
	up.kid[up.slot(kid.base)] = kid
	b.discard(nd)
}
