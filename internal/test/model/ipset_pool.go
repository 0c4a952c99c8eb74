package model

import (
	"net/netip"
	"slices"
)

// pool returns the pool that serves an address: the smallest that contains it.
func (m *IPSet) pool(a netip.Addr) (IPSetPool, bool) {
	best := IPSetPool{}
	for _, p := range m.Pools {
		if p.Prefix.Contains(a) && (!best.Prefix.IsValid() || p.Prefix.Bits() > best.Prefix.Bits()) {
			best = p
		}
	}
	return best, best.Prefix.IsValid()
}

// serves reports whether a pool serves an address.
func (m *IPSet) serves(p IPSetPool, a netip.Addr) bool {
	q, ok := m.pool(a)
	return ok && q.Name == p.Name
}

// Nests reports whether pools can coexist and nest. No two may have the same prefix, and a nested pool must consist of whole blocks
// of the smallest pool around it.
func (m *IPSet) Nests() bool {
	for i, p := range m.Pools {
		around := IPSetPool{}
		for j, q := range m.Pools {
			switch {
			case i == j:
			case p.Prefix == q.Prefix:
				return false
			case q.Prefix.Overlaps(p.Prefix) && q.Prefix.Bits() < p.Prefix.Bits() && (!around.Prefix.IsValid() || q.Prefix.Bits() > around.Prefix.Bits()):
				around = q
			}
		}
		if around.Prefix.IsValid() && p.Prefix.Bits() > around.Bits {
			return false
		}
	}
	return true
}

// Use counts all, held, cooling and assignable addresses of a pool.
func (m *IPSet) Use(p IPSetPool) (all, held, cooling, available int) {
	for a := p.Prefix.Addr(); p.Prefix.Contains(a); a = a.Next() {
		if !m.serves(p, a) {
			continue
		}
		all++
		b := m.containing(a)
		switch {
		case b == nil:
			if !m.reserved(a) && !m.kept(netip.PrefixFrom(a, p.Bits).Masked()) {
				available++
			}
		case b.holds(a):
			held++
		case b.Holds[a].Cooling:
			cooling++
		case slices.Contains(b.Free, a) && !m.reserved(a) && (len(b.Holds) == 0 || m.whole(p, b.Prefix)):
			available++
		}
	}
	return all, held, cooling, available
}

// kept reports whether blocks in a place keep what is around them: one is in use, or they are too many for one commit.
func (m *IPSet) kept(place netip.Prefix) bool {
	n, used := 0, false
	for q, b := range m.Blocks {
		if q.Overlaps(place) {
			n, used = n+1, used || len(b.Holds) > 0
		}
	}
	return used || n > 64
}

// peek returns the next n addresses of a block in the order of its pool.
func (m *IPSet) peek(b *IPSetBlock, n int) []netip.Addr {
	p, _ := m.pool(b.Prefix.Addr())
	if p.Order == 0 {
		return b.Peek(n, m.reserved)
	}
	all := b.Peek(len(b.Free), m.reserved)
	n = min(n, len(all))
	if p.Order == 2 {
		return m.Choose(all, n)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all[:n]
}

// row returns the lowest n addresses in a row that a block may hand out, none if there are not so many; aligned ones begin at a
// multiple of n.
func (m *IPSet) row(b *IPSetBlock, n int, aligned bool) []netip.Addr {
	all := b.Peek(len(b.Free), m.reserved)
	for at, first := 0, b.Prefix.Addr(); n > 0 && b.Prefix.Contains(first); at, first = at+1, first.Next() {
		var row []netip.Addr
		for a := first; len(row) < n && slices.Contains(all, a); a = a.Next() {
			row = append(row, a)
		}
		if len(row) == n && (!aligned || at%n == 0) {
			return row
		}
	}
	return nil
}
