package assign

import (
	"errors"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A pool whose block size has changed keeps its blocks, and the search uses them like all others. It reaches its new size because a claim
// replaces empty blocks of another size: one that the owner would fill or take over becomes a block of the pool's size in the same commit.

// renew claims a block of pool i in place of an empty one of another size, if every block in that place may go. It reports whether it has.
func (p *AssignPlan) renew(t *txn.Txn, s *Search, i int, be *txn.BlockEntry) (bool, error) {
	if p.asIs || be.At.Bits() == p.cat.Pools[i].BlockBits || !p.mayGo(t)(be) || p.cat.Config.NoAutoBlocks || !p.fits(i, s.want) {
		return false, nil
	}
	place, ok := p.placeIn(i, be.At)
	if !ok {
		return false, nil
	}
	gone, err := t.MakeRoom(p.cat, i, place, p.mayGo(t))
	if errors.Is(err, cause.Covered) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	p.gone = append(p.gone, gone...)
	if err := p.claimAt(t, s, i, place); err != nil || be.At.Bits() > place.Bits() {
		return true, err
	}
	last := record.LastAddr(be.At)
	if end := record.LastAddr(p.cat.Pools[i].Prefix); end.Less(last) {
		last = end
	}
	return true, p.claimFromOn(t, s, i, place, netip.PrefixFrom(last, place.Bits()).Masked())
}

// replace is renew for a search that has met a block of another size: an empty one of the owner's, or one that the limits let it take over. It
// reports true, too, if nothing else may be done with the block.
func (p *AssignPlan) replace(t *txn.Txn, s *Search, i int, be *txn.BlockEntry, is standing) (bool, error) {
	may, err := is == own && (be.At.Bits() > p.cat.Pools[i].BlockBits || !p.serves(i, be.At)), error(nil)
	if is == idle {
		may, err = p.mayClaim(t, i)
	}
	if may && err == nil {
		may, err = p.renew(t, s, i, be)
	}
	if may || err != nil {
		return true, err
	}
	if !p.serves(i, be.At) {
		t.Sure(&be.Cell)
		s.keeps(i, be.At)
		return true, nil
	}
	return false, nil
}

// mayGo returns the condition on which an empty block makes room for one of the call's owner.
func (p *AssignPlan) mayGo(t *txn.Txn) func(*txn.BlockEntry) bool {
	return func(be *txn.BlockEntry) bool {
		for _, k := range p.picks {
			if k.be == be {
				return false
			}
		}
		return !p.taken[be] && t.MayGo(be, p.Owner)
	}
}

// goes reports whether a block makes room for one that the plan makes.
func (p *AssignPlan) goes(be *txn.BlockEntry) bool {
	for _, g := range p.gone {
		if g == be {
			return true
		}
	}
	return false
}

// locate returns the block that an address is in after what the plan does so far, or would be.
func (p *AssignPlan) locate(t *txn.Txn, a netip.Addr) (*txn.BlockEntry, error) {
	be, err := t.Locate(p.cat, a)
	if err == nil && be != nil && p.goes(be) {
		return t.Block(p.cat, netip.PrefixFrom(a, p.cat.Pools[p.cat.Containing(a)].BlockBits).Masked())
	}
	return be, err
}

// placeIn returns the first place of pool i that shares an address with a block of another size and that the search may use.
func (p *AssignPlan) placeIn(i int, at netip.Prefix) (place netip.Prefix, ok bool) {
	pool := &p.cat.Pools[i]
	first := at.Addr()
	if first.Less(pool.Prefix.Addr()) {
		first = pool.Prefix.Addr()
	}
	if p.onward(at) && at.Contains(p.From) && first.Less(p.From) {
		first = p.From
	}
	place = netip.PrefixFrom(first, pool.BlockBits).Masked()
	for place.IsValid() && place.Overlaps(at) && place.Overlaps(pool.Prefix) {
		if end, nested := pool.Inner.Cover(place); nested {
			place = record.After(place, end)
			continue
		}
		next, no := p.reserved(i, place)
		if !no {
			return place, true
		}
		place = next
	}
	return place, false
}

// pickAround replaces an empty block that has more addresses than pool i and so begins before it or serves other pools besides.
func (p *AssignPlan) pickAround(t *txn.Txn, s *Search, i int) error {
	for _, size := range p.cat.Pools[i].Draining {
		if size >= p.cat.Pools[i].Prefix.Bits() {
			break // they are sorted
		}
		be, err := t.Block(p.cat, netip.PrefixFrom(p.cat.Pools[i].Prefix.Addr(), size).Masked())
		if err != nil {
			return err
		}
		if be.Block == nil {
			continue
		}
		if _, err := p.replace(t, s, i, be, p.standing(t, be)); err != nil {
			return err
		}
	}
	return nil
}

// keptBack notes the block of another size that a search passes over, if it keeps addresses of the place from every call.
func (p *AssignPlan) keptBack(t *txn.Txn, s *Search, i int, place, by netip.Prefix) error {
	if by == place || s.kept[i].IsValid() || by.Bits() < place.Bits() && p.serves(i, by) {
		return nil
	}
	filled, err := by.Bits() > place.Bits(), error(nil)
	if filled {
		filled, err = t.Filled(p.cat, i, place)
	}
	if err == nil && !filled {
		s.keeps(i, by)
	}
	return err
}

// keeps notes that a block of another size keeps addresses of pool i from the call.
func (s *Search) keeps(i int, block netip.Prefix) {
	if s.kept == nil {
		s.kept = make(map[int]netip.Prefix)
	}
	s.kept[i] = block
}
