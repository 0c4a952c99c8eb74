package model

import (
	"net/netip"
	"slices"
	"time"
)

// AssignBoth assigns named addresses and then others, all or none. The reason why is as from AssignIP or AutoAssign. The answer includes
// addresses that the handle already holds.
func (m *IPSet) AssignBoth(named []netip.Addr, w IPSetWant) (out []netip.Addr, why string) {
	before := m.copied()
	for _, a := range named {
		if why := m.AssignIP(a, w); why != "" {
			m.Blocks = before
			return nil, why
		}
	}
	if w.N[0]+w.N[1] > 0 {
		if out, why = m.AutoAssign(w); why != "" {
			m.Blocks = before
			return nil, why
		}
	}
	return append(slices.Clone(named), out...), ""
}

// Held returns the obstacle to acting on an address as its holder: "", "free", "cooling", or "other" for another holder.
func (m *IPSet) Held(a netip.Addr, handle string) string {
	b := m.containing(a)
	switch {
	case b == nil || len(b.Holds[a]) == 0:
		return "free"
	case !b.Held(a):
		return "cooling"
	case find(b.Holds[a], handle) < 0:
		return "other"
	}
	return ""
}

// hold returns the holding of an address by a handle.
func (m *IPSet) hold(a netip.Addr, handle string) *IPSetHold {
	hs := m.containing(a).Holds[a]
	return &hs[find(hs, handle)]
}

// Decline releases an address of a handle and blocks it for a time. It returns the obstacle, like Held, or "shared" if others hold it
// too.
func (m *IPSet) Decline(a netip.Addr, handle string, d time.Duration) string {
	b, why := m.containing(a), m.Held(a, handle)
	switch {
	case why == "cooling" && handle != "" && b.Holds[a][0].Declined && b.Holds[a][0].By == handle:
		return ""
	case why == "" && handle != "" && len(b.Holds[a]) > 1:
		return "shared"
	case why == "":
		b.Decline(a, find(b.Holds[a], handle), m.Now, d)
	}
	return why
}

// Refuses says which rule of now would keep automatic assignment from giving a host an address of a block if it were free: "", "outside",
// "no pool", "reserved", "draining" or "strict".
func (m *IPSet) Refuses(a netip.Addr, host string) string {
	p, ok := m.pool(a)
	b := m.containing(a)
	switch {
	case !ok:
		return "outside"
	case p.Disabled:
		return "no pool"
	case m.reserved(a):
		return "reserved"
	case !m.whole(p, b.Prefix):
		return "draining"
	case m.Strict && b.Owner != "" && b.Owner != host:
		return "strict"
	}
	return ""
}

// RenewIP moves the end of the lease of an address, for a host within the rules of now if one is given. It returns the obstacle, like Held
// and Refuses.
func (m *IPSet) RenewIP(a netip.Addr, handle string, ttl time.Duration, within string) (until time.Time, why string) {
	if why = m.Held(a, handle); why != "" {
		return time.Time{}, why
	}
	h := m.hold(a, handle)
	if h.Until.IsZero() {
		return time.Time{}, ""
	}
	if within != "" {
		why = m.Refuses(a, within)
	}
	if why == "" {
		h.Until = m.Now.Add(ttl)
	}
	return h.Until, why
}

// MayMove says what keeps the holding of a handle from moving to another host: "", or "strict".
func (m *IPSet) MayMove(a netip.Addr, handle, host string) string {
	if b := m.containing(a); m.hold(a, handle).Host != host && m.Strict && b.Owner != host && b.Owner != "" {
		return "strict"
	}
	return ""
}

// moveTo makes a host that of the holding of a handle, which then comes after all others of the address.
func (m *IPSet) moveTo(a netip.Addr, handle, host string) {
	if h := *m.hold(a, handle); h.Host != host {
		h.Host = host
		b := m.containing(a)
		b.Change(a, find(b.Holds[a], handle), h)
	}
}

// Holds returns the addresses of a handle, in address order.
func (m *IPSet) Holds(handle string) (all []netip.Addr) {
	return m.heldBy(func(h IPSetHold) bool { return h.Handle == handle })
}

// heldBy returns the addresses of which a holder is as asked, in address order.
func (m *IPSet) heldBy(is func(IPSetHold) bool) (all []netip.Addr) {
	for _, b := range m.Sorted() {
		all = append(all, b.HeldBy(is)...)
	}
	return all
}

// Offer moves the holdings of a handle to a host, and the ends of those leases of some addresses that would be before ttl. It returns the
// obstacle to a move, or, within, why the rules of now refuse one of the addresses.
func (m *IPSet) Offer(handle, host string, ttl time.Duration, given []netip.Addr, within bool) string {
	all := m.Holds(handle)
	for _, a := range all {
		if why := m.MayMove(a, handle, host); why != "" {
			return why
		}
	}
	for _, a := range given {
		if why := m.Refuses(a, host); within && why != "" {
			return why
		}
	}
	m.First(handle, all)
	for _, a := range all {
		m.moveTo(a, handle, host)
	}
	for _, a := range given {
		if h := m.hold(a, handle); !h.Until.IsZero() && h.Until.Before(m.Now.Add(ttl)) {
			h.Until = m.Now.Add(ttl)
		}
	}
	return ""
}

// Renew moves the end of the leases of a handle and returns their number, and the obstacles to each, within the rules of now for a host if
// one is given.
func (m *IPSet) Renew(handle string, ttl time.Duration, within string) (n int, why []string) {
	leases := m.heldBy(func(h IPSetHold) bool { return h.Handle == handle && !h.Until.IsZero() })
	for _, a := range leases {
		if within != "" && m.Refuses(a, within) != "" {
			why = append(why, m.Refuses(a, within))
		}
	}
	if len(why) > 0 {
		return 0, why
	}
	for _, a := range leases {
		m.hold(a, handle).Until = m.Now.Add(ttl)
	}
	return len(leases), nil
}
