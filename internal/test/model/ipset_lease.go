package model

import (
	"net/netip"
	"slices"
	"time"
)

// AssignBoth assigns named addresses and then others, all or none. The reason why is as from AssignIP or AutoAssign. The answer includes
// addresses that the handle already holds.
func (m *IPSet) AssignBoth(named []netip.Addr, w IPSetWant) (out []netip.Addr, why string) {
	before := m.clone()
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
	if b == nil {
		return "free"
	}
	h, ok := b.Holds[a]
	switch {
	case !ok:
		return "free"
	case h.Cooling:
		return "cooling"
	case h.find(handle) < 0:
		return "other"
	}
	return ""
}

// Decline releases an address of a handle and blocks it for a time. It returns the obstacle, like Held, or "shared" if others hold it
// too.
func (m *IPSet) Decline(a netip.Addr, handle string, d time.Duration) string {
	b, why := m.containing(a), m.Held(a, handle)
	if why == "cooling" && handle != "" && b.Holds[a].Declined && b.Holds[a].By == handle {
		return ""
	}
	if why == "" && handle != "" && len(b.Holds[a].Holders()) > 1 {
		return "shared"
	}
	if why == "" {
		b.Decline(a, b.Holds[a].find(handle), m.Now, d)
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
	b, why := m.containing(a), m.Held(a, handle)
	if why != "" {
		return time.Time{}, why
	}
	i := b.Holds[a].find(handle)
	if b.Holds[a].until(i).IsZero() {
		return time.Time{}, ""
	}
	if within != "" {
		why = m.Refuses(a, within)
	}
	if why == "" {
		b.extend(a, i, m.Now.Add(ttl))
	}
	return b.Holds[a].until(i), why
}

// MayMove says what keeps the holding of a handle from moving to another host: "", or "strict".
func (m *IPSet) MayMove(a netip.Addr, handle, host string) string {
	b := m.containing(a)
	if h := b.Holds[a]; h.Holders()[h.find(handle)].Host != host && m.Strict && b.Owner != host && b.Owner != "" {
		return "strict"
	}
	return ""
}

// moveTo makes a host that of the holding of a handle, which then comes after all others of the address.
func (m *IPSet) moveTo(a netip.Addr, handle, host string) {
	b := m.containing(a)
	h := b.Holds[a]
	all, i := h.Holders(), h.find(handle)
	moved := all[i]
	if moved.Host == host {
		return
	}
	moved.Host = host
	all = append(slices.Delete(all, i, i+1), moved)
	first := all[0]
	first.Most, first.Key, first.More = h.Most, h.Key, all[1:]
	b.Holds[a] = first
}

// Holds returns the addresses of a handle, in address order.
func (m *IPSet) Holds(handle string) (all []netip.Addr) {
	for _, b := range m.Sorted() {
		all = append(all, b.HeldBy(handle)...)
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
		b := m.containing(a)
		i := b.Holds[a].find(handle)
		if until := b.Holds[a].until(i); !until.IsZero() && until.Before(m.Now.Add(ttl)) {
			b.extend(a, i, m.Now.Add(ttl))
		}
	}
	return ""
}

// Renew moves the end of the leases of a handle and returns their number, and the obstacles to each, within the rules of now for a host if
// one is given.
func (m *IPSet) Renew(handle string, ttl time.Duration, within string) (n int, why []string) {
	var leases []netip.Addr
	for _, a := range m.Holds(handle) {
		h := m.containing(a).Holds[a]
		if h.until(h.find(handle)).IsZero() {
			continue
		}
		if leases = append(leases, a); within != "" && m.Refuses(a, within) != "" {
			why = append(why, m.Refuses(a, within))
		}
	}
	if len(why) > 0 {
		return 0, why
	}
	for _, a := range leases {
		b := m.containing(a)
		b.extend(a, b.Holds[a].find(handle), m.Now.Add(ttl))
	}
	return len(leases), nil
}
