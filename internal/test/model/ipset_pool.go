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
		larger := IPSet{}
		for _, q := range m.Pools[:i] {
			if p.Prefix == q.Prefix {
				return false
			}
		}
		for _, q := range m.Pools {
			if q.Prefix.Bits() < p.Prefix.Bits() {
				larger.Pools = append(larger.Pools, q)
			}
		}
		if around, ok := larger.pool(p.Prefix.Addr()); ok && p.Prefix.Bits() > around.Bits {
			return false
		}
	}
	return true
}

// Use counts all, held, cooling and assignable addresses of a pool.
func (m *IPSet) Use(p IPSetPool) (all, held, cooling, available int) {
	for _, a := range addresses(p.Prefix) {
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
		case b.Held(a):
			held++
		case len(b.Holds[a]) > 0:
			cooling++
		case slices.Contains(b.Free, a) && !m.reserved(a) && (len(b.Holds) == 0 || m.whole(p, b.Prefix)):
			available++
		}
	}
	return all, held, cooling, available
}

// kept reports whether blocks in a place keep what is around them: one is in use, or they are too many for one commit.
func (m *IPSet) kept(place netip.Prefix) bool {
	bs := m.overlapping(place)
	return len(bs) > 64 || slices.ContainsFunc(bs, func(b *IPSetBlock) bool { return len(b.Holds) > 0 })
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
	whole := addresses(b.Prefix)
	for at := 0; n > 0 && at+n <= len(whole); at++ {
		row := whole[at : at+n]
		if len(without(row, all)) == 0 && (!aligned || at%n == 0) {
			return row
		}
	}
	return nil
}
