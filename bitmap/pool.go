package bitmap

// Limits of the unused nodes that a set keeps: 64 pages, or 36 KiB.
//
// A page that has just become wholly clear or set stays in its slot, so that the next
// flip finds it: in a set of 16 pages all of them may. In a larger set the next flip is
// most likely elsewhere, so further pages are taken out, which costs less than finding
// them later. They absorb the swings of a workload and serve the two edges of every
// range operation.
const (
	maxSpares = 16
	maxPages  = 48
	maxInners = 8
)

// A pool holds what a set keeps so that steady state does not allocate: pages that became
// wholly clear or wholly set and are still in their slots (spare), and unused nodes
// (page, inner).
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

// keep keeps the page in slot c of nd in place or takes it out, after the slot ceased to
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

// restock takes one of the spares out of its slot if no page is unused and the spares are
// at their limit. It may move nodes, so it runs before an operation that may need a
// page.
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

// drop moves the child in slot c of nd and all nodes below it to the pool, as far as
// there is room.
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

// splice removes nd from between up and nd's only mixed child, if the rest of up's slot
// has one state and nd holds no other child.
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
