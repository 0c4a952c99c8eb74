package model

import (
	"net/netip"
	"slices"
)

// Assign returns the address that a handle holds, which moves to the owner with all that the handle holds, and assigns one if there is
// none. It returns the obstacle, as [IPSet.AutoAssign] and [IPSet.MayMove] do.
func (m *IPSet) Assign(w IPSetWant) (netip.Addr, string) {
	handle := w.Hold.Handle
	held := slices.DeleteFunc(m.Holds(handle), func(a netip.Addr) bool {
		p, ok := m.pool(a)
		return len(w.Pools) > 0 && !(ok && w.names(p))
	})
	if len(held) == 0 {
		w.N, w.All = [2]int{1, 0}, true
		out, why := m.AutoAssign(w)
		if why == "no pool" {
			w.N = [2]int{0, 1}
			out, why = m.AutoAssign(w)
		}
		if why != "" {
			return netip.Addr{}, why
		}
		m.First(handle, out)
		return out[0], ""
	}
	for _, a := range held {
		if why := m.MayMove(a, handle, w.Owner); why != "" {
			return netip.Addr{}, why
		}
	}
	m.First(handle, held)
	for _, a := range held {
		m.moveTo(a, handle, w.Owner)
	}
	i := slices.IndexFunc(held, func(a netip.Addr) bool { return m.hold(a, handle).First })
	if i < 0 || held[i].Is4() != held[0].Is4() {
		i = 0
	}
	return held[i], ""
}

// First makes the first of some addresses of a handle its first holding if it has none.
func (m *IPSet) First(handle string, as []netip.Addr) {
	if len(m.heldBy(func(h IPSetHold) bool { return h.Handle == handle && h.First })) == 0 {
		m.hold(as[0], handle).First = true
	}
}

// names reports whether a pool is one of those that are asked for.
func (w IPSetWant) names(p IPSetPool) bool {
	return len(w.Pools) == 0 || slices.Contains(w.Pools, p.Name)
}
