package hostlocal

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
)

// pageID names a page of package space. The places of a family are its addresses, so ranges
// may change freely. A page that is all clear has no record.
type pageID struct {
	v6 bool
	space.ID
}

func width(v6 bool) int {
	if v6 {
		return 128
	}
	return 32
}

// leafOf returns the page that records whether an address is taken, and the address's
// position in it.
func leafOf(a netip.Addr) (pageID, uint) {
	id, bit := space.Leaf(addr.FromAddr(a))
	return pageID{a.Is6(), id}, bit
}

// tree is the pages of one family in a transaction.
type tree struct {
	*txn
	v6 bool
}

// Word implements [space.Pages].
func (t tree) Word(id space.ID) (uint64, error) {
	w, err := get[word](t.txn, t.page(pageID{t.v6, id}))
	return uint64(w), err
}

// SetWord implements [space.Pages].
func (t tree) SetWord(id space.ID, w uint64) error {
	t.put(t.page(pageID{t.v6, id}), encodeWord(w))
	return nil
}

// mark records that an address is taken, or free.
func (t *txn) mark(a netip.Addr, taken bool) error {
	return space.Mark(tree{t, a.Is6()}, a.BitLen(), addr.FromAddr(a), taken)
}

// findFree returns the first address of a range at or after from that is free, not
// excluded and not the range's gateway; the zero Addr if there is none.
func (t *txn) findFree(r Range, from netip.Addr) (netip.Addr, error) {
	for from.IsValid() && !r.Last.Less(from) {
		a, err := t.findUntaken(from, r.Last, r.Gateway)
		if err != nil || !a.IsValid() {
			return a, err
		}
		p := r.excluding(a)
		if !p.IsValid() {
			return a, nil
		}
		from = lastOf(p).Next()
	}
	return netip.Addr{}, nil
}

// findUntaken returns the first address between from and to, both included, that is
// neither taken nor skip; the zero Addr if there is none.
func (t *txn) findUntaken(from, to, skip netip.Addr) (none netip.Addr, err error) {
	skipLeaf, skipBit := leafOf(skip)
	pages := tree{t, from.Is6()}
	place, ok, err := space.Find(func(id space.ID) (uint64, error) {
		w, err := pages.Word(id)
		if (pageID{pages.v6, id}) == skipLeaf {
			w |= 1 << skipBit
		}
		return w, err
	}, addr.FromAddr(from), addr.FromAddr(to))
	if !ok || err != nil {
		return none, err
	}
	return toAddr(place, pages.v6), nil
}

// pick returns the first free address of a set after a cursor, the zero Addr if there is
// none. It searches from the address after the cursor to the end of its range, then the
// other ranges in turn. Last, it searches the cursor's own range from its start. If the
// cursor is in none of the ranges, it searches all of them in order. It skips the gateway
// and the excluded addresses of the range.
func (t *txn) pick(s RangeSet, cursor netip.Addr) (a netip.Addr, err error) {
	first := s.RangeOf(cursor)
	if first >= 0 && cursor != s[first].Last {
		a, err = t.findFree(s[first], cursor.Next())
	}
	for k := 0; k < len(s) && err == nil && !a.IsValid(); k++ {
		r := s[(first+1+k)%len(s)]
		a, err = t.findFree(r, r.First)
	}
	return a, err
}
