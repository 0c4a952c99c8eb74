package assign

import (
	"iter"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// Blocks of former sizes are to drain, so what is free in them and beside them comes after every other place of a priority: a pool that
// is full otherwise gives it, rather than nothing. What is made beside them has their size, and goes with its last address as they do.

// begins returns the block of pool i at which a search for blocks of some size begins; ok is false if all of the pool is below From.
func (p *AssignPlan) begins(i, size int) (at netip.Prefix, ok bool) {
	pool := p.cat.Pools[i].Prefix
	switch {
	case !p.onward(pool):
		return p.start(i), true
	case record.LastAddr(pool).Less(p.From):
		return at, false
	case p.From.Less(pool.Addr()):
		return netip.PrefixFrom(pool.Addr(), size).Masked(), true
	}
	return netip.PrefixFrom(p.From, size).Masked(), true
}

// below reports whether a block ends below the address from which on the call searches.
func (p *AssignPlan) below(at netip.Prefix) bool {
	return p.onward(at) && record.LastAddr(at).Less(p.From)
}

// pickFormer returns the search of the blocks of former sizes that pool i serves as a whole: those of one kind, or, from an address on, all.
func (p *AssignPlan) pickFormer(of standing) func(*txn.Txn, *Search, int) error {
	return func(t *txn.Txn, s *Search, i int) error {
		sizes := p.cat.Pools[i].Draining
		if len(sizes) == 0 || p.inRow() && of != own {
			return nil
		}
		start, ok := p.begins(i, min(sizes[0], p.cat.Pools[i].BlockBits))
		if !ok {
			return nil
		}
		w := p.walk(t, s, i, record.KindRoom, start, t.Past)
		for w.former = true; w.next(); {
			if err := t.Fits(w.be, p.touched(t)); err != nil {
				return err
			}
			if p.below(w.be.At) {
				continue
			}
			if err := p.meet(t, s, i, w.be, of); err != nil {
				return err
			}
		}
		return w.err
	}
}

// touched yields the blocks that the transaction changes, and those that the plan has picked from.
func (p *AssignPlan) touched(t *txn.Txn) iter.Seq[*txn.BlockEntry] {
	return func(yield func(*txn.BlockEntry) bool) {
		for _, e := range t.Entries() {
			if be, ok := e.(*txn.BlockEntry); ok && !yield(be) {
				return
			}
		}
		for _, k := range p.picks {
			if !yield(k.be) {
				return
			}
		}
	}
}

// pickHoles claims blocks of former sizes beside others, in what these leave of the places of blocks of the present size.
func (p *AssignPlan) pickHoles(t *txn.Txn, s *Search, i int) error {
	start, ok := p.begins(i, p.cat.Pools[i].BlockBits)
	if !ok || len(p.cat.Pools[i].Draining) == 0 || s.reasons[i] == alloc.ReasonTooSmall {
		return nil
	}
	for s.want > 0 {
		at, ok, err := p.nextHole(t, s, i, start)
		if err != nil || !ok {
			return err
		}
		if may, err := p.mayClaim(t, i); err != nil || !may {
			s.because(i, alloc.ReasonLimitReached)
			return err
		}
		b, err := t.NewBlock(p.cat, i, at, p.blockOptions())
		if err != nil {
			return err
		}
		p.take(s, i, t.Blocks.Get(at), b)
	}
	return nil
}

// nextHole finds a block of a former size that can be made in the place of one of the present size, and notes anew what is in the way.
func (p *AssignPlan) nextHole(t *txn.Txn, s *Search, i int, start netip.Prefix) (netip.Prefix, bool, error) {
	if !p.inRow() { // else the blocks that are there are in the way, whatever is left of them
		delete(s.drains, i)
	}
	return p.nextFree(t, s, i, start, true)
}

// hole returns a block of a former size that the call can use in a place that blocks of such sizes have a part of. Where that is all of it, or
// the pool does not fill places, there is none.
func (p *AssignPlan) hole(t *txn.Txn, s *Search, i int, place netip.Prefix) (netip.Prefix, bool, error) {
	if t.InTheWay.Bits() < place.Bits() {
		if !p.cat.Pools[i].Prefix.Contains(t.InTheWay.Addr()) { // the walk does not meet it
			s.drain(i, t.InTheWay)
		}
		return netip.Prefix{}, false, nil
	}
	if !p.cat.Pools[i].FillsPlaces() {
		s.drain(i, t.InTheWay)
		return netip.Prefix{}, false, nil
	}
	holes, err := t.Holes(p.cat, i, place)
	for _, at := range holes {
		if _, taken, err := t.Occupied(p.cat, i, at); err != nil {
			return at, false, err
		} else if taken || p.below(at) {
			continue
		}
		b, err := block.New(at, p.blockOptions())
		if err == nil && len(p.peek(b, i, nil, s.want, txn.Avoided(b, p.cat, i))) > 0 {
			return at, true, nil
		}
		p.passed(s, i, at)
	}
	return netip.Prefix{}, false, err
}

// drain notes that a block of a former size keeps addresses of pool i from the call.
func (s *Search) drain(i int, block netip.Prefix) {
	if s.drains == nil {
		s.drains = make(map[int]netip.Prefix)
	}
	s.drains[i] = block
}
