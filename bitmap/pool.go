package bitmap

// Limits of the reserve, 64 pages or 36 KiB in all.
//
// A page that has just become wholly clear or set should stay where it is, so that
// the next flip finds it ready: in a set of 16 pages all of them do. In a larger
// one the next flip is elsewhere, most likely, so from then on such a page is taken
// out, which costs less than to find it later. The unused ones absorb the ups and
// downs of a churn and serve the two edges of every range operation.
const (
	maxSpares = 16
	maxPages  = 48
	maxInners = 8
)

// A pool is what a set keeps so that it need not allocate in steady state: pages
// that became wholly clear or wholly set and still stand in their slot (spare),
// and unused nodes (page, inner).
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

// keep is called when slot c of nd, which a page stands in, ceased to be mixed: it
// keeps the page in place or takes it out. up is the parent of nd, nil for the
// root.
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

// restock is called before an operation that may need a page, because it may move
// nodes: if none is unused and there are spares enough it takes one of those.
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
	if len(p.inner) < maxInners {
		p.inner = append(p.inner, nd)
	}
}

// takePage returns an unused page, from the reserve if it has one.
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

// takeNode returns an unused node of the given shift, a page or an inner node.
func (b *Bitmap) takeNode(shift uint8) *node {
	if shift == pageShift {
		return b.takePage()
	}
	if b.pool == nil || len(b.pool.inner) == 0 {
		return &node{shift: shift, kid: new([fan]*node)}
	}
	p := b.pool
	nd := p.inner[len(p.inner)-1]
	p.inner[len(p.inner)-1] = nil
	p.inner = p.inner[:len(p.inner)-1]
	nd.shift = shift
	nd.order.extend(shift)
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
