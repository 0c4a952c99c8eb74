package ipset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// start returns the block of a pool at which the searches begin.
func (p *assignPlan) start(i int) netip.Prefix {
	pool := &p.cat.Pools[i]
	if pool.Order == Lowest {
		return netip.PrefixFrom(pool.Prefix.Addr(), pool.BlockBits)
	}
	return StartOf(p.Owner, pool.Prefix, pool.BlockBits)
}

// peek appends the next k ordinals that pool i hands out from a block.
func (p *assignPlan) peek(b *block.Block, i int, dst []uint64, k int, avoid []block.Span) []uint64 {
	if p.inRow() {
		return b.PeekRun(dst, k, p.Aligned, avoid)
	}
	if o := p.cat.Pools[i].Order; o != FIFO {
		return b.PeekOrder(o, p.cat.seeds[i], dst, k, avoid)
	}
	return b.Peek(dst, k, avoid)
}

// nextFree finds a free block of a pool, from start to the end and then from the beginning to start.
func (p *assignPlan) nextFree(t *txn, s *search, i int, start netip.Prefix) (netip.Prefix, bool, error) {
	pool := &p.cat.Pools[i]
	at := ordinalOf(start)
	lo := ordinalOf(netip.PrefixFrom(pool.Prefix.Addr(), pool.BlockBits))
	hi := lo.Or(addr.Low(uint(pool.BlockBits - pool.Prefix.Bits())))
	block, ok, err := p.freeFrom(t, s, i, at, hi)
	if !ok && err == nil && at != lo {
		block, ok, err = p.freeFrom(t, s, i, lo, at.Sub(addr.U128{Lo: 1}))
	}
	return block, ok, err
}

// freeFrom finds the first block of a pool from ordinal at to hi that does not exist and that may be claimed.
func (p *assignPlan) freeFrom(t *txn, s *search, i int, at, hi addr.U128) (netip.Prefix, bool, error) {
	pool := &p.cat.Pools[i]
	for at.Cmp(hi) <= 0 {
		block, ok, err := t.free(pool.Prefix, pool.BlockBits, at, hi)
		if !ok || err != nil {
			return netip.Prefix{}, false, err
		}
		if end, nested := p.cat.inner[i].cover(block); nested {
			block = after(block, end)
			if !block.IsValid() {
				break
			}
			at = ordinalOf(block)
			continue
		}
		next, no := p.reserved(i, block)
		if no {
			p.reason(s, i, ReservedLeft)
		} else if next, no, err = t.occupied(p.cat, i, block); !no || err != nil {
			return block, err == nil, err
		}
		if !next.IsValid() {
			break
		}
		at = ordinalOf(next)
	}
	return netip.Prefix{}, false, nil
}

// reserved reports whether a block that would be made had no address that automatic assignment may take, and which is the
// next one that may have, the zero prefix if there is none.
func (p *assignPlan) reserved(i int, block netip.Prefix) (next netip.Prefix, no bool) {
	if end, covered := p.cat.avoid[i].cover(block); covered {
		return after(block, end), true
	}
	return after(block, lastAddr(block)), p.unusable(i, block)
}

// after returns the block of the same size as b that has the address after end; the zero prefix if end is the last
// address there is.
func after(b netip.Prefix, end netip.Addr) netip.Prefix {
	if end = end.Next(); !end.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(end, b.Bits()).Masked()
}

// blockOptions are those of a block made for the owner.
func (p *assignPlan) blockOptions() block.Options {
	return block.Options{Owner: p.Owner, Head: p.Head, Tail: p.Tail}
}

// take picks from a block made for the owner.
func (p *assignPlan) take(s *search, i int, be *blockEntry, b *block.Block) {
	ordinals := p.peek(b, i, nil, s.want, avoided(b, p.cat, i))
	s.want -= len(ordinals)
	p.picks = append(p.picks, pick{be: be, fresh: b, ordinals: ordinals})
	if free, _ := b.Free(); s.want > 0 && free > uint64(len(ordinals)) {
		p.reason(s, i, ReservedLeft)
	}
}

// pickFrom picks what is wanted and free from a block and reports whether it found any.
func (p *assignPlan) pickFrom(t *txn, s *search, i int, be *blockEntry) bool {
	ordinals := p.next(be, i, s.want)
	s.want -= len(ordinals)
	if len(ordinals) > 0 {
		t.Guard(&be.Cell)
		p.picks = append(p.picks, pick{be: be, ordinals: ordinals})
	}
	if s.want > 0 && be.Cooling() > 0 {
		p.reason(s, i, CoolingLeft)
	}
	if free, _ := be.Free(); s.want > 0 && p.inRow() && free > 0 {
		s.ragged = append(s.ragged, i)
		p.reason(s, i, Fragmented)
	} else if s.want > 0 && free > uint64(len(ordinals)+p.sticky) {
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
func (p *assignPlan) next(be *blockEntry, i, n int) []uint64 {
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
	ordinals := p.peek(be.Block, i, dst, n+len(had), be.avoid(p.cat, i))
	if len(had) > 0 {
		ordinals = slices.DeleteFunc(ordinals, func(x uint64) bool { return slices.Contains(had, x) })
	}
	return ordinals[:min(n, len(ordinals))]
}

// mayClaim reports whether the limits let the owner have one more block of a pool.
func (p *assignPlan) mayClaim(t *txn, i int) bool {
	blocks, err := t.blocksOf(p.Owner)
	if err != nil {
		return false // the record was read when the plan began
	}
	return p.cat.mayClaim(blocks, i, p.MaxBlocks)
}

// because sets the reason why a pool gave nothing.
func (s *search) because(i int, r Reason) {
	if s.reasons == nil {
		s.reasons = make(map[int]Reason)
	}
	s.reasons[i] = r
}

// reason notes why a pool gave nothing, unless something better is known.
func (p *assignPlan) reason(s *search, i int, r Reason) {
	if old, known := s.reasons[i]; !known || r > old {
		s.because(i, r)
	}
}

// short reports the pools of a family that could not give enough. A limit is a reason only where there is a free block. Blocks
// full of leases are in no index of room, so there is no shortage before what has ended is written.
func (p *assignPlan) short(t *txn, s *search) error {
	if err := p.ended(t, s); err != nil {
		return err
	}
	for k := 0; ; k++ {
		i, ok := s.any(k)
		if !ok {
			return nil
		}
		if s.reasons[i] == LimitReached {
			_, ok, err := p.nextFree(t, s, i, p.start(i))
			if err != nil {
				return err
			}
			if !ok && slices.Contains(s.ragged, i) {
				s.because(i, Fragmented)
			} else if !ok {
				s.because(i, Full)
			}
		}
		if s.reasons[i] == ReservedLeft && p.cat.onlyOutside(i) {
			s.because(i, OutsideLeft)
		}
		p.result.Short = append(p.result.Short, Shortage{s.family, p.cat.Pools[i].Name, s.reasons[i]})
	}
}

// ended returns errDue with blocks of the tried pools in which a lease or a cooldown has ended that the plan has not seen, if
// there are any.
func (p *assignPlan) ended(t *txn, s *search) error {
	for k, ok := 0, true; ok; k++ {
		_, ok = s.any(k) // all pools are looked for
	}
	r := dueBy(t.past)
	r.Limit = listPage
	for {
		recs, err := t.List(r)
		if err != nil {
			return err
		}
		var due []netip.Prefix
		for _, rec := range recs {
			at, ok := parseDueKey(rec.Key)
			if !ok {
				continue // Check reports it
			}
			if i := p.cat.containing(at.Addr()); !slices.Contains(s.pools, i) || at.Bits() != p.cat.Pools[i].BlockBits {
				continue
			}
			due = append(due, at)
		}
		if err := t.warm(due); err != nil {
			return err
		}
		due = slices.DeleteFunc(due, func(at netip.Prefix) bool { // by its record, as the index may be damaged
			be := t.blocks.Get(at)
			unwritten := len(be.changes.List) > 0 && !t.Guarded(&be.Cell) // ended in the cache alone
			t.Sure(&be.Cell)
			return !unwritten && !be.isDue(t.past)
		})
		if len(due) > 0 {
			return &errDue{due}
		}
		if len(recs) < r.Limit {
			return nil
		}
		r.From = recs[len(recs)-1].Key + "\x00"
	}
}

// tooFew is the error of an all-or-nothing call.
func (p *assignPlan) tooFew() error {
	var why []string
	for _, s := range p.result.Short {
		why = append(why, fmt.Sprintf("%s: %s", s.Pool, s.Reason))
	}
	return fmt.Errorf("%w: %s", errShort, strings.Join(why, ", "))
}
