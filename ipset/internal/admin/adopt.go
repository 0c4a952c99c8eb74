package admin

import (
	"math/bits"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A pool that comes to serve other addresses may find blocks of a former pool there, of another size. New blocks must not overlap
// them, and a sequence number must not come again at an address; both are settled before the new catalog is committed.

// follow completes a catalog that comes after another. In store.Together it also comes after the one that others go by until the end.
func follow(t *txn.Txn, now *txn.CatalogEntry, next *pool.Catalog) error {
	befores := []*pool.Catalog{now.Catalog}
	others, err := t.E.Published(t.Ctx, now.Rev)
	if err != nil {
		return err
	}
	if others != nil {
		befores = append(befores, others)
	}
	raise := false
	for _, before := range befores {
		if err := adopt(t, before, next); err != nil {
			return err
		}
		if raise || before.Generation < now.Generation {
			continue
		}
		if raise, err = mayRepeat(t, before, next); err != nil {
			return err
		}
	}
	if raise {
		if next.Generation++; next.Generation > pool.MaxGeneration {
			return cause.Exhausted
		}
	}
	return nil
}

// mayRepeat reports whether blocks that are made with next could use sequence numbers again that blocks at the same addresses
// had. Those of the same size cannot: their marks stay, in pages and floors. So addresses must come in, or a block size, where
// there is or was a block of another size in the family. None can come meanwhile, because a pool with another size that serves
// the addresses now counts, and so does every page and every floor of another size.
func mayRepeat(t *txn.Txn, before, next *pool.Catalog) (bool, error) {
	for i := range next.Pools {
		p := &next.Pools[i]
		if enters, err := next.Enters(i, before); err != nil {
			return false, err
		} else if !enters {
			continue
		}
		other := func(q *pool.Pool) bool { return q.BlockBits != p.BlockBits }
		if was, err := before.GroundOf(next.Ground(i), p.Prefix, other); err != nil || len(was) > 0 {
			return true, err
		}
		for from := 0; ; from++ {
			size, ok, err := t.NextSize(p.Prefix.Addr().Is6(), from)
			if err != nil || ok && size != p.BlockBits {
				return true, err
			}
			if !ok {
				break
			}
			from = size
		}
	}
	return false, nil
}

// adopt notes for every pool that has come to serve other addresses the sizes of the blocks that may be there: those of the pools
// that served them, a former one of its own name among them, and those of blocks that former pools have left.
func adopt(t *txn.Txn, before, next *pool.Catalog) error {
	for i := range next.Pools {
		p := &next.Pools[i]
		if j := before.ByName(p.Name); j >= 0 && before.SameGround(j, next, i) && p.KeepsSizesOf(&before.Pools[j]) {
			continue
		}
		ground := next.Ground(i)
		var of []*pool.Pool
		was, err := before.GroundOf(ground, p.Prefix, func(q *pool.Pool) bool {
			if !p.KeepsSizesOf(q) {
				of = append(of, q)
			}
			return true
		})
		if err != nil {
			return err
		}
		for _, q := range of {
			if err := adoptFrom(t, q, p, next.Pools[i].Inner); err != nil {
				return err
			}
		}
		if was.HasAll(ground) {
			continue
		}
		sizes, err := sizesIn(t, p.Prefix, next.Pools[i].Inner)
		if err != nil {
			return err
		}
		p.Drain(sizes...)
	}
	return nil
}

// adoptFrom notes the sizes of the blocks that a pool q may have left where p serves now. Another engine may be claiming a block of q's
// size, so the commit verifies that there is none, or the size is noted. Blocks of the other sizes can only disappear.
func adoptFrom(t *txn.Txn, q, p *pool.Pool, inner pool.AddrRanges) error {
	for _, size := range q.Draining {
		if has, err := hasBlocks(t, p.Prefix, inner, size); err != nil {
			return err
		} else if has {
			p.Drain(size)
		}
	}
	if q.BlockBits == p.BlockBits {
		return nil
	}
	none, err := noBlocks(t, p.Prefix, inner, q.BlockBits)
	if !none && err == nil {
		p.Drain(q.BlockBits)
	}
	return err
}

// noBlocks reports whether the commit verifies that there is no block of a size that has addresses of p outside of inner. It is false
// for more than 1,024 blocks, which would be too many pages to verify.
func noBlocks(t *txn.Txn, p netip.Prefix, inner pool.AddrRanges, size int) (bool, error) {
	first, from := record.LeafOf(netip.PrefixFrom(p.Addr(), size).Masked())
	last, to := record.LeafOf(netip.PrefixFrom(record.LastAddr(p), size).Masked())
	const most = 16
	if last.Index.Sub(first.Index).Cmp(addr.U128{Lo: most}) >= 0 {
		return false, nil
	}
	var ids []record.PageID
	var keys []string
	for id := first; id.Index.Cmp(last.Index) <= 0; id.Index = id.Index.Add(addr.U128{Lo: 1}) {
		if ids = append(ids, id); t.Pages.Get(id) == nil {
			keys = append(keys, id.Key())
		}
	}
	if len(keys) > 0 {
		if err := t.Load(keys...); err != nil {
			return false, err
		}
	}
	for _, id := range ids {
		pe, err := t.Page(id)
		if err != nil {
			return false, err
		}
		t.Guard(&pe.Cell)
		if hasBlock(id, pe.Get().Word, first, last, from, to, inner) {
			return false, nil
		}
	}
	return true, nil
}

// hasBlock reports whether a page of level 0 has a block outside of inner: from position from on if it is the page first, to position
// to if it is the page last.
func hasBlock(id record.PageID, word uint64, first, last record.PageID, from, to uint, inner pool.AddrRanges) bool {
	if id == first {
		word &= ^uint64(0) << from
	}
	if id == last {
		word &= ^uint64(0) >> (63 - to)
	}
	for ; word != 0; word &= word - 1 {
		if _, in := inner.Cover(id.Block(bits.TrailingZeros64(word))); !in {
			return true
		}
	}
	return false
}

// sizesIn returns the sizes of the blocks that have addresses of a prefix outside of what the pools in it serve.
func sizesIn(t *txn.Txn, p netip.Prefix, inner pool.AddrRanges) ([]int, error) {
	var sizes []int
	if b, ok, err := t.LastBlock(p.Addr()); err != nil {
		return nil, err
	} else if ok && b.Bits() < p.Bits() {
		sizes = append(sizes, b.Bits())
	}
	for from := p.Bits(); ; {
		size, ok, err := t.NextSize(p.Addr().Is6(), from)
		if err != nil || !ok {
			return sizes, err
		}
		from = size + 1
		if has, err := hasBlocks(t, p, inner, size); err != nil {
			return nil, err
		} else if has && !slices.Contains(sizes, size) {
			sizes = append(sizes, size)
		}
	}
}

// hasBlocks reports whether there is a block of a size that has addresses of p outside of inner. It reads pages, one for 64 blocks,
// until it finds one.
func hasBlocks(t *txn.Txn, p netip.Prefix, inner pool.AddrRanges, size int) (bool, error) {
	first, from := record.LeafOf(netip.PrefixFrom(p.Addr(), size).Masked())
	last, to := record.LeafOf(netip.PrefixFrom(record.LastAddr(p), size).Masked())
	r := record.PageRange(first.V6, size, 0, first.Index, last.Index, false)
	for r.Limit = 256; ; {
		recs, err := t.List(r)
		if err != nil {
			return false, err
		}
		for _, rec := range recs {
			id, _ := record.ParsePageKey(rec.Key)
			pg, err := record.DecodePage(rec)
			if err != nil {
				return false, err
			}
			if hasBlock(id, pg.Word, first, last, from, to, inner) {
				return true, nil
			}
		}
		if len(recs) < r.Limit {
			return false, nil
		}
		r.From = recs[len(recs)-1].Key + "\x00"
	}
}
