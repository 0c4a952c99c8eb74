package prefixes

import (
	"math/bits"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// pageID identifies a page: its pool, its depth, and the first address of the prefix that
// it spans. It consists of words only, because a map hashes these fastest.
type pageID struct {
	pool, base addr.U128
	shape      uint64 // the pool's family and length, and the depth, a byte each
}

func newPageID(pool netip.Prefix, depth int, base addr.U128) pageID {
	family := uint64(4)
	if pool.Addr().Is6() {
		family = 6
	}
	return pageID{addr.FromAddr(pool.Addr()), base, family<<16 | uint64(pool.Bits())<<8 | uint64(depth)}
}

func (id pageID) depth() int { return int(id.shape & 0xff) }

func (id pageID) is4() bool { return id.shape>>16 == 4 }

// of returns the pool.
func (id pageID) of() netip.Prefix {
	if id.is4() {
		return netip.PrefixFrom(id.pool.Addr4(), int(id.shape>>8&0xff))
	}
	return netip.PrefixFrom(id.pool.Addr6(), int(id.shape>>8&0xff))
}

// pages stores the pages of a tree. An empty page has no record.
type pages interface {
	// page returns a page, reading it if necessary.
	page(id pageID) (*pageCell, error)
	// create returns a page that is known to be empty, because no slot above it is
	// divided.
	create(id pageID) *pageCell
	// set replaces the content of a page.
	set(c *pageCell, p page)
}

// tree is the free space of one pool. No method reads more than two pages for each level.
type tree struct {
	pool  netip.Prefix
	pages pages
	way   *path // of the last find, reused
}

// width is the number of bits of the pool's addresses.
func (t tree) width() int { return t.pool.Addr().BitLen() }

func (t tree) root() pageID { return newPageID(t.pool, 0, addr.FromAddr(t.pool.Addr())) }

// prefix returns the prefix of the given relative length that starts at an address.
func (t tree) prefix(base addr.U128, n int) netip.Prefix {
	if t.width() == 32 {
		return netip.PrefixFrom(base.Addr4(), t.pool.Bits()+n)
	}
	return netip.PrefixFrom(base.Addr6(), t.pool.Bits()+n)
}

// slotOf returns the first slot, in a page of depth d, of the prefix of relative length n
// at an address, and log2 of the number of its slots. n is from 6d to 6d+6.
func (t tree) slotOf(base addr.U128, d, n int) (slot, order int) {
	order = pageBits*(d+1) - n
	within := base.Shr(uint(t.width() - t.pool.Bits() - n)).And(addr.Low(uint(n - pageBits*d)))
	return int(within.Lo) << order, order
}

// slotAt returns the slot, in a page of depth d, that contains an address.
func (t tree) slotAt(base addr.U128, d int) int {
	slot, _ := t.slotOf(base, d, pageBits*(d+1))
	return slot
}

// baseOf is the inverse of slotOf: the first address of the prefix of relative length n
// at a slot of a page.
func (t tree) baseOf(id pageID, slot, n int) addr.U128 {
	d := id.depth()
	within := addr.U128{Lo: uint64(slot) >> (pageBits*(d+1) - n)}
	return id.base.Or(within.Shl(uint(t.width() - t.pool.Bits() - n)))
}

// under returns the page below a slot.
func (t tree) under(id pageID, slot int) pageID {
	return pageID{id.pool, t.baseOf(id, slot, pageBits*(id.depth()+1)), id.shape + 1}
}

// at returns the page of a depth that spans an address.
func (t tree) at(base addr.U128, d int) pageID {
	rest := uint(t.width() - t.pool.Bits() - pageBits*d)
	return newPageID(t.pool, d, base.Shr(rest).Shl(rest))
}

// free returns the lengths, relative to the pool's, of all maximal free prefixes.
func (t tree) free() (sizes, error) {
	c, err := t.pages.page(t.root())
	if err != nil {
		return sizes{}, err
	}
	return c.content().sizes(0), nil
}

// find returns the free prefix of relative length n in the smallest maximal free prefix
// with room for it, the lowest if there are several. ok is false if none has room. t.way
// is the path to it, for put.
func (t tree) find(n int) (at netip.Prefix, ok bool, err error) {
	id, w := t.root(), t.way
	fit := 0
	for w.n = 0; ; {
		c, err := t.pages.page(id)
		if err != nil {
			return at, false, err
		}
		p := c.content()
		if invariant.Enabled {
			invariant.Step(1)
		}
		d := w.n
		w.cells[d] = c
		if w.n++; d == 0 {
			if fit = p.sizes(0).fit(n); fit == 0 && !p.empty() {
				return at, false, nil
			}
		}
		if order := pageBits*(d+1) - fit; order >= 0 {
			run := p.runs()[order]
			if run == 0 {
				return at, false, damaged(t.pool)
			}
			return t.prefix(t.baseOf(id, bits.TrailingZeros64(run), fit), n), true, nil
		}
		slot := p.withRoom(fit)
		if slot < 0 {
			return at, false, damaged(t.pool)
		}
		id = t.under(id, slot)
	}
}

// path is the pages from the root to the page with a prefix's slots.
type path struct {
	cells [maxDepth]*pageCell
	n     int
}

// walk reads the pages on the path to a prefix of the pool, and stops at a slot that is
// not divided.
func (t tree) walk(at netip.Prefix) error {
	base, n, w := addr.FromAddr(at.Addr()), at.Bits()-t.pool.Bits(), t.way
	w.n = 0
	for id := t.root(); ; {
		c, err := t.pages.page(id)
		if err != nil {
			return err
		}
		if invariant.Enabled {
			invariant.Step(1)
		}
		d := w.n
		w.cells[d] = c
		w.n++
		slot := 0
		if n > pageBits*(d+1) {
			slot = t.slotAt(base, d)
		}
		if n <= pageBits*(d+1) || c.content().divided>>slot&1 == 0 {
			return nil
		}
		id = t.under(id, slot)
	}
}

// take marks a prefix of the pool as held and reports whether it was free.
func (t tree) take(at netip.Prefix) (bool, error) {
	if err := t.walk(at); err != nil {
		return false, err
	}
	return t.put(at)
}

// put marks a prefix as held and reports whether it was free. Its path must have been
// read, except for pages that do not exist.
func (t tree) put(at netip.Prefix) (bool, error) {
	base, n, w := addr.FromAddr(at.Addr()), at.Bits()-t.pool.Bits(), t.way
	for d := w.n - 1; n > pageBits*(d+1); d++ {
		slot := t.slotAt(base, d)
		if w.cells[d].content().taken>>slot&1 == 1 {
			return false, nil
		}
		c := t.pages.create(t.under(w.cells[d].id, slot))
		if !c.content().empty() {
			return false, damaged(t.pool) // the slot should be divided
		}
		w.cells[w.n] = c
		w.n++
	}
	d := w.n - 1
	p := w.cells[d].content()
	slot, order := t.slotOf(base, d, n)
	if !p.hold(slot, order) {
		return false, nil
	}
	return true, t.store(base, d, w.cells[d], p)
}

// give is the inverse of take. The prefix must have been marked by take. It reads the
// page with the prefix's slots, and the pages above that change.
func (t tree) give(at netip.Prefix) error {
	base, n := addr.FromAddr(at.Addr()), at.Bits()-t.pool.Bits()
	d := max(n-1, 0) / pageBits
	t.way.n = 0
	c, err := t.pages.page(t.at(base, d))
	if err != nil {
		return err
	}
	p := c.content()
	if slot, order := t.slotOf(base, d, n); !p.drop(slot, order) {
		return damaged(t.pool)
	}
	return t.store(base, d, c, p)
}

// store writes a page of depth d, which spans an address. It also writes the pages above
// whose record of the page below changes.
func (t tree) store(base addr.U128, d int, c *pageCell, p page) error {
	for {
		was := c.content()
		t.pages.set(c, p)
		if invariant.Enabled {
			invariant.Step(1)
		}
		if d == 0 {
			return nil
		}
		sum := p.sizes(d)
		if !was.empty() && !p.empty() && was.sizes(d) == sum {
			return nil
		}
		empty := p.empty()
		d--
		if d < t.way.n {
			c = t.way.cells[d]
		} else {
			var err error
			if c, err = t.pages.page(t.at(base, d)); err != nil {
				return err
			}
		}
		if slot := t.slotAt(base, d); empty {
			p = c.content().unite(slot)
		} else {
			p = c.content().divide(slot, sum)
		}
	}
}

// damaged returns the error for a page that contradicts another one, or a holding.
func damaged(pool netip.Prefix) error {
	return corrupt(pool, "pages of the free space contradict each other or what is held")
}
