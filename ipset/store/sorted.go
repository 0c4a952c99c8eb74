package store

import "slices"

// sorted is the memory store's table: records in key order, in pages, the pages in nodes.
//
// A page has the keys from its separator up to the next one, so a separator changes only when a page is split or dropped. A
// page is found by binary search over the separators of the nodes, then over the separators in one node. Inserting moves
// the slots of one page, and pointers of one node when a page is split.
//
// Invariants: keys ascend inside a page and from page to page; no page and no node is empty; the first separator is empty.
type sorted struct {
	froms []string // the separator of each node's first page
	nodes []*node
	n     int
	pk    packer
	shape int          // counts what changes the pages: splits, joins and drops
	hand  handle       // where tidy goes on
	last  [spots]place // where records were found last, a guess
}

// node is a run of up to nodeMax pages.
type node struct {
	froms []string
	pages []*page
}

// nodeMax is the number of pages at which a node is split.
const nodeMax = 512

// handle is the place of a page: its node, and its number there.
type handle struct{ node, page int }

// above returns how many of some separators are not above key, less one; the first is empty.
func above(froms []string, key string) int {
	lo, hi := 0, len(froms)
	for lo < hi {
		if m := int(uint(lo+hi) >> 1); froms[m] <= key {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return max(lo-1, 0)
}

// find returns the page that has a key or would have it. There must be one.
func (s *sorted) find(key string) handle {
	a := above(s.froms, key)
	return handle{a, above(s.nodes[a].froms, key)}
}

func (s *sorted) at(h handle) *page { return s.nodes[h.node].pages[h.page] }

// place is where a record is, or would be.
type place struct {
	handle
	p     *page // nil in an empty table
	i     int
	found bool
	moves uint32 // of the page, and shape of the table, when it was looked up
	shape int
}

// get sets w to the place of a key. What w is before is a guess: a writer that writes the same records again finds them there.
func (s *sorted) get(w *place, key string) {
	if s.n == 0 {
		*w = place{}
		return
	}
	if s.holds(w) && w.i < int(w.p.n) && w.p.is(w.i, key) {
		w.found, w.moves, w.shape = true, w.p.moves, s.shape
		return
	}
	g := &s.last[spot(key)]
	if s.holds(g) {
		for _, i := range [...]int{g.i, g.i - 1, g.i + 1, g.i - 2, g.i + 2} {
			if i >= 0 && i < int(g.p.n) && g.p.is(i, key) {
				g.i = i
				w.handle, w.p, w.i, w.found, w.moves, w.shape = g.handle, g.p, i, true, g.p.moves, s.shape
				return
			}
		}
	}
	w.handle = s.find(key)
	p := s.at(w.handle)
	w.p, w.moves, w.shape = p, p.moves, s.shape
	if w.i, w.found = p.search(key); w.found {
		g.handle, g.p, g.i = w.handle, p, w.i
	}
}

// spot returns the number of the place in last that is for a key.
func spot(key string) int {
	h := uint(len(key)) // the empty key, too
	for _, b := range []byte(key[max(0, len(key)-4):]) {
		h = h*31 + uint(b)
	}
	return int(h % spots)
}

const spots = 256

// holds reports whether the page of w is where it was.
func (s *sorted) holds(w *place) bool {
	return w.p != nil && w.node < len(s.nodes) && w.page < len(s.nodes[w.node].pages) && s.at(w.handle) == w.p
}

// again sets w, the place of a key before other keys were put and deleted, to the place where it is now.
func (s *sorted) again(w *place, key string) {
	switch {
	case w.p == nil || w.shape != s.shape:
		s.get(w, key)
	case w.p.moves != w.moves && !(w.found && w.i < int(w.p.n) && w.p.is(w.i, key)):
		w.i, w.found = w.p.search(key)
	}
}

// put writes a record whose key is at w.
func (s *sorted) put(w *place, r *Record) {
	if w.found {
		w.p.set(w.i, r, &s.pk)
		return
	}
	if w.p == nil {
		w.p = &page{}
		s.froms, s.nodes = []string{""}, []*node{{froms: []string{""}, pages: []*page{w.p}}}
	}
	s.n++
	w.p.insert(w.i, r, &s.pk)
	if w.p.n > pageMax {
		s.split(w.handle, w.i == int(w.p.n)-1)
	}
}

// record returns the record of a key.
func (s *sorted) record(key string) (Record, bool) {
	r, w := Record{Key: key}, place{}
	if s.get(&w, key); w.found {
		r.Value, r.Rev = w.p.get(w.i)
	}
	return r, w.found
}

// split divides a page. ascending says that the last insertion was at its end: then the left part stays full.
func (s *sorted) split(h handle, ascending bool) {
	b, p, right := &s.pk, s.at(h), &page{}
	b.reset()
	b.loadAll(p)
	at, spare := len(b.recs)/2, 256
	if ascending {
		at, spare = pageFill, 0
	}
	s.shape++
	b.build(p, b.recs[:at], headMax, spare)
	b.build(right, b.recs[at:], headMax, 256)
	s.add(handle{h.node, h.page + 1}, separator(b.keyOf(&b.recs[at-1]), b.keyOf(&b.recs[at])), right)
	b.reset()
}

// separator returns the shortest string above one key and not above the next.
func separator(left, right []byte) string { return string(right[:common(left, string(right))+1]) }

// add puts a page at a place.
func (s *sorted) add(h handle, from string, p *page) {
	n := s.nodes[h.node]
	n.froms, n.pages = slices.Insert(n.froms, h.page, from), slices.Insert(n.pages, h.page, p)
	if len(n.pages) <= nodeMax {
		return
	}
	at := nodeMax / 2
	if h.page == nodeMax {
		at = nodeMax - nodeMax/8 // pages are added in order
	}
	right := &node{slices.Clone(n.froms[at:]), slices.Clone(n.pages[at:])}
	clear(n.froms[at:])
	clear(n.pages[at:])
	n.froms, n.pages = n.froms[:at], n.pages[:at]
	s.froms, s.nodes = slices.Insert(s.froms, h.node+1, right.froms[0]), slices.Insert(s.nodes, h.node+1, right)
}

// delete removes the record at w. A page that became small is joined with its left neighbour, and a sparse page is packed. So a
// page that was full once does not keep its memory.
func (s *sorted) delete(w *place) {
	h, p := w.handle, w.p
	s.n--
	p.remove(w.i)
	if p.n == 0 {
		s.drop(h)
		return
	}
	if h.page > 0 {
		left := s.nodes[h.node].pages[h.page-1]
		if left.n+p.n <= pageMax/2 {
			b := &s.pk
			b.reset()
			b.loadAll(left)
			b.loadAll(p)
			b.build(left, b.recs, headMax, 256)
			b.reset()
			s.drop(h)
			return
		}
	}
	if used := int(p.end) - int(p.waste); len(p.buf) > 4*used+1024 {
		p.pack(&s.pk, headMax, 256)
	}
}

// drop removes a page. Its range of keys goes to the page on its left; the range of the first page goes to the
// next page.
func (s *sorted) drop(h handle) {
	s.shape++
	n := s.nodes[h.node]
	from := n.froms[0]
	n.froms, n.pages = slices.Delete(n.froms, h.page, h.page+1), slices.Delete(n.pages, h.page, h.page+1)
	if len(n.pages) > 0 {
		n.froms[0] = from
		return
	}
	s.froms, s.nodes = slices.Delete(s.froms, h.node, h.node+1), slices.Delete(s.nodes, h.node, h.node+1)
	if len(s.nodes) > 0 {
		s.froms[0], s.nodes[0].froms[0] = "", ""
	}
}

// appendPage adds the records of the packer, whose keys are above all others, as the last page.
func (s *sorted) appendPage() {
	b := &s.pk
	if len(b.recs) == 0 {
		return
	}
	p, from := &page{}, ""
	b.build(p, b.recs, headMax, 0)
	first := string(b.keyOf(&b.recs[0]))
	if last := len(s.nodes) - 1; last < 0 {
		s.froms, s.nodes = []string{""}, []*node{{froms: []string{""}, pages: []*page{p}}}
	} else {
		n := s.nodes[last]
		left := n.pages[len(n.pages)-1]
		from = separator(left.lastKey(), []byte(first))
		s.add(handle{last, len(n.pages)}, from, p)
	}
	s.n += len(b.recs)
	b.reset()
}

// lastKey returns the highest key of a page.
func (p *page) lastKey() []byte {
	var b packer
	b.load(p, int(p.n)-1)
	return b.keyOf(&b.recs[0])
}

// scan appends the records of r to dst.
func (s *sorted) scan(dst []Record, r Range) []Record {
	limit := r.Limit
	if limit <= 0 {
		limit = s.n
	}
	if s.n == 0 || r.To != "" && r.From >= r.To {
		return dst
	}
	b := &s.pk
	b.reset()
	step := 1
	h := s.find(r.From)
	if r.Reverse {
		step = -1
		if h = (handle{len(s.nodes) - 1, len(s.nodes[len(s.nodes)-1].pages) - 1}); r.To != "" {
			h = s.find(r.To)
		}
	}
	for ok := true; ok && limit > 0; h, ok = s.next(h, step) {
		p := s.at(h)
		lo, hi := 0, int(p.n)
		if r.From != "" {
			lo, _ = p.search(r.From)
		}
		if r.To != "" {
			hi, _ = p.search(r.To)
		}
		end := !r.Reverse && hi < int(p.n) || r.Reverse && lo > 0
		n := min(max(hi-lo, 0), limit)
		limit -= n
		for i := range n {
			if r.Reverse {
				b.load(p, hi-1-i)
			} else {
				b.load(p, lo+i)
			}
		}
		dst = b.emit(dst)
		if end {
			break
		}
	}
	return dst
}

// next returns the page after h, or before it with step -1.
func (s *sorted) next(h handle, step int) (handle, bool) {
	h.page += step
	switch {
	case h.page >= len(s.nodes[h.node].pages):
		h = handle{h.node + 1, 0}
	case h.page < 0:
		if h.node--; h.node >= 0 {
			h.page = len(s.nodes[h.node].pages) - 1
		}
	}
	return h, h.node >= 0 && h.node < len(s.nodes)
}

// Tidying: after every tidyEvery writes, tidy examines one page. It packs the page if at least tidyRaw of its records are not packed and
// the page has not been written for tidyAge commits.
const (
	tidyEvery = 32
	tidyRaw   = 8
	tidyAge   = 4096
)

// tidy looks at one page, the next one each time.
func (s *sorted) tidy(rev uint64) {
	if s.n == 0 {
		return
	}
	if h := s.hand; h.node >= len(s.nodes) || h.page >= len(s.nodes[h.node].pages) {
		s.hand = handle{}
	}
	p := s.at(s.hand)
	if p.raw >= tidyRaw && rev-p.last > tidyAge {
		p.pack(&s.pk, headMax, 0)
	}
	if h, ok := s.next(s.hand, 1); ok {
		s.hand = h
	} else {
		s.hand = handle{}
	}
}

// all calls do with the records of every page in turn, in order. They are good until it returns.
func (s *sorted) all(do func(*packer)) {
	for _, n := range s.nodes {
		for _, p := range n.pages {
			s.pk.reset()
			s.pk.loadAll(p)
			do(&s.pk)
		}
	}
	s.pk.reset()
}
