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
	take := func(b *IPSetBlock) {
		for _, a := range free(b) {
			b.Take(a, w.Hold)
			out = append(out, a)
		}
	}
	for _, p := range pools {
		met := make(map[netip.Prefix]bool) // places and blocks
		for a := p.Prefix.Addr(); p.Prefix.Contains(a) && len(out) < n; a = a.Next() {
			q, b := netip.PrefixFrom(a, p.Bits).Masked(), m.containing(a)
			if b != nil {
				q = b.Prefix
			}
			if a.Less(w.From) || met[q] || !m.serves(p, a) {
				continue
			}
			met[q] = true
			if b == nil && !m.overlaps(q) || b != nil && len(free(b)) > 0 {
				m.assignInto(w, p, q, b, func() bool { return len(out) < n }, take)
			}
		}
	}
	return out
}

// assignInto gives addresses of a block as the owner may use it: its own, free, idle, an orphan, or one of another that may be borrowed from.
func (m *IPSet) assignInto(w IPSetWant, p IPSetPool, q netip.Prefix, b *IPSetBlock, wanting func() bool, take func(*IPSetBlock)) {
	may := m.mayClaim(w.Owner, p, w.Most)
	idle := b != nil && b.Owner != "" && b.Owner != w.Owner && len(b.Holds) == 0 && m.Now.Sub(b.Since) >= time.Minute && may
	smaller := b != nil && b.Owner == w.Owner && len(b.Holds) == 0 && b.Prefix.Bits() > p.Bits
	if (idle || smaller) && m.renew(w, p, b, wanting, take) {
		return
	}
	switch {
	case b == nil || idle && m.whole(p, q) && !m.unusable(q, w):
		fresh := NewIPSetBlock(q, w.Head, w.Tail, m.Now)
		if !may || m.unusable(q, w) {
			return
		}
		fresh.Owner, m.Blocks[q] = w.Owner, fresh
		b = fresh
	case !m.whole(p, q):
		return
	case b.Owner == w.Owner:
	case b.Owner == "" && may:
		b.Owner = w.Owner
	case m.Strict:
		return
	}
	take(b)
}
