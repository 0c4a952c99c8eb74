package assign

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A host that has no room of its own is sent to free blocks, idle ones, orphans and at last to those of others, in the order in
// which they disturb other hosts least. Each kind has an index, so the cost follows what is found and not the size of the pool.

// A walk looks at firstList index records first, then at more at a time, at most mostAtOnce. A list has listPage at most.
const (
	firstList  = 8
	mostAtOnce = 64
	listPage   = 256
)

// walk yields the blocks of pool i's present size that an index lists, from a block on and around, advanced to the present, while
// addresses are wanting. kind is what the keys of the index begin with. Blocks with a value above most in their record, and those
// of which automatic assignment may take nothing, are left out without being read, and so are those of pools in this one.
//
// The index records are read now, the blocks perhaps long ago. So blocks that are not what their record says are read
// again, and the commit verifies those that the caller passes over, by [occ.Txn.Sure]; all are read again where it could not
// verify so many.
func (p *AssignPlan) walk(t *txn.Txn, s *Search, i int, kind string, start netip.Prefix, most int64) iter.Seq2[*txn.BlockEntry, error] {
	all, at := record.BlockRange(kind, p.cat.Pools[i].Prefix), record.BlockKey(kind, start)
	return p.walkIn(t, s, i, kind, most, store.Range{From: at, To: all.To}, store.Range{From: all.From, To: at})
}

// walkIn is walk over ranges of the index.
func (p *AssignPlan) walkIn(t *txn.Txn, s *Search, i int, kind string, most int64, ranges ...store.Range) iter.Seq2[*txn.BlockEntry, error] {
	return func(yield func(*txn.BlockEntry, error) bool) {
		if err := p.timed(t, s); err != nil {
			yield(nil, err)
			return
		}
		limit := firstList
		for _, r := range ranges {
			for ; r.From < r.To && s.want > 0; limit = min(2*limit, mostAtOnce) {
				r.Limit = limit
				blocks, err := p.list(t, s, i, kind, &r, most)
				for k := 0; err == nil && k < len(blocks) && s.want > 0; k++ {
					var be *txn.BlockEntry
					if be, err = t.Peek(p.cat, blocks[k]); err != nil {
						break
					}
					if be.Block == nil {
						t.Sure(&be.Cell)
					} else if !yield(be, nil) {
						return
					}
				}
				if err != nil {
					yield(nil, err)
					return
				}
			}
		}
	}
}

// list reads the next records of an index, and the blocks that are not as they say. It leaves in r what is still to be listed.
func (p *AssignPlan) list(t *txn.Txn, s *Search, i int, kind string, r *store.Range, most int64) (blocks []netip.Prefix, err error) {
	recs, next, err := s.listed(t, kind, *r)
	if err != nil {
		return nil, err
	}
	var old []string
	many := t.Guards()+len(recs) > t.MostGuards()
	beyond, size := "", p.cat.Pools[i].BlockBits // the end of what has been listed, or of the avoided range that it ends in
	skip := func(end netip.Addr) {
		if beyond = r.To; end.Next().IsValid() {
			beyond = record.BlockKey(kind, netip.PrefixFrom(end.Next(), size).Masked())
		}
	}
	for _, rec := range recs {
		if rec.Key < beyond {
			continue
		}
		beyond = rec.Key + "\x00"
		block, ok := record.ParseBlockID(rec.Key[len(kind):])
		if !ok {
			continue
		}
		if end, nested := p.cat.Inner[i].Cover(block); nested {
			skip(end)
			continue
		}
		value := record.ParseIndexValue(rec.Value)
		end, covered := p.cat.Avoid[i].Cover(block)
		switch {
		case block.Bits() != size:
		case covered:
			p.reason(s, i, alloc.ReasonReservedLeft)
			skip(end)
		case value > most:
			if kind != record.KindEmpty {
				p.cooling(s, i, value)
			}
		default:
			blocks = append(blocks, block)
			if be := t.Blocks.Get(block); be == nil || many && !t.Guarded(&be.Cell) || !be.Shown.Says(kind, value) {
				old = append(old, record.BlockKey(record.KindBlock, block))
			}
		}
	}
	r.From = max(beyond, next)
	if len(old) == 0 {
		return blocks, nil
	}
	return blocks, t.Read(old...)
}

// pickTier goes through the places in the pools of one priority, best first.
func (p *AssignPlan) pickTier(t *txn.Txn, s *Search) error {
	if err := p.pickOwn(t, s); err != nil || s.want == 0 {
		return err
	}
	switch {
	case p.inRow():
		return p.pickIn(t, s, p.pickFree, p.pickEmpty, p.noteRagged)
	case p.cat.Config.Strict:
		return p.pickIn(t, s, p.pickFree, p.pickEmpty, p.pickOrphans, p.noteForeign)
	}
	return p.pickIn(t, s, p.pickFree, p.pickEmpty, p.pickOrphans, p.pickForeign)
}

// pickIn goes through some places, each in all pools of the tier, while addresses are wanting.
func (p *AssignPlan) pickIn(t *txn.Txn, s *Search, places ...func(*txn.Txn, *Search, int) error) error {
	for _, pick := range places {
		for k := 0; s.want > 0; k++ {
			i, ok := s.Pool(k)
			if !ok {
				break
			}
			if err := pick(t, s, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// pickOwn picks from the blocks that the owner has, in address order. What follows rests on those passed over having no
// room, which the commit verifies. Of very many it cannot: then an index says which of them have room.
func (p *AssignPlan) pickOwn(t *txn.Txn, s *Search) error {
	own := p.own.Get()
	if own.N > t.MostGuards() {
		return p.pickIn(t, s, p.pickOwnOfMany)
	}
	for _, at := range own.Blocks {
		if be := t.Blocks.Get(at); be == nil || t.Doubtful(&be.Cell) {
			if err := t.Warm(own.Blocks); err != nil {
				return err
			}
			break
		}
	}
	for _, at := range own.Blocks {
		if s.want == 0 {
			break
		}
		i := p.cat.Containing(at.Addr())
		if !s.Serves(i) || at.Bits() != p.cat.Pools[i].BlockBits {
			continue // another family or pool, or a size that the pool no longer has: left to drain
		}
		be, err := t.Block(p.cat, at)
		if err != nil {
			return err
		}
		if be.Block == nil {
			p.pickMore(s, i, be)
		} else if be.Owner() == p.Owner || p.adopted(be) {
			p.pickFrom(t, s, i, be)
		}
	}
	return nil
}

// adopted reports whether a block becomes the owner's by an address that the call names.
func (p *AssignPlan) adopted(be *txn.BlockEntry) bool {
	return p.taken[be] && slices.ContainsFunc(p.picks[:p.sticky], func(k pick) bool { return k.be == be && k.adopt })
}

// pickOwnOfMany picks from the blocks in pool i of an owner of more than a commit can verify. It begins with the block that had
// room last; the index is read only if that does not suffice.
func (p *AssignPlan) pickOwnOfMany(t *txn.Txn, s *Search, i int) error {
	pool := &p.cat.Pools[i]
	start := netip.PrefixFrom(pool.Prefix.Addr(), pool.BlockBits)
	var had *txn.BlockEntry
	if last := t.E.Hints.Get(p.Owner, s.family); last.IsValid() && last.Bits() == pool.BlockBits && p.cat.Containing(last.Addr()) == i {
		be, err := t.Peek(p.cat, last)
		if err != nil {
			return err
		}
		if start, had = last, be; be.Block == nil {
			p.pickMore(s, i, be)
		} else if be.Owner() == p.Owner {
			p.pickFrom(t, s, i, be)
		}
		if s.want == 0 {
			return nil
		}
	}
	for be, err := range p.walk(t, s, i, record.CodeRange(record.KindOwnRoom, p.Owner).From, start, t.Past) {
		if err != nil {
			return err
		}
		if be != had && be.Owner() == p.Owner && p.pickFrom(t, s, i, be) {
			p.hint(t, be.At)
		}
	}
	return nil
}

// hint notes the block of the owner that had room last, if it may have too many to look at each.
func (p *AssignPlan) hint(t *txn.Txn, block netip.Prefix) {
	if p.own != nil && p.own.Get().N >= t.MostGuards() {
		t.E.Hints.Set(p.Owner, block)
	}
}

// pickFree claims blocks that nobody has.
func (p *AssignPlan) pickFree(t *txn.Txn, s *Search, i int) error {
	if !p.fits(i, s.want) {
		s.because(i, alloc.ReasonTooSmall)
		return nil
	}
	for s.want > 0 {
		if may, err := p.mayClaim(t, i); err != nil {
			return err
		} else if !may {
			s.because(i, alloc.ReasonLimitReached) // whether there is a free block is looked up if it comes to a shortage
			return nil
		}
		block, ok, err := p.nextFree(t, s, i, p.start(i))
		if err == nil && block != p.start(i) { // some that was passed over may be one that time empties
			err = p.timed(t, s)
		}
		if err != nil || !ok {
			return err
		}
		b, err := t.NewBlock(p.cat, i, block, p.blockOptions())
		if err != nil {
			return err
		}
		p.take(s, i, t.Blocks.Get(block), b)
	}
	return nil
}

// pickEmpty takes over blocks of others that have been empty for long enough.
func (p *AssignPlan) pickEmpty(t *txn.Txn, s *Search, i int) error {
	before := t.Past - takeoverAge
	if s.reasons[i] == alloc.ReasonTooSmall {
		return nil
	}
	if may, err := p.mayClaim(t, i); err != nil || !may {
		return err
	}
	for be, err := range p.walk(t, s, i, record.KindEmpty, p.start(i), before) {
		switch {
		case err != nil:
			return err
		case !be.IsEmpty() || be.Owner() == p.Owner || be.Owner().Kind == alloc.Nobody || be.Since() > before:
			t.Sure(&be.Cell)
		case p.unusable(i, be.Prefix()) || p.picked(be):
		default:
			if err := p.takeOver(t, s, i, be); err != nil {
				return err
			}
			if may, err := p.mayClaim(t, i); err != nil || !may {
				return err
			}
		}
	}
	return nil
}

// takeOver makes a block that another has left empty the owner's.
func (p *AssignPlan) takeOver(t *txn.Txn, s *Search, i int, be *txn.BlockEntry) error {
	b, err := p.emptied(t, be)
	if err == nil {
		err = p.acquire(t, be)
	}
	if err != nil {
		return err
	}
	p.take(s, i, be, b)
	return nil
}

// emptied returns the owner's block in place of one that another has left empty.
func (p *AssignPlan) emptied(t *txn.Txn, be *txn.BlockEntry) (*block.Block, error) {
	t.Guard(&be.Cell)
	o := p.blockOptions()
	o.Claimed, o.Seq = wire.Unstamp(t.Now), be.Seq()
	return block.New(be.Prefix(), o)
}

// acquire moves a block from those of its owner to those of the call's.
func (p *AssignPlan) acquire(t *txn.Txn, be *txn.BlockEntry) error {
	p.becomesOwn(be)
	if err := t.Take(be.Owner(), be.At); err != nil {
		return err
	}
	return t.Give(p.Owner, be.At)
}

// becomesOwn notes a block that is taken over or adopted, so that nothing is borrowed from it as well.
func (p *AssignPlan) becomesOwn(be *txn.BlockEntry) {
	if p.taken == nil {
		p.taken = make(map[*txn.BlockEntry]bool)
	}
	p.taken[be] = true
}

// adopt makes the block of a pick, which has no owner, the owner's, unless another pick does.
func (p *AssignPlan) adopt(t *txn.Txn, k *pick) error {
	if p.taken[k.be] {
		return nil
	}
	k.adopt = true
	p.becomesOwn(k.be)
	return t.Give(p.Owner, k.be.At)
}

// pickOrphans adopts blocks without owner that have room. Borrowing from them instead would keep them without owner: with every
// host that leaves a block in use, fewer blocks would have one.
func (p *AssignPlan) pickOrphans(t *txn.Txn, s *Search, i int) error {
	if may, err := p.mayClaim(t, i); err != nil || !may {
		return err
	}
	orphans := record.CodeRange(record.KindOwnRoom, alloc.Owner{}).From
	if !s.looked {
		r := record.BlockRange(orphans, everything(s.family)) // of all pools, because mostly there is none
		r.Limit = 1
		recs, _, err := s.listed(t, orphans, r)
		if err != nil {
			return err
		}
		s.looked, s.orphans = true, len(recs) > 0
	}
	if !s.orphans {
		return nil
	}
	for be, err := range p.walk(t, s, i, orphans, p.start(i), t.Past) {
		n := len(p.picks)
		if err != nil {
			return err
		}
		if be.Owner().Kind != alloc.Nobody || !p.pickFrom(t, s, i, be) {
			t.Sure(&be.Cell)
			continue
		}
		if err := p.adopt(t, &p.picks[n]); err != nil {
			return err
		}
		if may, err := p.mayClaim(t, i); err != nil || !may {
			return err
		}
	}
	return nil
}

// noteRagged finds out whether blocks of others, from which no addresses in a row are taken, have room.
func (p *AssignPlan) noteRagged(t *txn.Txn, s *Search, i int) error {
	if s.reasons[i] >= alloc.ReasonFragmented {
		return nil
	}
	for be, err := range p.walk(t, s, i, record.KindRoom, p.start(i), t.Past) {
		if err != nil {
			return err
		}
		t.Sure(&be.Cell)
		if be.Owner() != p.Owner && p.hasOne(be.Block, i) {
			if s.ragged = append(s.ragged, i); s.reasons[i] != alloc.ReasonLimitReached {
				s.because(i, alloc.ReasonFragmented)
			}
			return nil
		}
		if free, _ := be.Free(); free > 0 {
			p.reason(s, i, alloc.ReasonReservedLeft)
		}
	}
	return nil
}

// noteForeign finds out whether others have room in a pool that strict affinity keeps from this owner.
func (p *AssignPlan) noteForeign(t *txn.Txn, s *Search, i int) error {
	if s.reasons[i] == alloc.ReasonLimitReached {
		return nil
	}
	for be, err := range p.walk(t, s, i, record.KindRoom, p.start(i), t.Past) {
		if err != nil {
			return err
		}
		t.Sure(&be.Cell)
		if be.Owner() != p.Owner && be.Owner().Kind != alloc.Nobody && p.hasOne(be.Block, i) {
			s.because(i, alloc.ReasonForeignLeft)
			return nil
		}
		if free, _ := be.Free(); free > 0 {
			p.reason(s, i, alloc.ReasonReservedLeft)
		}
	}
	return nil
}

// pickForeign borrows from any block with room.
func (p *AssignPlan) pickForeign(t *txn.Txn, s *Search, i int) error {
	for be, err := range p.walk(t, s, i, record.KindRoom, p.start(i), t.Past) {
		if err != nil {
			return err
		}
		if !p.taken[be] && (be.Owner() == p.Owner || !p.pickFrom(t, s, i, be)) {
			t.Sure(&be.Cell)
		}
	}
	return nil
}
