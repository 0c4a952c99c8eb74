package pool

import (
	"iter"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// A pool may lie in another. An address belongs to the smallest pool whose prefix contains it: the ground of a pool is its prefix without
// the prefixes of the pools in it. A nested prefix is made of whole blocks of the pool around it, so no block of that pool's size has
// addresses of two pools. A block of another size may: then no pool assigns from it automatically, and each of its addresses counts for
// its own pool.

// nest finds the pool around each pool, and the addresses that the pools in it have taken over.
func (c *Catalog) nest() error {
	around := -1
	for _, i := range c.Places {
		p := &c.Pools[i]
		p.Inner = nil
		for around >= 0 && !c.Pools[around].Prefix.Overlaps(p.Prefix) {
			around = c.Pools[around].Outer
		}
		p.shut = p.Closed
		if p.Outer = around; around >= 0 {
			o := &c.Pools[around]
			p.shut = p.shut || o.shut
			if o.Prefix == p.Prefix {
				return cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Prefix: p.Prefix, Holder: o.Name, Err: cause.Overlap})
			}
			if p.Prefix.Bits() > o.BlockBits {
				offGrid := cause.Invalid("Prefix", "a nested pool must be made of whole blocks (/%d) of the pool around it", o.BlockBits)
				return cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Prefix: p.Prefix, InTheWay: o.Prefix, Holder: o.Name, Err: offGrid})
			}
			o.Inner = o.Inner.with(p.Prefix)
		}
		around = i
	}
	return nil
}

// with returns the ranges and a prefix behind all of them.
func (rs AddrRanges) with(p netip.Prefix) AddrRanges {
	r := netipx.RangeOfPrefix(p)
	if n := len(rs); n > 0 && rs[n-1].To().Next() == r.From() {
		rs[n-1] = netipx.IPRangeFrom(rs[n-1].From(), r.To())
		return rs
	}
	return append(rs, r)
}

// meet reports whether the ranges share an address with r.
func (rs AddrRanges) meet(r netipx.IPRange) bool {
	rs = rs.From(r.From())
	return len(rs) > 0 && !r.To().Less(rs[0].From())
}

// Containing returns the index of the pool that serves an address, the smallest that contains it; -1 for none.
func (c *Catalog) Containing(a netip.Addr) int {
	k := c.placeAfter(a) - 1
	if k < 0 {
		return -1
	}
	i := c.Places[k]
	for i >= 0 && !c.Pools[i].Prefix.Contains(a) {
		i = c.Pools[i].Outer
	}
	return i
}

// placeAfter returns the place of the first pool in address order that begins after an address.
func (c *Catalog) placeAfter(a netip.Addr) int {
	k, _ := slices.BinarySearchFunc(c.Places, a, func(i int, a netip.Addr) int {
		if a.Less(c.Pools[i].Prefix.Addr()) {
			return 1
		}
		return -1
	})
	return k
}

// overlapping yields the pools that share an address with a prefix.
func (c *Catalog) overlapping(p netip.Prefix) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := c.Containing(p.Addr()); i >= 0; i = c.Pools[i].Outer {
			if !yield(i) {
				return
			}
		}
		for _, i := range c.Places[c.placeAfter(p.Addr()):] {
			if !c.Pools[i].Prefix.Overlaps(p) || !yield(i) {
				return
			}
		}
	}
}

// Ground returns the addresses that pool i serves.
func (c *Catalog) Ground(i int) AddrRanges {
	whole := netipx.RangeOfPrefix(c.Pools[i].Prefix)
	var out AddrRanges
	from := whole.From()
	for _, r := range c.Pools[i].Inner {
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

// Served returns the pool that serves an address, -1 for none, and the last address of p in a row with the same answer.
func (c *Catalog) Served(a netip.Addr, p netip.Prefix) (i int, end netip.Addr) {
	i, end = c.Containing(a), record.LastAddr(p)
	switch {
	case i < 0:
		if k := c.placeAfter(a); k < len(c.Places) {
			if next := c.Pools[c.Places[k]].Prefix.Addr(); p.Contains(next) {
				end = next.Prev()
			}
		}
		return i, end
	case c.Pools[i].Prefix.Bits() > p.Bits():
		end = record.LastAddr(c.Pools[i].Prefix)
	}
	if in := c.Pools[i].Inner.From(a); len(in) > 0 && !end.Less(in[0].From()) {
		end = in[0].From().Prev()
	}
	return i, end
}

// ServesAll reports whether pool i serves all addresses of a block.
func (c *Catalog) ServesAll(i int, block netip.Prefix) bool {
	j, end := c.Served(block.Addr(), block)
	return j == i && end == record.LastAddr(block)
}

// SameGround reports whether pool i serves the addresses that pool j of another catalog serves.
func (c *Catalog) SameGround(i int, d *Catalog, j int) bool {
	return c.Pools[i].Prefix == d.Pools[j].Prefix && slices.Equal(c.Pools[i].Inner, d.Pools[j].Inner)
}

// Enters reports whether addresses or a block size come in with pool i that the catalog before did not have.
func (c *Catalog) Enters(i int, before *Catalog) (bool, error) {
	p := &c.Pools[i]
	if j := before.ByName(p.Name); j >= 0 && before.Pools[j].BlockBits == p.BlockBits && before.SameGround(j, c, i) {
		return false, nil
	}
	was, err := before.GroundOf(c.Ground(i), p.Prefix, func(q *Pool) bool { return q.BlockBits == p.BlockBits })
	if err != nil {
		return false, err
	}
	return !was.HasAll(c.Ground(i)), nil
}

// GroundOf returns the addresses of the pools that serve a part of a ground and that accept accepts. The ground is in p.
func (c *Catalog) GroundOf(ground AddrRanges, p netip.Prefix, accept func(*Pool) bool) (AddrRanges, error) {
	var sb netipx.IPSetBuilder
	for i := range c.overlapping(p) {
		own := c.Ground(i)
		if slices.ContainsFunc(own, ground.meet) && accept(&c.Pools[i]) {
			for _, r := range own {
				sb.AddRange(r)
			}
		}
	}
	set, err := sb.IPSet()
	if err != nil {
		return nil, err
	}
	return set.Ranges(), nil
}

// Drain notes sizes that blocks of the pool may have beside its own.
func (p *Pool) Drain(sizes ...int) {
	for _, s := range sizes {
		if !slices.Contains(p.Draining, s) {
			p.Draining = append(p.Draining, s)
		}
	}
	p.Draining = slices.DeleteFunc(p.Draining, func(s int) bool { return s == p.BlockBits })
	slices.Sort(p.Draining)
}

// KeepsSizesOf reports whether p may have blocks of every size that blocks of q may have.
func (p *Pool) KeepsSizesOf(q *Pool) bool {
	has := func(size int) bool { return size == p.BlockBits || slices.Contains(p.Draining, size) }
	return has(q.BlockBits) && !slices.ContainsFunc(q.Draining, func(size int) bool { return !has(size) })
}
