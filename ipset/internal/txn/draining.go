package txn

import (
	"iter"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A pool that changes its block size keeps its old blocks until they are empty. A new block must not overlap one of them, and the space
// pages of each size answer that without a list of all blocks. What smaller old blocks leave of the place of a new one is given in blocks
// of their size, beside one that exists: the last one of a size, in a place or in the pool, has no successor.

// Occupied reports whether something is where a block would be made: the block itself, although its page does not know
// it, or a block of another size that the pool had; and which is the next block that may be free of it.
//
// A block of a size that drains can only be claimed beside one in the same place, and the commit of that writes the page of both. So where
// there is none, none comes, and a page that was read in the past says at most too much.
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

// Holes returns the places of blocks that may be made in what smaller blocks of former sizes leave of the place of a block of pool i: of the
// size of the smallest there. Larger ones may lie in some, which Occupied says. If there are holes the commit verifies what is there.
func (t *Txn) Holes(cat *CatalogEntry, i int, place netip.Prefix) (holes []netip.Prefix, err error) {
	smallest := 0
	var pages []*pageEntry
	for _, size := range slices.Backward(cat.Pools[i].Draining) {
		if size < place.Bits() {
			break
		}
		id, first := record.LeafOf(netip.PrefixFrom(place.Addr(), size))
		pe, err := t.Page(id)
		if err != nil {
			return nil, err
		}
		pages = append(pages, pe)
		n := 1 << (size - place.Bits())
		there := pe.Get().Word >> first & (^uint64(0) >> (64 - n))
		if there == 0 || smallest != 0 {
			continue
		}
		smallest = size
		for k := range n {
			if there>>k&1 == 0 {
				holes = append(holes, id.Block(int(first)+k))
			}
		}
	}
	for _, pe := range pages {
		if len(holes) > 0 { // of very many places that are full it cannot
			t.Guard(&pe.Cell)
		}
	}
	return holes, nil
}

// succeed raises the marks of the larger sizes that may follow at the addresses of a block of a former size. One that was made before the
// size changed has lower numbers than all that are made since.
func (t *Txn) succeed(cat *CatalogEntry, be *BlockEntry) error {
	i := cat.Containing(be.At.Addr())
	if i < 0 {
		return nil
	}
	for _, size := range append([]int{cat.Pools[i].BlockBits}, cat.Pools[i].Draining...) {
		if size < cat.Pools[i].BlockBits || size >= be.At.Bits() {
			continue
		}
		leaf, _ := record.LeafOf(netip.PrefixFrom(be.At.Addr(), size))
		if err := t.Load(leaf.Key(), leaf.Floor().Key()); err != nil {
			return err
		}
		pe, err := t.Page(leaf)
		if err != nil {
			return err
		}
		if t.Guard(&pe.Cell); pe.Get().Word == 0 { // it has no record
			if pe, err = t.Page(leaf.Floor()); err != nil {
				return err
			}
		}
		occ.Set(&t.Txn, pe, record.Page{Word: pe.Get().Word, Mark: max(pe.Get().Mark, be.Seq())})
	}
	return nil
}

// Fits returns a conflict if a block of a former size that exists contradicts what the transaction rests on: its page does not know it, so
// that its place may have been claimed, or it overlaps a block that is changed or to be changed.
func (t *Txn) Fits(be *BlockEntry, others iter.Seq[*BlockEntry]) error {
	id, at := record.LeafOf(be.At)
	pe, err := t.Page(id)
	if err != nil {
		return err
	}
	var stale []string
	if pe.Get().Word>>at&1 == 0 {
		stale = append(stale, id.Key())
	}
	for o := range others {
		if o != be && o.At.Overlaps(be.At) {
			stale = append(stale, o.Key, record.CatalogKey)
		}
	}
	for _, key := range stale {
		t.Forget(key)
		err = store.Conflict("ipset", key)
	}
	return err
}
