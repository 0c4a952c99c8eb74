package txn

import (
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
)

// A block keeps its size for life. A pool that changes its block size keeps its blocks, and makes new ones where there is none. The pages of
// each size let a search pass over them; before a claim the block records are listed, because a page may be lost.

// MostReplaced is how many empty blocks of another size one new block replaces at most: those of one page.
const MostReplaced = 1 << space.Bits

// Occupied returns a block of any size in the place of a block of pool i, the zero prefix if there is none, and the next place that may be
// free. Blocks of a size that is not the pool's can only disappear, because none is made, so what was read before the commit is never
// too little.
func (t *Txn) Occupied(cat *CatalogEntry, i int, place netip.Prefix) (by, next netip.Prefix, err error) {
	next = record.After(place, record.LastAddr(place))
	if be := t.Blocks.Get(place); be != nil && be.Block != nil { // its page may not know it
		t.Guard(&be.Cell)
		return place, next, nil
	}
	for _, size := range cat.Pools[i].Draining {
		if size < place.Bits() {
			by, next, err = t.insideOne(cat.Pools[i].Prefix, size, place)
		} else {
			by, err = t.aroundSome(cat, size, place)
		}
		if by.IsValid() || err != nil {
			return by, next, err
		}
	}
	if len(cat.Pools[i].Draining) == 0 {
		return by, next, nil
	}
	recs, err := t.List(record.BlockBefore(record.LastAddr(place)))
	if err != nil || len(recs) == 0 {
		return by, next, err
	}
	if at, ok := record.ParseBlockID(recs[0].Key[1:]); ok && at.Overlaps(place) && !t.vacated(at) {
		by = at
	}
	return by, next, nil
}

// insideOne returns the block of the given size around a place, if it exists. Those in a row are passed at once.
func (t *Txn) insideOne(pool netip.Prefix, size int, place netip.Prefix) (by, next netip.Prefix, err error) {
	around := netip.PrefixFrom(place.Addr(), size).Masked()
	last := netip.PrefixFrom(record.LastAddr(pool), size).Masked()
	hole, ok, err := t.Free(pool, size, record.OrdinalOf(around), record.OrdinalOf(last))
	switch {
	case err != nil || hole == around:
		return by, record.After(place, record.LastAddr(place)), err
	case !ok:
		return around, next, nil
	}
	return around, netip.PrefixFrom(hole.Addr(), place.Bits()), nil
}

// aroundSome returns a block of the given smaller size in a place, if there is one.
func (t *Txn) aroundSome(cat *CatalogEntry, size int, place netip.Prefix) (by netip.Prefix, err error) {
	if size-place.Bits() > space.Bits {
		others, err := t.E.Published(t.Ctx, cat.Rev)
		if err == nil && others != nil && slices.ContainsFunc(others.Pools, func(p pool.Pool) bool { return p.BlockBits == size && p.Prefix.Overlaps(place) }) {
			err = cause.Invalid("store", "not in store.Together with a change of the pool: others still claim blocks of /%d there", size)
		}
		return by, err // the list finds it
	}
	id, i := record.LeafOf(netip.PrefixFrom(place.Addr(), size))
	pe, err := t.Page(id)
	if err != nil {
		return by, err
	}
	inside := ^uint64(0) >> (64 - 1<<(size-place.Bits())) << i
	if inside &= pe.Get().Word; inside != 0 {
		by = id.Block(bits.TrailingZeros64(inside))
	}
	return by, nil
}

// Filled reports whether blocks of smaller sizes have all addresses of a place of pool i, as far as it is one page that shows those of a size.
func (t *Txn) Filled(cat *CatalogEntry, i int, place netip.Prefix) (bool, error) {
	left := uint64(1) << (2 * space.Bits) // parts of the place
	for _, size := range cat.Pools[i].Draining {
		n := size - place.Bits()
		if n < 0 || n > space.Bits {
			continue
		}
		id, at := record.LeafOf(netip.PrefixFrom(place.Addr(), size))
		pe, err := t.Page(id)
		if err != nil {
			return false, err
		}
		inside := pe.Get().Word & (^uint64(0) >> (64 - 1<<n) << at)
		left -= uint64(bits.OnesCount64(inside)) << (2*space.Bits - n)
	}
	return left == 0, nil
}

// vacated reports whether the transaction deletes a block that the store still has.
func (t *Txn) vacated(at netip.Prefix) bool {
	id, i := record.LeafOf(at)
	pe := t.Pages.Get(id)
	return pe != nil && t.Changed(&pe.Cell) && pe.Get().Word>>i&1 == 0
}

// MakeRoom has the blocks of another size in the place of a block of pool i deleted, if all are empty and may lets each go. They are returned
// for the caller to delete with its other changes. It returns an error that wraps [cause.Covered] if one stays.
func (t *Txn) MakeRoom(cat *CatalogEntry, i int, place netip.Prefix, may func(*BlockEntry) bool) (gone []*BlockEntry, err error) {
	by, _, err := t.Occupied(cat, i, place)
	if err != nil || !by.IsValid() {
		return nil, err
	}
	covered := cause.Wrap(ipalloc.Error{Op: "claim", Prefix: place, InTheWay: by, Err: cause.Covered})
	blocks := []netip.Prefix{by}
	if by.Bits() > place.Bits() {
		r := record.BlockRange(record.KindBlock, place)
		r.Limit = MostReplaced + 1
		recs, err := t.List(r)
		if err != nil {
			return nil, err
		}
		if blocks, err = record.IdsIn(nil, recs, 1); err != nil {
			return nil, err
		}
	}
	if len(blocks) > MostReplaced || by == place {
		return nil, covered
	}
	if err := t.Warm(blocks); err != nil {
		return nil, err
	}
	var due []netip.Prefix
	for _, at := range blocks {
		if t.vacated(at) {
			continue
		}
		be, err := t.Block(cat, at)
		if err != nil {
			return nil, err
		}
		if be.Block == nil {
			continue
		}
		id, k := record.LeafOf(at)
		pe, err := t.Page(id)
		if err != nil {
			return nil, err
		}
		if !be.IsEmpty() || !may(be) || pe.Get().Word>>k&1 == 0 { // a page that does not know it is lost
			return nil, covered
		}
		if len(be.Changes.List) > 0 {
			due = append(due, at)
		}
		gone = append(gone, be)
	}
	if len(due) > 0 {
		return nil, &ErrDue{due} // the new block may write the same addresses
	}
	for _, be := range gone {
		if err := t.Vacate(be); err != nil {
			return nil, err
		}
		if o := be.Owner(); o.Kind != alloc.Nobody {
			if err := t.Take(o, be.At); err != nil {
				return nil, err
			}
		}
	}
	return gone, nil
}

// takeoverAge is how long a block must have been empty before another owner may take it.
const takeoverAge = int64(time.Minute)

// IdleSince is the moment since which a block that another owner may take has been empty, or longer.
func (t *Txn) IdleSince() int64 { return t.Past - takeoverAge }

// MayGo reports whether an empty block may become an owner's or make room for one: it is that owner's, or it has been left.
func (t *Txn) MayGo(be *BlockEntry, o alloc.Owner) bool {
	return be.IsEmpty() && (be.Owner() == o || be.Owner().Kind == alloc.Nobody || be.Since() <= t.IdleSince())
}

// DeleteBlocks deletes blocks that have made room.
func (t *Txn) DeleteBlocks(gone []*BlockEntry) {
	for _, be := range gone {
		t.Change(be)
		be.Set(nil)
	}
}
