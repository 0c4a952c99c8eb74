package hostlocal

import (
	"math/bits"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// A page is one word. At level 0 it says which of 64 addresses in a row are taken, at
// level n which of 64 pages of level n-1 are full; 1 is taken. The geometry depends on
// the family alone, so ranges may change freely. A page that is all clear has no record.

// pageBits is log2 of the children of a page.
const pageBits = 6

// fullWord is a page without a free child.
const fullWord = ^uint64(0)

// pageID names a page.
type pageID struct {
	v6    bool
	level uint8
	index addr.U128 // of the page among those of its level, from address 0
}

// leafOf returns the page that says whether an address is taken, and the address's position in it.
func leafOf(a netip.Addr) (pageID, uint) {
	n := addr.FromAddr(a)
	return pageID{v6: a.Is6(), index: n.Shr(pageBits)}, uint(n.Lo & 63)
}

// levels returns the number of levels of a family's pages; the highest has one page.
func levels(v6 bool) uint8 {
	if v6 {
		return (128 + pageBits - 1) / pageBits
	}
	return (32 + pageBits - 1) / pageBits
}

// parent returns the page above and the position in it; ok is false for the page that spans the family.
func (id pageID) parent() (up pageID, child uint, ok bool) {
	if id.level+1 >= levels(id.v6) {
		return id, 0, false
	}
	return pageID{v6: id.v6, level: id.level + 1, index: id.index.Shr(pageBits)}, uint(id.index.Lo & 63), true
}

// mark notes that an address is taken, in its leaf and in the pages above that it fills.
func (t *txn) mark(a netip.Addr) error { return t.flip(a, true) }

// unmark is the inverse of mark.
func (t *txn) unmark(a netip.Addr) error { return t.flip(a, false) }

func (t *txn) flip(a netip.Addr, taken bool) error {
	id, child := leafOf(a)
	for ok := true; ok; id, child, ok = id.parent() {
		was, err := t.word(id)
		if err != nil {
			return err
		}
		w := was &^ (1 << child)
		if taken {
			w |= 1 << child
		}
		t.put(t.page(id), encodeWord(w))
		if (was == fullWord) == (w == fullWord) {
			return nil // nothing changes for the page above
		}
	}
	return nil
}

// findFree returns the first address from from to to, both included, that is neither
// taken nor skip; the zero Addr if there is none. It reads at most two pages a level,
// and one leaf more for skip.
//
// It climbs while a page has no clear bit left in the searched part, and descends to the
// first clear one.
func (t *txn) findFree(from, to, skip netip.Addr) (none netip.Addr, err error) {
	skipLeaf, skipBit := leafOf(skip)
	id, last := pageID{v6: from.Is6()}, addr.FromAddr(to)
	at := addr.FromAddr(from) // the next child to look at, in units of level
	for level := uint(0); ; {
		end := last.Shr(pageBits * level)
		if at.Cmp(end) > 0 {
			return none, nil
		}
		id.level, id.index = uint8(level), at.Shr(pageBits)
		w, err := t.word(id)
		if err != nil {
			return none, err
		}
		invariant.Step(1)
		if id == skipLeaf {
			w |= 1 << skipBit
		}
		free := ^w & (fullWord << (at.Lo & 63))
		if free == 0 {
			if id.index.Cmp(end.Shr(pageBits)) >= 0 {
				return none, nil // to is in this page or before it
			}
			at, level = id.index.Add(addr.U128{Lo: 1}), level+1
			continue
		}
		at = id.index.Shl(pageBits).Or(addr.U128{Lo: uint64(bits.TrailingZeros64(free))})
		if at.Cmp(end) > 0 {
			return none, nil
		}
		if level == 0 {
			return toAddr(at, id.v6), nil
		}
		at, level = at.Shl(pageBits), level-1
	}
}

// pick returns the first free address of a set after a cursor, the zero Addr if there is
// none: from the one after the cursor to the end of its range, then the other ranges in
// turn, at last the cursor's own from its start. A cursor in none of the ranges means all
// of them in order. It skips the gateway of the range searched.
func (t *txn) pick(s RangeSet, cursor netip.Addr) (a netip.Addr, err error) {
	first := s.RangeOf(cursor)
	if first >= 0 && cursor != s[first].End {
		a, err = t.findFree(cursor.Next(), s[first].End, s[first].Gateway)
	}
	for k := 0; k < len(s) && err == nil && !a.IsValid(); k++ {
		r := s[(first+1+k)%len(s)]
		a, err = t.findFree(r.Start, r.End, r.Gateway)
	}
	return a, err
}
