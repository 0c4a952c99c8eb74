package txn

import (
	"math/bits"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
)

// A pool that changes its block size keeps its old blocks until they are empty. A new block must not overlap one of them, and the space
// pages of each size answer that without a list of all blocks.

// Occupied reports whether something is where a block would be made: the block itself, although its page does not know
// it, or a block of another size that the pool had; and which is the next block that may be free of it.
//
// A size that drains can no longer be claimed, which the commit verifies by the catalog, so that its blocks only
// vanish. Where they are the pages of that size say.
func (t *Txn) Occupied(cat *CatalogEntry, i int, block netip.Prefix) (next netip.Prefix, taken bool, err error) {
	if be := t.Blocks.Get(block); be != nil && be.Block != nil {
		t.Guard(&be.Cell)
		return record.After(block, record.LastAddr(block)), true, nil
	}
	for _, size := range cat.Pools[i].Draining {
		if size < block.Bits() {
			next, taken, err = t.insideOne(cat.Pools[i].Prefix, size, block)
		} else {
			next, taken, err = t.aroundSome(cat, size, block)
		}
		if taken || err != nil {
			return next, taken, err
		}
	}
	return netip.Prefix{}, false, nil
}

// insideOne reports whether the block lies in one of the given size that exists. Those in a row are passed at once.
func (t *Txn) insideOne(pool netip.Prefix, size int, block netip.Prefix) (netip.Prefix, bool, error) {
	at := record.OrdinalOf(netip.PrefixFrom(block.Addr(), size))
	last := record.OrdinalOf(netip.PrefixFrom(record.LastAddr(pool), size))
	hole, ok, err := t.Free(pool, size, at, last)
	t.InTheWay = netip.PrefixFrom(block.Addr(), size).Masked()
	switch {
	case err != nil:
		return netip.Prefix{}, true, err
	case !ok:
		return netip.Prefix{}, true, nil
	case record.OrdinalOf(hole) == at:
		return netip.Prefix{}, false, nil
	}
	return netip.PrefixFrom(hole.Addr(), block.Bits()), true, nil
}

// aroundSome reports whether blocks of the given smaller size lie in the block.
func (t *Txn) aroundSome(cat *CatalogEntry, size int, block netip.Prefix) (netip.Prefix, bool, error) {
	next := record.After(block, record.LastAddr(block))
	if size-block.Bits() > space.Bits {
		others, err := t.E.Published(t.Ctx, cat.Rev)
		if err == nil && others != nil && slices.ContainsFunc(others.Pools, func(p pool.Pool) bool { return p.BlockBits == size && p.Prefix.Overlaps(block) }) {
			err = cause.Invalid("store", "not in store.Together with a change of the pool: others still claim blocks of /%d there", size)
		}
		if err != nil {
			return next, true, err
		}
		r := record.BlockRange(record.KindBlock, block)
		r.Limit = 1
		recs, err := t.List(r)
		if len(recs) > 0 {
			t.InTheWay, _ = record.ParseBlockID(recs[0].Key[1:])
		}
		return next, len(recs) > 0, err
	}
	id, i := record.LeafOf(netip.PrefixFrom(block.Addr(), size))
	pe, err := t.Page(id)
	if err != nil {
		return next, true, err
	}
	inside := ^uint64(0) >> (64 - 1<<(size-block.Bits())) << i
	if inside &= pe.Get().Word; inside != 0 {
		t.InTheWay = id.Block(bits.TrailingZeros64(inside))
	}
	return next, inside != 0, nil
}
