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

// RenewIP moves the end of the lease of an address. It returns the obstacle, like Held.
func (m *IPSet) RenewIP(a netip.Addr, handle string, ttl time.Duration) (until time.Time, why string) {
	b, why := m.containing(a), m.Held(a, handle)
	if why != "" {
		return time.Time{}, why
	}
	i := b.Holds[a].find(handle)
	if !b.Holds[a].until(i).IsZero() {
		b.extend(a, i, m.Now.Add(ttl))
	}
	return b.Holds[a].until(i), ""
}

// mayMove says what keeps the holding of a handle from moving to another host: "", or "strict".
func (m *IPSet) mayMove(a netip.Addr, handle, host string) string {
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

// Offer moves the holdings of a handle to a host and the ends of its leases that would be before ttl. It reports whether the handle holds
// anything, and the obstacle to a move.
func (m *IPSet) Offer(handle, host string, ttl time.Duration) (held bool, why string) {
	for _, b := range m.Blocks {
		for _, a := range b.HeldBy(handle) {
			if held = true; m.mayMove(a, handle, host) != "" {
				why = "strict"
			}
		}
	}
	if why != "" {
		return held, why
	}
	for _, b := range m.Blocks {
		for _, a := range b.HeldBy(handle) {
			m.moveTo(a, handle, host)
			i := b.Holds[a].find(handle)
			if until := b.Holds[a].until(i); !until.IsZero() && until.Before(m.Now.Add(ttl)) {
				b.extend(a, i, m.Now.Add(ttl))
			}
		}
	}
	return held, ""
}
