package assign

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A host that has no room of its own is sent to free blocks, idle ones, orphans and at last to those of others, in the order in
// which they disturb other hosts least. Each kind has an index, so the cost follows what is found and not the size of the pool.

// A walk looks at firstList index records first, then at more at a time, at most mostAtOnce.
const (
	firstList  = 8
	mostAtOnce = 64
)

// ofNobody is what the keys of blocks without owner that have room begin with, and orphans the first of each family, of all pools
// because mostly there is none.
var (
	ofNobody = record.CodeRange(record.KindOwnRoom, alloc.Owner{}).From
	orphans  = [2]store.Range{firstOf(ofNobody, 4), firstOf(ofNobody, 6)}
)

// firstOf returns the range of the first record of an index of blocks of a family.
func firstOf(kind string, family int) store.Range {
	r := record.BlockRange(kind, record.Everything(family))
	r.Limit = 1
	return r
}

// walk goes through the blocks of pool i that an index lists, of whatever size, advanced to the present, while addresses are wanting. kind is
// what the keys of the index begin with. Blocks with a value above most in their record, those of which automatic assignment may take nothing
// and those that other pools serve in part are left out without being read.
//
// The index records are read now, the blocks perhaps long ago. So blocks that are not what their record says are read
// again, and the commit verifies those that the caller passes over, by [occ.Txn.Sure]; all are read again where it could not
// verify so many.
type walk struct {
	p      *AssignPlan
	t      *txn.Txn
	s      *Search
	i      int
	kind   string
	most   int64
	ranges [2]store.Range // of the index, still to be listed
	limit  int            // of the next list
	blocks []netip.Prefix // listed, still to be met

	claims bool            // the walk ends with what the limits let the owner have
	be     *txn.BlockEntry // the block that was met
	err    error
}

// walk returns a walk over the blocks of pool i from one on and around.
func (p *AssignPlan) walk(t *txn.Txn, s *Search, i int, kind string, start netip.Prefix, most int64) walk {
	all, at := record.BlockRange(kind, p.cat.Pools[i].Prefix), record.BlockKey(kind, start)
	w := walk{p: p, t: t, s: s, i: i, kind: kind, most: most, limit: firstList}
	w.ranges[0], w.ranges[1] = store.Range{From: at, To: all.To}, store.Range{From: all.From, To: at}
	w.err = p.timed(t, s)
	return w
}

// next goes on to the next block; it reports false at the end and if err is set.
func (w *walk) next() bool {
	for w.err == nil && w.s.want > 0 {
		if w.claims {
			may, err := w.p.mayClaim(w.t, w.i)
			if w.err = err; err != nil || !may {
				return false
			}
		}
		if len(w.blocks) == 0 {
			r := &w.ranges[0]
			if r.From >= r.To {
				r = &w.ranges[1]
			}
			if r.From >= r.To {
				return false
			}
			r.Limit, w.limit = w.limit, min(2*w.limit, mostAtOnce)
			w.blocks, w.err = w.list(r)
			continue
		}
		if w.be, w.err = w.t.Peek(w.p.cat, w.blocks[0]); w.err == nil {
			w.blocks = w.blocks[1:]
			if w.be.Block != nil {
				return true
			}
			w.t.Sure(&w.be.Cell)
		}
	}
	return false
}

// list reads the next records of an index, and the blocks that are not as they say. It leaves in r what is still to be listed.
func (w *walk) list(r *store.Range) (blocks []netip.Prefix, err error) {
	p, t, s, i, kind := w.p, w.t, w.s, w.i, w.kind
	recs, next, err := s.lists.Listed(t, kind, *r)
	if err != nil {
		return nil, err
	}
	var old []string
	many := t.Guards()+len(recs) > t.MostGuards()
	beyond, size := "", p.cat.Pools[i].BlockBits // the end of what has been listed, or of the avoided range that it ends in
	skip := func(end netip.Addr) {
		if beyond = r.To; end.Next().IsValid() {
			at := netip.PrefixFrom(end.Next(), size).Masked().Addr()
			beyond = record.BlockKey(kind, netip.PrefixFrom(at, 0)) // before a block of every size
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
		if end, nested := p.cat.Pools[i].Inner.Cover(block); nested {
			skip(end)
			continue
		}
		value := record.ParseIndexValue(rec.Value)
		end, covered := p.cat.Pools[i].Avoid.Cover(block)
		switch {
		case kind != record.KindEmpty && !p.serves(i, block):
			s.keeps(i, block)
		case covered:
			p.reason(s, i, alloc.ReasonReservedLeft)
			if len(p.cat.Pools[i].Draining) == 0 { // else a larger one may reach beyond the end
				skip(end)
			}
		case value > w.most:
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
		if !s.Serves(i) || !p.serves(i, at) {
			continue
		}
		be, err := t.Block(p.cat, at)
		if err == nil {
			_, err = p.pickMine(t, s, i, be)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// serves reports whether pool i serves all addresses of a block that begins in it.
func (p *AssignPlan) serves(i int, at netip.Prefix) bool {
	return at.Bits() == p.cat.Pools[i].BlockBits || p.cat.ServesAll(i, at)
}

// pickMine picks from a block if it is the owner's and reports whether it found any. An empty one that is smaller than the pool's blocks is
// replaced by one of these.
func (p *AssignPlan) pickMine(t *txn.Txn, s *Search, i int, be *txn.BlockEntry) (bool, error) {
	switch {
	case be.Block == nil:
		return p.pickMore(s, i, be), nil
	case p.goes(be) || be.Owner() != p.Owner && !p.adopted(be):
		return false, nil
	case be.At.Bits() > p.cat.Pools[i].BlockBits && be.Owner() == p.Owner:
		if done, err := p.renew(t, s, i, be); done || err != nil {
			return done, err
		}
	}
	return p.pickFrom(t, s, i, be), nil
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
	if last := t.E.Hints.Get(p.Owner, s.family); last.IsValid() && p.cat.ServesAll(i, last) {
		be, err := t.Peek(p.cat, last)
		if err != nil {
			return err
		}
		start, had = last, be
		if _, err := p.pickMine(t, s, i, be); err != nil || s.want == 0 {
			return err
		}
	}
	w := p.walk(t, s, i, record.CodeRange(record.KindOwnRoom, p.Owner).From, start, t.Past)
	for w.next() {
		if w.be == had {
			continue
		}
		found, err := p.pickMine(t, s, i, w.be)
		if err != nil {
			return err
		}
		if found {
			p.hint(t, w.be.At)
		}
	}
	return w.err
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
		if err := p.claimAt(t, s, i, block); err != nil {
			return err
		}
	}
	return nil
}

// claimAt claims a free block of pool i.
func (p *AssignPlan) claimAt(t *txn.Txn, s *Search, i int, at netip.Prefix) error {
	b, err := t.NewBlock(p.cat, at, p.blockOptions())
	if err == nil {
		p.take(s, i, t.Blocks.Get(at), b)
	}
	return err
}

// pickEmpty takes over blocks of others that have been empty for long enough.
func (p *AssignPlan) pickEmpty(t *txn.Txn, s *Search, i int) error {
	if s.reasons[i] == alloc.ReasonTooSmall && len(p.cat.Pools[i].Draining) == 0 {
		return nil
	}
	if err := p.pickAround(t, s, i); err != nil {
		return err
	}
	return p.pickMet(t, s, i, record.KindEmpty, t.IdleSince(), idle)
}

// pickMet picks from the blocks that an index lists. Where it is for blocks to have, it ends with what the limits let the owner have.
func (p *AssignPlan) pickMet(t *txn.Txn, s *Search, i int, kind string, most int64, of standing) error {
	claims := of&foreign == 0
	if claims {
		if may, err := p.mayClaim(t, i); err != nil || !may {
			return err
		}
	}
	w := p.walk(t, s, i, kind, p.start(i), most)
	for w.claims = claims; w.next(); {
		if err := p.meet(t, s, i, w.be, of); err != nil {
			return err
		}
	}
	return w.err
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

// pickOrphans adopts blocks without owner that have room.
func (p *AssignPlan) pickOrphans(t *txn.Txn, s *Search, i int) error {
	if !s.looked {
		if may, err := p.mayClaim(t, i); err != nil || !may {
			return err
		}
		recs, _, err := s.lists.Listed(t, ofNobody, orphans[s.family/6])
		if err != nil {
			return err
		}
		s.looked, s.orphans = true, len(recs) > 0
	}
	if !s.orphans {
		return nil
	}
	return p.pickMet(t, s, i, ofNobody, t.Past, orphan)
}

// noteRagged finds out whether blocks of others, from which no addresses in a row are taken, have room.
func (p *AssignPlan) noteRagged(t *txn.Txn, s *Search, i int) error {
	if s.reasons[i] >= alloc.ReasonFragmented {
		return nil
	}
	w := p.walk(t, s, i, record.KindRoom, p.start(i), t.Past)
	for w.next() {
		t.Sure(&w.be.Cell)
		if w.be.Owner() != p.Owner && p.hasOne(w.be.Block, i) {
			if s.ragged = append(s.ragged, i); s.reasons[i] != alloc.ReasonLimitReached {
				s.because(i, alloc.ReasonFragmented)
			}
			return nil
		}
		if free, _ := w.be.Free(); free > 0 {
			p.reason(s, i, alloc.ReasonReservedLeft)
		}
	}
	return w.err
}

// noteForeign finds out whether others have room in a pool that strict affinity keeps from this owner.
func (p *AssignPlan) noteForeign(t *txn.Txn, s *Search, i int) error {
	if s.reasons[i] == alloc.ReasonLimitReached {
		return nil
	}
	w := p.walk(t, s, i, record.KindRoom, p.start(i), t.Past)
	for w.next() {
		t.Sure(&w.be.Cell)
		if p.standing(t, w.be)&(idle|foreign) != 0 && p.hasOne(w.be.Block, i) {
			s.because(i, alloc.ReasonForeignLeft)
			return nil
		}
		if free, _ := w.be.Free(); free > 0 {
			p.reason(s, i, alloc.ReasonReservedLeft)
		}
	}
	return w.err
}

// pickForeign borrows from any block with room.
func (p *AssignPlan) pickForeign(t *txn.Txn, s *Search, i int) error {
	return p.pickMet(t, s, i, record.KindRoom, t.Past, orphan|idle|foreign)
}
