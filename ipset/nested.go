package ipset

import (
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// A pool may lie in another. An address belongs to the smallest pool whose prefix contains it: the ground of a pool is its prefix
// without those of the pools in it. A nested prefix is made of whole blocks of the pool around it, so no block of a present size
// has addresses of two pools. A block of a former size may; what it counts for is decided address by address, and the pool of its
// first address decides the rest.

// nest finds the pool around each pool, and the addresses that the pools in it have taken over.
func (c *catalog) nest() error {
	n := len(c.Pools)
	c.outer, c.inner = make([]int, n), make([]addrRanges, n)
	around := -1
	for _, i := range c.places {
		p := &c.Pools[i]
		for around >= 0 && !c.Pools[around].Prefix.Overlaps(p.Prefix) {
			around = c.outer[around]
		}
		if c.outer[i] = around; around >= 0 {
			o := &c.Pools[around]
			if o.Prefix == p.Prefix {
				return wrap(ipalloc.Error{Op: "check", Name: p.Name, Prefix: p.Prefix, Holder: o.Name, Err: errOverlap})
			}
			if p.Prefix.Bits() > o.BlockBits {
				return wrap(ipalloc.Error{Op: "check", Name: p.Name, Prefix: p.Prefix, InTheWay: o.Prefix, Holder: o.Name, Err: errOffGrid})
			}
			c.inner[around] = c.inner[around].with(p.Prefix)
		}
		around = i
	}
	return nil
}

// with returns the ranges and a prefix behind all of them.
func (rs addrRanges) with(p netip.Prefix) addrRanges {
	r := netipx.RangeOfPrefix(p)
	if n := len(rs); n > 0 && rs[n-1].To().Next() == r.From() {
		rs[n-1] = netipx.IPRangeFrom(rs[n-1].From(), r.To())
		return rs
	}
	return append(rs, r)
}

// meet reports whether the ranges share an address with r.
func (rs addrRanges) meet(r netipx.IPRange) bool {
	rs = rs.from(r.From())
	return len(rs) > 0 && !r.To().Less(rs[0].From())
}

// containing returns the index of the pool that serves an address, the smallest that contains it; -1 for none.
func (c *catalog) containing(a netip.Addr) int {
	k := c.placeAfter(a) - 1
	if k < 0 {
		return -1
	}
	i := c.places[k]
	for i >= 0 && !c.Pools[i].Prefix.Contains(a) {
		i = c.outer[i]
	}
	return i
}

// placeAfter returns the place of the first pool in address order that begins after an address.
func (c *catalog) placeAfter(a netip.Addr) int {
	k, _ := slices.BinarySearchFunc(c.places, a, func(i int, a netip.Addr) int {
		if a.Less(c.Pools[i].Prefix.Addr()) {
			return 1
		}
		return -1
	})
	return k
}

// overlapping yields the pools that share an address with a prefix.
func (c *catalog) overlapping(p netip.Prefix) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := c.containing(p.Addr()); i >= 0; i = c.outer[i] {
			if !yield(i) {
				return
			}
		}
		for _, i := range c.places[c.placeAfter(p.Addr()):] {
			if !c.Pools[i].Prefix.Overlaps(p) || !yield(i) {
				return
			}
		}
	}
}

// ground returns the addresses that pool i serves.
func (c *catalog) ground(i int) addrRanges {
	whole := netipx.RangeOfPrefix(c.Pools[i].Prefix)
	var out addrRanges
	from := whole.From()
	for _, r := range c.inner[i] {
		if from.Less(r.From()) {
			out = append(out, netipx.IPRangeFrom(from, r.From().Prev()))
		}
		if r.To() == whole.To() {
			return out
		}
		from = r.To().Next()
	}
	return append(out, netipx.IPRangeFrom(from, whole.To()))
}

// served returns the pool that serves an address, -1 for none, and the last address of p in a row for which that is so.
func (c *catalog) served(a netip.Addr, p netip.Prefix) (i int, end netip.Addr) {
	i, end = c.containing(a), lastAddr(p)
	switch {
	case i < 0:
		if k := c.placeAfter(a); k < len(c.places) {
			if next := c.Pools[c.places[k]].Prefix.Addr(); p.Contains(next) {
				end = next.Prev()
			}
		}
		return i, end
	case c.Pools[i].Prefix.Bits() > p.Bits():
		end = lastAddr(c.Pools[i].Prefix)
	}
	if in := c.inner[i].from(a); len(in) > 0 && !end.Less(in[0].From()) {
		end = in[0].From().Prev()
	}
	return i, end
}

// sameGround reports whether pool i serves the addresses that pool j of another catalog serves.
func (c *catalog) sameGround(i int, d *catalog, j int) bool {
	return c.Pools[i].Prefix == d.Pools[j].Prefix && slices.Equal(c.inner[i], d.inner[j])
}

// mayRepeat reports whether blocks that are made with next could use sequence numbers again that blocks at the same addresses had. Those
// of the same size cannot: their marks stay, in pages and floors. So addresses must come in, or a block size, where there is or was a
// block of another size in the family. None can come meanwhile, because a pool with another size that serves the addresses now counts,
// and so does every page and every floor of another size.
func (t *txn) mayRepeat(before, next *catalog) (bool, error) {
	for i := range next.Pools {
		p := &next.Pools[i]
		if enters, err := next.enters(i, before); err != nil {
			return false, err
		} else if !enters {
			continue
		}
		other := func(q *Pool) bool { return q.BlockBits != p.BlockBits }
		if was, err := before.groundOf(next.ground(i), p.Prefix, other); err != nil || len(was.Ranges()) > 0 {
			return true, err
		}
		for from := 0; ; from++ {
			size, ok, err := t.nextSize(p.Prefix.Addr().Is6(), from)
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

// enters reports whether addresses or a block size come in with pool i that the catalog before did not have.
func (c *catalog) enters(i int, before *catalog) (bool, error) {
	p := &c.Pools[i]
	if j := before.byName(p.Name); j >= 0 && before.Pools[j].BlockBits == p.BlockBits && before.sameGround(j, c, i) {
		return false, nil
	}
	was, err := before.groundOf(c.ground(i), p.Prefix, func(q *Pool) bool { return q.BlockBits == p.BlockBits })
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(c.ground(i), func(r netipx.IPRange) bool { return !was.ContainsRange(r) }), nil
}

// groundOf returns the addresses of the pools that serve a part of a ground, which lies in p, and that accept reports true for.
func (c *catalog) groundOf(ground addrRanges, p netip.Prefix, accept func(*Pool) bool) (*netipx.IPSet, error) {
	var sb netipx.IPSetBuilder
	for i := range c.overlapping(p) {
		own := c.ground(i)
		if slices.ContainsFunc(own, ground.meet) && accept(&c.Pools[i]) {
			for _, r := range own {
				sb.AddRange(r)
			}
		}
	}
	return sb.IPSet()
}

// adopt notes for every pool that has come to serve other addresses the sizes of the blocks that may be there: those of the pools
// that served them, and those of blocks that former pools have left.
func (t *txn) adopt(before, next *catalog) error {
	for i := range next.Pools {
		p := &next.Pools[i]
		if j := before.byName(p.Name); j >= 0 && before.sameGround(j, next, i) {
			continue
		}
		ground := next.ground(i)
		var of []*Pool
		was, err := before.groundOf(ground, p.Prefix, func(q *Pool) bool {
			if q.Name != p.Name { // the call that changes p notes its former sizes
				of = append(of, q)
			}
			return true
		})
		if err != nil {
			return err
		}
		for _, q := range of {
			if err := t.adoptFrom(q, p, next.inner[i]); err != nil {
				return err
			}
		}
		if !slices.ContainsFunc(ground, func(r netipx.IPRange) bool { return !was.ContainsRange(r) }) {
			continue
		}
		sizes, err := t.sizesIn(p.Prefix, next.inner[i])
		if err != nil {
			return err
		}
		p.drain(sizes...)
	}
	return nil
}

// adoptFrom notes the sizes of the blocks that a pool q may have left where p serves now. Those that drain can only vanish; of the
// present size another engine may be claiming one, so the commit verifies that there is none, or the size is noted.
func (t *txn) adoptFrom(q, p *Pool, inner addrRanges) error {
	for _, size := range q.Draining {
		if has, err := t.hasBlocks(p.Prefix, inner, size); err != nil {
			return err
		} else if has {
			p.drain(size)
		}
	}
	if q.BlockBits == p.BlockBits {
		return nil
	}
	none, err := t.noBlocks(p.Prefix, inner, q.BlockBits)
	if !none && err == nil {
		p.drain(q.BlockBits)
	}
	return err
}

// noBlocks reports whether the commit verifies that there is no block of a size that has addresses of p outside of inner. It is false
// for more than 1,024 blocks, which would be too many pages to verify.
func (t *txn) noBlocks(p netip.Prefix, inner addrRanges, size int) (bool, error) {
	first, from := leafOf(netip.PrefixFrom(p.Addr(), size).Masked())
	last, to := leafOf(netip.PrefixFrom(lastAddr(p), size).Masked())
	const most = 16
	if last.Index.Sub(first.Index).Cmp(addr.U128{Lo: most}) >= 0 {
		return false, nil
	}
	var ids []pageID
	var keys []string
	for id := first; id.Index.Cmp(last.Index) <= 0; id.Index = id.Index.Add(addr.U128{Lo: 1}) {
		if ids = append(ids, id); t.pages.Get(id) == nil {
			keys = append(keys, id.key())
		}
	}
	if len(keys) > 0 {
		if err := t.Load(keys...); err != nil {
			return false, err
		}
	}
	for _, id := range ids {
		pe, err := t.page(id)
		if err != nil {
			return false, err
		}
		t.Guard(&pe.Cell)
		if id.hasBlock(pe.Get().word, first, last, from, to, inner) {
			return false, nil
		}
	}
	return true, nil
}

// hasBlock reports whether a page of level 0 has a block outside of inner: from position from on if it is the page first, to position
// to if it is the page last.
func (id pageID) hasBlock(word uint64, first, last pageID, from, to uint, inner addrRanges) bool {
	if id == first {
		word &= ^uint64(0) << from
	}
	if id == last {
		word &= ^uint64(0) >> (63 - to)
	}
	for ; word != 0; word &= word - 1 {
		if _, in := inner.cover(id.block(bits.TrailingZeros64(word))); !in {
			return true
		}
	}
	return false
}

// sizesIn returns the sizes of the blocks that have addresses of a prefix outside of what the pools in it serve.
func (t *txn) sizesIn(p netip.Prefix, inner addrRanges) ([]int, error) {
	var sizes []int
	if b, ok, err := t.lastBlock(p.Addr()); err != nil {
		return nil, err
	} else if ok && b.Bits() < p.Bits() {
		sizes = append(sizes, b.Bits())
	}
	for from := p.Bits(); ; {
		size, ok, err := t.nextSize(p.Addr().Is6(), from)
		if err != nil || !ok {
			return sizes, err
		}
		from = size + 1
		if has, err := t.hasBlocks(p, inner, size); err != nil {
			return nil, err
		} else if has && !slices.Contains(sizes, size) {
			sizes = append(sizes, size)
		}
	}
}

// hasBlocks reports whether there is a block of a size that has addresses of p outside of inner. It reads pages, one for 64 blocks,
// until it finds one.
func (t *txn) hasBlocks(p netip.Prefix, inner addrRanges, size int) (bool, error) {
	first, from := leafOf(netip.PrefixFrom(p.Addr(), size).Masked())
	last, to := leafOf(netip.PrefixFrom(lastAddr(p), size).Masked())
	r := pageRange(first.v6, size, 0, first.Index, last.Index, false)
	for r.Limit = 256; ; {
		recs, err := t.List(r)
		if err != nil {
			return false, err
		}
		for _, rec := range recs {
			id, ok := parsePageKey(rec.Key)
			pg, err := decodePage(rec)
			if err != nil || !ok {
				return false, fmt.Errorf("%w: space page %q", ipalloc.ErrCorrupt, rec.Key)
			}
			if id.hasBlock(pg.word, first, last, from, to, inner) {
				return true, nil
			}
		}
		if len(recs) < r.Limit {
			return false, nil
		}
		r.From = recs[len(recs)-1].Key + "\x00"
	}
}

// drain notes sizes that blocks of the pool may have beside its own.
func (p *Pool) drain(sizes ...int) {
	for _, s := range sizes {
		if !slices.Contains(p.Draining, s) {
			p.Draining = append(p.Draining, s)
		}
	}
	p.Draining = slices.DeleteFunc(p.Draining, func(s int) bool { return s == p.BlockBits })
	slices.Sort(p.Draining)
}
