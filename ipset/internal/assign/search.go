package assign

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// The search says why it found nothing. An operator acts differently on a pool that is full, reserved, cooling or limited, and
// the reason is known only where a place is passed over.

// start returns the block of a pool at which the searches begin.
func (p *AssignPlan) start(i int) netip.Prefix {
	pool := &p.cat.Pools[i]
	if pool.Order == alloc.Lowest {
		return netip.PrefixFrom(pool.Prefix.Addr(), pool.BlockBits)
	}
	return record.StartOf(p.Owner, pool.Prefix, pool.BlockBits)
}

// peek appends the next k ordinals that pool i hands out from a block.
func (p *AssignPlan) peek(b *block.Block, i int, dst []uint64, k int, avoid []block.Span) []uint64 {
	if p.inRow() {
		return b.PeekRun(dst, k, p.Aligned, avoid)
	}
	if p.onward(b.Prefix()) {
		return b.PeekOrder(alloc.Lowest, 0, dst, k, p.above(b, avoid))
	}
	if o := p.cat.Pools[i].Order; o != alloc.FIFO {
		return b.PeekOrder(o, p.cat.Pools[i].Seed, dst, k, avoid)
	}
	return b.Peek(dst, k, avoid)
}

// nextFree finds a free block of a pool, from start to the end and then from the beginning to start.
func (p *AssignPlan) nextFree(t *txn.Txn, s *Search, i int, start netip.Prefix) (netip.Prefix, bool, error) {
	pool := &p.cat.Pools[i]
	at := record.OrdinalOf(start)
	lo := record.OrdinalOf(netip.PrefixFrom(pool.Prefix.Addr(), pool.BlockBits))
	hi := lo.Or(addr.Low(uint(pool.BlockBits - pool.Prefix.Bits())))
	block, ok, err := p.freeFrom(t, s, i, at, hi)
	if !ok && err == nil && at != lo {
		block, ok, err = p.freeFrom(t, s, i, lo, at.Sub(addr.U128{Lo: 1}))
	}
	return block, ok, err
}

// freeFrom finds the first block of a pool from ordinal at to hi that does not exist and that may be claimed.
func (p *AssignPlan) freeFrom(t *txn.Txn, s *Search, i int, at, hi addr.U128) (netip.Prefix, bool, error) {
	pool := &p.cat.Pools[i]
	for at.Cmp(hi) <= 0 {
		block, ok, err := t.Free(pool.Prefix, pool.BlockBits, at, hi)
		if !ok || err != nil {
			return netip.Prefix{}, false, err
		}
		if end, nested := p.cat.Pools[i].Inner.Cover(block); nested {
			block = record.After(block, end)
			if !block.IsValid() {
				break
			}
			at = record.OrdinalOf(block)
			continue
		}
		next, no := p.reserved(i, block)
		if no {
			p.passed(s, i, block)
		} else {
			var by netip.Prefix
			if by, next, err = t.Occupied(p.cat, i, block); err != nil || !by.IsValid() {
				return block, err == nil, err
			}
			if err := p.keptBack(t, s, i, block, by); err != nil {
				return block, false, err
			}
		}
		if !next.IsValid() {
			break
		}
		at = record.OrdinalOf(next)
	}
	return netip.Prefix{}, false, nil
}

// reserved reports whether a block that would be made had no address that automatic assignment may take, and which is the
// next one that may have, the zero prefix if there is none.
func (p *AssignPlan) reserved(i int, block netip.Prefix) (next netip.Prefix, no bool) {
	if end, covered := p.cat.Pools[i].Avoid.Cover(block); covered {
		return record.After(block, end), true
	}
	return record.After(block, record.LastAddr(block)), p.unusable(i, block)
}

// passed notes why a free block was passed over: all of it is reserved, or what is not has too few addresses in a row.
func (p *AssignPlan) passed(s *Search, i int, at netip.Prefix) {
	why := alloc.ReasonReservedLeft
	if b, err := block.New(at, p.blockOptions()); p.inRow() && err == nil && p.hasOne(b, i) {
		why = alloc.ReasonFragmented
	}
	p.reason(s, i, why)
}

// hasOne reports whether automatic assignment may take an address of a block, however short the run that it is in.
func (p *AssignPlan) hasOne(b *block.Block, i int) bool {
	return len(b.Peek(nil, 1, txn.Avoided(b, p.cat, i))) > 0
}

// blockOptions are those of a block made for the owner.
func (p *AssignPlan) blockOptions() block.Options {
	return block.Options{Owner: p.Owner, Head: p.Blocks.Head, Tail: p.Blocks.Tail}
}

// take picks from a block made for the owner.
func (p *AssignPlan) take(s *Search, i int, be *txn.BlockEntry, b *block.Block) {
	ordinals := p.peek(b, i, nil, s.want, txn.Avoided(b, p.cat, i))
	s.want -= len(ordinals)
	p.picks = append(p.picks, pick{be: be, fresh: b, ordinals: ordinals})
	if free, _ := b.Free(); s.want > 0 && free > uint64(len(ordinals)) && !p.cuts(b.Prefix()) {
		p.reason(s, i, alloc.ReasonReservedLeft)
	}
}

// pickFrom picks what is wanted and free from a block and reports whether it found any.
func (p *AssignPlan) pickFrom(t *txn.Txn, s *Search, i int, be *txn.BlockEntry) bool {
	ordinals := p.next(be, i, s.want)
	s.want -= len(ordinals)
	if len(ordinals) > 0 {
		t.Guard(&be.Cell)
		p.picks = append(p.picks, pick{be: be, ordinals: ordinals})
	}
	if until, _ := be.CoolingTimes(); s.want > 0 && until != 0 {
		p.cooling(s, i, until)
	}
	if free, _ := be.Free(); s.want > 0 && p.inRow() && free > 0 && p.hasOne(be.Block, i) {
		s.ragged = append(s.ragged, i)
		p.reason(s, i, alloc.ReasonFragmented)
	} else if s.want > 0 && free > uint64(len(ordinals)+p.sticky) && !p.cuts(be.At) {
		p.reason(s, i, alloc.ReasonReservedLeft) // free, and passed over
	}
	return len(ordinals) > 0
}

// picked reports whether an address of a block has been picked for the handle that had it before.
func (p *AssignPlan) picked(be *txn.BlockEntry) bool {
	return slices.ContainsFunc(p.picks[:p.sticky], func(k pick) bool { return k.be == be })
}

// next returns the next ordinals of a block that have not been picked already, which only those of a sticky handle can be:
// every block is met once otherwise.
func (p *AssignPlan) next(be *txn.BlockEntry, i, n int) []uint64 {
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
	ordinals := p.peek(be.Block, i, dst, n+len(had), be.Avoid(p.cat, i))
	if len(had) > 0 {
		ordinals = slices.DeleteFunc(ordinals, func(x uint64) bool { return slices.Contains(had, x) })
	}
	return ordinals[:min(n, len(ordinals))]
}

// mayClaim reports whether the limits let the owner have one more block of a pool.
func (p *AssignPlan) mayClaim(t *txn.Txn, i int) (bool, error) {
	_, reached, err := t.Limit(p.cat.Catalog, p.Owner, i, p.Blocks.Max)
	return !reached, err
}

// because sets the reason why a pool gave nothing.
func (s *Search) because(i int, r alloc.Reason) {
	if s.reasons == nil {
		s.reasons = make(map[int]alloc.Reason)
	}
	s.reasons[i] = r
}

// reason notes why a pool gave nothing, unless something better is known.
func (p *AssignPlan) reason(s *Search, i int, r alloc.Reason) {
	if r > s.reasons[i] {
		s.because(i, r)
	}
}

// short reports the pools of a family that could not give enough. A limit is a reason only where there is a block for claiming.
func (p *AssignPlan) short(t *txn.Txn, s *Search) error {
	for k := 0; ; k++ {
		i, ok := s.Any(k)
		if !ok {
			return nil
		}
		if s.reasons[i] == alloc.ReasonLimitReached {
			ok, err := p.claimable(t, s, i)
			if err != nil {
				return err
			}
			switch {
			case ok:
				s.because(i, alloc.ReasonLimitReached)
			case slices.Contains(s.ragged, i) || s.reasons[i] == alloc.ReasonFragmented:
				s.because(i, alloc.ReasonFragmented)
			default:
				s.because(i, alloc.ReasonFull)
				if p.cat.Config.Strict && !p.inRow() {
					err = p.noteForeign(t, s, i)
				}
			}
			if err != nil {
				return err
			}
		}
		if s.kept[i].IsValid() {
			p.reason(s, i, alloc.ReasonDrainingLeft)
		}
		if s.reasons[i] == alloc.ReasonReservedLeft && p.cat.OnlyOutside(i) {
			s.because(i, alloc.ReasonOutsideLeft)
		}
		short, err := p.shortageOf(t, s, i)
		if err != nil {
			return err
		}
		p.result.Short = append(p.result.Short, short)
	}
}

// claimable reports whether pool i has a block that the owner could have but for a limit: a free one, one that another has left, or one
// without owner.
func (p *AssignPlan) claimable(t *txn.Txn, s *Search, i int) (bool, error) {
	if _, ok, err := p.nextFree(t, s, i, p.start(i)); ok || err != nil {
		return ok, err
	}
	for _, index := range [...]struct {
		kind string
		most int64
		of   standing
	}{{record.KindEmpty, t.IdleSince(), idle}, {ofNobody, t.Past, orphan}} {
		if index.of == orphan && p.inRow() {
			break // none is adopted
		}
		w := p.walk(t, s, i, index.kind, p.start(i), index.most)
		for w.next() {
			t.Sure(&w.be.Cell)
			if p.standing(t, w.be) == index.of && p.serves(i, w.be.At) && (index.of == orphan || !p.unusable(i, w.be.At)) && p.hasOne(w.be.Block, i) {
				return true, nil
			}
		}
		if w.err != nil {
			return false, w.err
		}
	}
	return false, nil
}

// mostOthers is how many blocks of other pools that are due a search leaves to be listed by the next ones.
const mostOthers = 8

// timed returns ErrDue with blocks of the tried pools in which a lease or a cooldown has ended that is not written, if there are any. A
// search that goes beyond the owner's blocks begins with it, because a block full of leases is in no index of room, and one that time
// empties is in none of empty or free blocks: an assignment is the one that would follow a sweep.
func (p *AssignPlan) timed(t *txn.Txn, s *Search) error {
	if s.timely {
		return nil
	}
	s.later = nil
	r := record.DueBy(t.Past)
	for r.Limit = mostAtOnce; ; {
		recs, err := s.lists.DueIn(t, r)
		if err != nil {
			return err
		}
		var due, others []netip.Prefix
		for _, rec := range recs {
			at, ok := record.ParseDueKey(rec.Key)
			switch {
			case !ok: // Check reports it
			case s.ServesPart(at):
				due = append(due, at)
			default:
				others = append(others, at)
			}
		}
		if len(due) == 0 && len(others) >= mostOthers {
			due = others // else each call would list them again
		}
		if due, err = p.unwritten(t, due); err != nil {
			return err
		}
		if len(due) > 0 {
			return &txn.ErrDue{Blocks: due}
		}
		if s.later = append(s.later, others...); len(recs) < r.Limit {
			s.timely = true
			return nil
		}
		r.From = recs[len(recs)-1].Key + "\x00"
	}
}

// unwritten returns those of some blocks in which a time has ended that is not written, by their records, as the index may be damaged.
func (p *AssignPlan) unwritten(t *txn.Txn, due []netip.Prefix) ([]netip.Prefix, error) {
	if len(due) == 0 {
		return nil, nil
	}
	err := t.Warm(due)
	return slices.DeleteFunc(due, func(at netip.Prefix) bool {
		be := t.Blocks.Get(at)
		if err != nil || be.IsDue(t.Past) || len(be.Changes.List) > 0 {
			return false
		}
		t.Sure(&be.Cell)
		return true
	}), err
}

// last returns the pool from which the family's last pick is, the first of its pools if there is none.
func (s *Search) last(picks []pick) int {
	for _, k := range slices.Backward(picks) {
		if record.Family(k.be.At) == s.family {
			return s.Cat.Containing(k.be.At.Addr())
		}
	}
	return s.Pools[0]
}

// nextTier goes on to the pools of the next lower priority.
func (s *Search) nextTier() bool {
	ok := s.NextTier()
	s.timely = s.timely && !(ok && slices.ContainsFunc(s.later, s.ServesPart))
	return ok
}
