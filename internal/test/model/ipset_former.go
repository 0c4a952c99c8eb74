package model

import (
	"net/netip"
	"slices"
)

// assignFormer gives addresses of blocks of former sizes that pools of one priority have, and of what these leave of the place of a block of the
// present size, in blocks of the size of the smallest there. pick returns the addresses to take from a block.
func (m *IPSet) assignFormer(w IPSetWant, n int, pools []IPSetPool, got *[]netip.Addr, pick func(*IPSetBlock) []netip.Addr) {
	onward := len(pools) > 0 && w.onward(pools[0].Prefix.Addr().Is6())
	take := func(b *IPSetBlock) {
		for _, a := range pick(b) {
			b.Take(a, w.Hold)
			*got = append(*got, a)
		}
	}
	each := func(do func(p IPSetPool, b *IPSetBlock)) {
		for _, p := range pools {
			for _, b := range m.former(w, p, onward) {
				if len(*got) < n && len(pick(b)) > 0 {
					do(p, b)
				}
			}
		}
	}
	own := func(_ IPSetPool, b *IPSetBlock) {
		if b.Owner == w.Owner {
			take(b)
		}
	}
	others := func(p IPSetPool, b *IPSetBlock) {
		orphan := b.Owner == "" && m.mayClaim(w.Owner, p, w.Most)
		if onward && b.Owner == w.Owner {
			take(b)
		}
		if w.Row || w.Aligned || b.Owner == w.Owner || m.Strict && !orphan {
			return
		}
		if orphan {
			b.Owner = w.Owner
		}
		take(b)
	}
	if onward {
		each(others)
	} else {
		each(own)
	}
	for _, p := range pools {
		for _, q := range m.placesOf(w, p, onward) {
			for _, h := range m.holes(q, w.Head+w.Tail) {
				b := NewIPSetBlock(h, w.Head, w.Tail, m.Now)
				if len(*got) < n && !m.unusable(q, w) && len(pick(b)) > 0 && m.mayClaim(w.Owner, p, w.Most) {
					b.Owner, m.Blocks[h] = w.Owner, b
					take(b)
				}
			}
		}
	}
	if !onward {
		each(others)
	}
}

// placesOf returns the blocks that a pool could have, as walk does or in address order.
func (m *IPSet) placesOf(w IPSetWant, p IPSetPool, sorted bool) []netip.Prefix {
	all := m.walk(w.Owner, p)
	if sorted {
		slices.SortFunc(all, func(p, q netip.Prefix) int { return p.Addr().Compare(q.Addr()) })
	}
	return all
}

// former returns the blocks of other sizes than the pool's that it serves as a whole, from the owner's place on and around or in address order.
func (m *IPSet) former(w IPSetWant, p IPSetPool, sorted bool) (all []*IPSetBlock) {
	start, first := m.Start(w.Owner, p), 0
	for _, b := range m.Sorted() {
		if b.Prefix.Bits() == p.Bits || !m.whole(p, b.Prefix) {
			continue
		}
		if c := b.Prefix.Addr().Compare(start.Addr()); !sorted && (c < 0 || c == 0 && b.Prefix.Bits() < start.Bits()) {
			first++
		}
		all = append(all, b)
	}
	return slices.Concat(all[first:], all[:first])
}

// whole reports whether a pool serves all addresses of a block.
func (m *IPSet) whole(p IPSetPool, block netip.Prefix) bool {
	whole := true
	for a := block.Addr(); whole && block.Contains(a); a = a.Next() {
		whole = m.serves(p, a)
	}
	return whole
}

// holes returns the blocks that may be made in a place beside smaller ones: of the size of the smallest, with more addresses than ends.
func (m *IPSet) holes(place netip.Prefix, ends int) (all []netip.Prefix) {
	bits := 0
	for q := range m.Blocks {
		if place.Overlaps(q) && q.Bits() > place.Bits() {
			bits = max(bits, q.Bits())
		}
	}
	for a := place.Addr(); bits > 0 && place.Contains(a); a = a.Next() {
		if h := netip.PrefixFrom(a, bits); h == h.Masked() && !m.overlaps(h) && ends < 1<<(a.BitLen()-bits) {
			all = append(all, h)
		}
	}
	return all
}
