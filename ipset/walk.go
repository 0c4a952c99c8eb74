package ipset

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A walk reads firstList index records first, then more at a time, at most listPage.
const (
	firstList = 8
	listPage  = 64
)

// walk goes through the blocks of a pool's present size that an index lists, from the owner's place on and around.
//
// The index records are read now, the blocks perhaps long ago. So blocks that are not what their record says are read
// again, and the commit verifies those that the caller passes over; all are read again where it could not verify so many.
// Blocks of which automatic assignment may take nothing are left out without being read, and so are those of pools in this one.
type walk struct {
	p    *assignPlan
	t    *txn
	s    *search
	i    int // the pool
	kind string
	most int64 // blocks with a higher value in their record are left out

	rest  []store.Range // what is still to be listed
	limit int
	page  []netip.Prefix // blocks listed and not visited yet
}

// walk begins a walk.
func (p *assignPlan) walk(t *txn, s *search, i int, kind string, most int64) *walk {
	pool := &p.cat.Pools[i]
	all := blockRange(kind, pool.Prefix)
	start := blockKey(kind, p.start(i))
	rest := []store.Range{{From: start, To: all.To}, {From: all.From, To: start}}
	return &walk{p: p, t: t, s: s, i: i, kind: kind, most: most, rest: rest, limit: firstList}
}

// next returns the next block, advanced to the present; nil after the last.
func (w *walk) next() (*blockEntry, error) {
	for len(w.page) == 0 {
		if len(w.rest) == 0 {
			return nil, nil
		}
		if err := w.list(); err != nil {
			return nil, err
		}
	}
	block := w.page[0]
	w.page = w.page[1:]
	return w.t.peek(w.p.cat, block)
}

// pass says that a block is of no use by what it holds.
func (w *walk) pass(be *blockEntry) { w.t.Sure(&be.Cell) }

// list reads the next records of the index, and the blocks that are not as they say.
func (w *walk) list() error {
	r := w.rest[0]
	r.Limit = w.limit
	w.limit = min(2*w.limit, listPage)
	recs, err := w.t.List(r)
	if err != nil {
		return err
	}
	var old []string
	many := w.t.Guards()+len(recs) > w.t.MostGuards()
	beyond := "" // the end of what has been listed, or of the avoided range that it ends in
	for _, rec := range recs {
		if rec.Key < beyond {
			continue
		}
		beyond = rec.Key + "\x00"
		block, ok := parseBlockID(rec.Key[1:])
		if !ok {
			continue
		}
		if end, nested := w.p.cat.inner[w.i].cover(block); nested {
			beyond = w.keyAfter(end, r.To)
			continue
		}
		if block.Bits() != w.p.cat.Pools[w.i].BlockBits {
			continue
		}
		if end, covered := w.p.cat.avoid[w.i].cover(block); covered {
			w.p.reason(w.s, w.i, ReservedLeft)
			beyond = w.keyAfter(end, r.To)
			continue
		}
		value := parseIndexValue(rec.Value)
		if value > w.most {
			if w.kind == kindRoom {
				w.p.reason(w.s, w.i, CoolingLeft)
			}
			continue
		}
		w.page = append(w.page, block)
		if be := w.t.blocks.Get(block); be == nil || many && !w.t.Guarded(&be.Cell) || !be.shown.says(w.kind, value) {
			old = append(old, kindBlock+rec.Key[1:])
		}
	}
	if w.rest[0].From = beyond; len(recs) < r.Limit || beyond >= r.To {
		w.rest = w.rest[1:]
	}
	if len(old) == 0 {
		return nil
	}
	return w.t.Read(old...)
}

// keyAfter returns the key of the pool's block that has the address after end, or last if end is the last address there is.
func (w *walk) keyAfter(end netip.Addr, last string) string {
	if end = end.Next(); !end.IsValid() {
		return last
	}
	return blockKey(w.kind, netip.PrefixFrom(end, w.p.cat.Pools[w.i].BlockBits).Masked())
}

// pickEmpty takes over blocks of others that have been empty for long enough.
func (p *assignPlan) pickEmpty(t *txn, s *search) error {
	before := t.past - takeoverAge
	for k := 0; s.want > 0; k++ {
		i, ok := s.pool(k)
		if !ok {
			break
		}
		if s.reasons[i] == TooSmall {
			continue
		}
		for w := p.walk(t, s, i, kindEmpty, before); s.want > 0 && p.mayClaim(t, i); {
			be, err := w.next()
			if err != nil {
				return err
			}
			if be == nil {
				break
			}
			if be.Block == nil || !be.IsEmpty() || be.Owner() == p.Owner || be.Owner().Kind == Nobody || be.Since() > before {
				w.pass(be)
				continue
			}
			if p.unusable(i, be.Prefix()) || p.picked(be) {
				continue
			}
			if err := p.takeOver(t, s, i, be); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeOver makes a block that another has left empty the owner's.
func (p *assignPlan) takeOver(t *txn, s *search, i int, be *blockEntry) error {
	t.Guard(&be.Cell)
	o := p.blockOptions()
	o.Claimed, o.Seq = block.Unstamp(t.now), be.Seq()
	b, err := block.New(be.Prefix(), o)
	if err != nil {
		return err
	}
	if err := t.take(be.Owner(), be.Prefix()); err != nil {
		return err
	}
	if err := t.give(p.Owner, be.Prefix()); err != nil {
		return err
	}
	if p.taken == nil {
		p.taken = make(map[*blockEntry]bool)
	}
	p.taken[be] = true
	p.take(s, i, be, b)
	return nil
}

// pickOrphans adopts blocks without owner that have room. Only strict affinity needs it: otherwise they are borrowed
// from like any other.
func (p *assignPlan) pickOrphans(t *txn, s *search) error {
	for k := 0; s.want > 0; k++ {
		i, ok := s.pool(k)
		if !ok {
			break
		}
		for w := p.walk(t, s, i, kindOrphan, 0); s.want > 0 && p.mayClaim(t, i); {
			be, err := w.next()
			if err != nil {
				return err
			}
			if be == nil {
				break
			}
			n := len(p.picks)
			if be.Block == nil || be.Owner().Kind != Nobody || !p.pickFrom(t, s, i, be) {
				w.pass(be)
				continue
			}
			p.picks[n].adopt = true
			if err := t.give(p.Owner, be.Prefix()); err != nil {
				return err
			}
		}
	}
	return p.noteForeign(t, s)
}

// noteForeign finds the pools in which others have room that strict affinity keeps from this owner.
func (p *assignPlan) noteForeign(t *txn, s *search) error {
	for k := 0; s.want > 0; k++ {
		i, ok := s.pool(k)
		if !ok {
			break
		}
		if s.reasons[i] == LimitReached {
			continue
		}
		for w := p.walk(t, s, i, kindRoom, t.past); s.reasons[i] != ForeignLeft; {
			be, err := w.next()
			if err != nil {
				return err
			}
			if be == nil {
				break
			}
			if be.Block == nil || be.Owner() == p.Owner || be.Owner().Kind == Nobody {
				w.pass(be)
				continue
			}
			s.because(i, ForeignLeft)
		}
	}
	return nil
}

// pickForeign borrows from any block with room.
func (p *assignPlan) pickForeign(t *txn, s *search) error {
	for k := 0; s.want > 0; k++ {
		i, ok := s.pool(k)
		if !ok {
			break
		}
		for w := p.walk(t, s, i, kindRoom, t.past); s.want > 0; {
			be, err := w.next()
			if err != nil {
				return err
			}
			if be == nil {
				break
			}
			if p.taken[be] {
				continue
			}
			if be.Block == nil || be.Owner() == p.Owner || !p.pickFrom(t, s, i, be) {
				w.pass(be)
			}
		}
	}
	return nil
}
