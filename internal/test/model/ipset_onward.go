package model

import (
	"net/netip"
	"slices"
	"time"
)

// assignOnward gives the lowest addresses that are not below From, of pools of one priority in address order.
func (m *IPSet) assignOnward(w IPSetWant, n int, pools []IPSetPool) (out []netip.Addr) {
	pools = slices.Clone(pools)
	slices.SortFunc(pools, func(p, q IPSetPool) int { return p.Prefix.Addr().Compare(q.Prefix.Addr()) })
	free := func(b *IPSetBlock) []netip.Addr {
		as := slices.DeleteFunc(b.Peek(len(b.Free), m.reserved), func(a netip.Addr) bool { return a.Less(w.From) })
		slices.SortFunc(as, netip.Addr.Compare)
		return as[:min(len(as), n-len(out))]
	}
	for _, p := range pools {
		for _, q := range m.placesOf(w, p, true) {
			if len(out) == n {
				return out
			}
			b := m.onwardBlock(w, p, q, func(b *IPSetBlock) bool { return len(free(b)) > 0 })
			if b == nil {
				continue
			}
			for _, a := range free(b) {
				b.Take(a, w.Hold)
				out = append(out, a)
			}
		}
	}
	m.assignFormer(w, n, pools, &out, free)
	return out
}

// onwardBlock returns a block as the owner may use it: its own, free, idle, an orphan, or one of another that may be borrowed from.
func (m *IPSet) onwardBlock(w IPSetWant, p IPSetPool, q netip.Prefix, has func(*IPSetBlock) bool) *IPSetBlock {
	b, may := m.Blocks[q], m.mayClaim(w.Owner, p, w.Most)
	fresh := NewIPSetBlock(q, w.Head, w.Tail, m.Now)
	fresh.Owner = w.Owner
	switch {
	case b == nil && m.overlaps(q):
		return nil
	case b == nil || b.Owner != "" && b.Owner != w.Owner && len(b.Holds) == 0 && m.Now.Sub(b.Since) >= time.Minute && may && has(fresh):
		if !may || !has(fresh) {
			return nil
		}
		m.Blocks[q] = fresh
		return fresh
	case b.Owner == w.Owner || !has(b):
	case b.Owner == "" && may:
		b.Owner = w.Owner
	case m.Strict:
		return nil
	}
	return b
}
