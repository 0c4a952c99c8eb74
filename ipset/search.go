package ipset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// nextFree finds a free block of a pool, from start to the end and then from the beginning to start.
func (p *assignPlan) nextFree(t *txn, s *search, i int, start netip.Prefix) (netip.Prefix, bool, error) {
	pool := &p.cat.Pools[i]
	if keys := t.pageKeys(nil, pool.Prefix, start); len(keys) > 0 {
		if err := t.load(keys...); err != nil {
			return netip.Prefix{}, false, err
		}
	}
	read := func(id pageID) (page, error) { return p.draft.page(t, id) }
	skip := func(block netip.Prefix) (bool, error) {
		if p.unusable(i, block) {
			p.reason(s, i, ReservedLeft)
			return true, nil
		}
		return t.occupied(p.cat, i, block)
	}
	lo, at := ordinalOf(netip.PrefixFrom(pool.Prefix.Addr(), pool.BlockBits)), ordinalOf(start)
	hi := lo.Or(addr.Low(uint(pool.BlockBits - pool.Prefix.Bits())))
	block, ok, err := findFree(read, pool.Prefix, pool.BlockBits, at, hi, skip)
	if !ok && err == nil && at != lo {
		block, ok, err = findFree(read, pool.Prefix, pool.BlockBits, lo, at.Sub(addr.U128{Lo: 1}), skip)
	}
	return block, ok, err
}

// blockOptions are those of a block made for the owner.
func (p *assignPlan) blockOptions() BlockOptions {
	return BlockOptions{Owner: p.Owner, Head: p.Head, Tail: p.Tail}
}

// take picks from a block made for the owner.
func (p *assignPlan) take(s *search, i int, be *blockEntry, b *Block) {
	ordinals := b.free.peek(nil, s.want, b.avoided(p.cat, i))
	s.want -= len(ordinals)
	p.picks = append(p.picks, pick{be: be, fresh: b, ordinals: ordinals})
	if free, _ := b.Free(); s.want > 0 && free > uint64(len(ordinals)) {
		p.reason(s, i, ReservedLeft)
	}
}

// pickEmpty takes over blocks of others that have been empty for long enough.
func (p *assignPlan) pickEmpty(t *txn, s *search) error {
	for _, i := range s.pools {
		if s.want == 0 || !p.mayClaim(t, i) {
			continue
		}
		err := p.walk(t, i, kindEmpty, func(block netip.Prefix, since int64) (bool, error) {
			if t.now-since < takeoverAge || s.want == 0 || !p.mayClaim(t, i) {
				return s.want == 0, nil
			}
			be, err := t.block(p.cat, block)
			if err != nil {
				return false, err
			}
			if be.Block == nil || !be.isEmpty() || be.owner == p.Owner || be.owner.Kind == Nobody || t.now-be.since < takeoverAge {
				t.doubt(&be.entry) // the index says otherwise
				return false, nil
			}
			if p.unusable(i, block) || p.picked(be) {
				return false, nil
			}
			o := p.blockOptions()
			o.Claimed, o.Seq = unstamp(t.now), be.seq
			b, err := NewBlock(block, o)
			if err != nil {
				return false, err
			}
			if err := p.draft.take(t, be.owner, block); err != nil {
				return false, err
			}
			if p.taken == nil {
				p.taken = make(map[*blockEntry]bool)
			}
			p.taken[be] = true
			p.take(s, i, be, b)
			return false, p.draft.give(t, p.Owner, block)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pickOrphans adopts blocks without owner that have room. Only strict affinity needs it: otherwise they are borrowed
// from like any other.
func (p *assignPlan) pickOrphans(t *txn, s *search) error {
	for _, i := range s.pools {
		if s.want == 0 || !p.mayClaim(t, i) {
			continue
		}
		err := p.walk(t, i, kindOrphan, func(block netip.Prefix, _ int64) (bool, error) {
			if s.want == 0 || !p.mayClaim(t, i) {
				return true, nil
			}
			be, err := t.block(p.cat, block)
			if err != nil {
				return false, err
			}
			if n := len(p.picks); be.Block != nil && be.owner.Kind == Nobody && p.pickFrom(s, i, be) {
				p.picks[n].adopt = true
				return false, p.draft.give(t, p.Owner, block)
			}
			t.doubt(&be.entry)
			return false, nil
		})
		if err != nil {
			return err
		}
	}
	return p.noteForeign(t, s)
}

// noteForeign finds the pools in which others have room that strict affinity keeps from this owner.
func (p *assignPlan) noteForeign(t *txn, s *search) error {
	for _, i := range s.pools {
		if s.want == 0 || s.reasons[i] == LimitReached {
			continue
		}
		err := p.walk(t, i, kindRoom, func(block netip.Prefix, ready int64) (bool, error) {
			be, err := t.block(p.cat, block)
			if err != nil || be.Block == nil || be.owner == p.Owner || be.owner.Kind == Nobody {
				return false, err
			}
			if ready > t.now {
				p.reason(s, i, CoolingLeft)
				return false, nil
			}
			s.reasons[i] = ForeignLeft
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pickForeign borrows from any block with room.
func (p *assignPlan) pickForeign(t *txn, s *search) error {
	for _, i := range s.pools {
		err := p.walk(t, i, kindRoom, func(block netip.Prefix, ready int64) (bool, error) {
			if s.want == 0 {
				return true, nil
			}
			if ready > t.now {
				p.reason(s, i, CoolingLeft)
				return false, nil
			}
			be, err := t.block(p.cat, block)
			if err != nil || p.taken[be] {
				return false, err
			}
			if be.Block == nil || be.owner == p.Owner || !p.pickFrom(s, i, be) {
				t.doubt(&be.entry) // the index says that it has room
			}
			return s.want == 0, nil
		})
		if err != nil || s.want == 0 {
			return err
		}
	}
	return nil
}

// walk calls visit for the blocks of the pool's present size that an index lists, from the owner's place on and
// around, until it returns true.
func (p *assignPlan) walk(t *txn, i int, kind string, visit func(netip.Prefix, int64) (bool, error)) error {
	pool := &p.cat.Pools[i]
	all := blockRange(kind, pool.Prefix)
	start := blockKey(kind, StartOf(p.Owner, pool.Prefix, pool.BlockBits))
	for _, r := range [...]Range{{From: start, To: all.To, Limit: listPage}, {From: all.From, To: start, Limit: listPage}} {
		for {
			recs, err := t.list(r)
			if err != nil {
				return err
			}
			for _, rec := range recs {
				block, ok := parseBlockID(rec.Key[1:])
				if !ok || block.Bits() != pool.BlockBits {
					continue
				}
				if done, err := visit(block, parseIndexValue(rec.Value)); err != nil || done {
					return err
				}
			}
			if len(recs) < listPage {
				break
			}
			r.From = recs[len(recs)-1].Key + "\x00"
		}
	}
	return nil
}

// pickFrom picks what is wanted and free from a block and reports whether it found any.
func (p *assignPlan) pickFrom(s *search, i int, be *blockEntry) bool {
	ordinals := p.next(be, s.want, be.avoid(p.cat, i))
	s.want -= len(ordinals)
	if len(ordinals) > 0 {
		p.picks = append(p.picks, pick{be: be, ordinals: ordinals})
	}
	if s.want > 0 && len(be.cool) > 0 {
		p.reason(s, i, CoolingLeft)
	}
	if free, _ := be.Free(); s.want > 0 && free > uint64(len(ordinals)+p.sticky) {
		p.reason(s, i, ReservedLeft) // free, and passed over
	}
	return len(ordinals) > 0
}

// picked reports whether an address of a block has been picked for the handle that had it before.
func (p *assignPlan) picked(be *blockEntry) bool {
	return slices.ContainsFunc(p.picks[:p.sticky], func(k pick) bool { return k.be == be })
}

// next returns the next ordinals of a block that have not been picked already, which only those of a sticky handle can be:
// every block is met once otherwise.
func (p *assignPlan) next(be *blockEntry, n int, avoid []span) []uint64 {
	var had []uint64
	for _, k := range p.picks[:p.sticky] {
		if k.be == be {
			had = append(had, k.ordinals...)
		}
	}
	dst := p.few[:0]
	if len(p.picks) > 0 {
		dst = nil // it is in use
	}
	ordinals := be.free.peek(dst, n+len(had), avoid)
	if len(had) > 0 {
		ordinals = slices.DeleteFunc(ordinals, func(x uint64) bool { return slices.Contains(had, x) })
	}
	return ordinals[:min(n, len(ordinals))]
}

// mayClaim reports whether the limits let the owner have one more block of a pool.
func (p *assignPlan) mayClaim(t *txn, i int) bool {
	blocks, err := p.draft.blocksOf(t, p.Owner)
	if err != nil {
		return false // the record was read when the plan began
	}
	return p.cat.mayClaim(blocks, i, p.MaxBlocks)
}

// serves reports whether pool i is one of those searched.
func (s *search) serves(i int) bool {
	for _, j := range s.pools {
		if i == j {
			return true
		}
	}
	return false
}

// reason notes why a pool gave nothing, unless something better is known.
func (p *assignPlan) reason(s *search, i int, r Reason) {
	if old, known := s.reasons[i]; !known || r > old {
		s.reasons[i] = r
	}
}

// short reports the pools of a family that could not give enough. A limit is a reason only where there is a free block.
func (p *assignPlan) short(t *txn, s *search) error {
	for _, i := range s.pools {
		if s.reasons[i] == LimitReached {
			pool := &p.cat.Pools[i]
			_, ok, err := p.nextFree(t, s, i, StartOf(p.Owner, pool.Prefix, pool.BlockBits))
			if err != nil {
				return err
			}
			if !ok {
				s.reasons[i] = Full
			}
		}
		p.result.Short = append(p.result.Short, Shortage{s.family, p.cat.Pools[i].Name, s.reasons[i]})
	}
	return nil
}

// tooFew is the error of an all-or-nothing call.
func (p *assignPlan) tooFew() error {
	var why []string
	for _, s := range p.result.Short {
		why = append(why, fmt.Sprintf("%s: %s", s.Pool, s.Reason))
	}
	return fmt.Errorf("%w: %s", ErrShort, strings.Join(why, ", "))
}
