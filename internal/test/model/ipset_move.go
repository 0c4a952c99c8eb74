package model

import (
	"net/netip"
	"slices"
)

// RenameHost moves the blocks and holdings of a host to another name and returns the number of holdings, and false if the new name has
// any.
func (m *IPSet) RenameHost(from, to string, merge bool) (moved int, ok bool) {
	had := [2]bool{}
	for i, name := range []string{from, to} {
		for _, b := range m.Blocks {
			had[i] = had[i] || b.Owner == name || len(m.heldFor(b, name)) > 0
		}
	}
	if had[0] && had[1] && !merge {
		return 0, false
	}
	for _, b := range m.Blocks {
		for _, a := range m.heldFor(b, from) {
			for range b.Holds[a].Holders() {
				h := b.Holds[a].Holders()
				i := slices.IndexFunc(h, func(o IPSetHold) bool { return o.Host == from })
				if i < 0 {
					break
				}
				m.moveTo(a, h[i].Handle, to)
				moved++
			}
		}
		if b.Owner == from {
			b.Owner = to
		}
	}
	return moved, true
}

// heldFor returns the addresses of a block that are held for a host.
func (m *IPSet) heldFor(b *IPSetBlock, host string) (as []netip.Addr) {
	for a, h := range b.Holds {
		if !h.Cooling && slices.ContainsFunc(h.Holders(), func(o IPSetHold) bool { return o.Host == host }) {
			as = append(as, a)
		}
	}
	return as
}

// Transfer gives an address of a handle, or all for the zero one, to another handle. It returns the addresses, and the obstacle, as
// [IPSet.Held] or [IPSet.AssignIP] do.
func (m *IPSet) Transfer(at netip.Addr, from, to string) (moved []netip.Addr, why string) {
	switch {
	case !at.IsValid():
		for _, b := range m.Sorted() {
			moved = append(moved, b.HeldBy(from)...)
		}
	case m.Held(at, from) == "":
		moved = []netip.Addr{at}
	case m.Held(at, from) == "other" && m.Held(at, to) == "":
		return []netip.Addr{at}, ""
	case m.Held(at, from) == "cooling" && m.containing(at).Holds[at].Handle == from:
		why = m.takeAgain(at, to)
	default:
		why = m.Held(at, from)
	}
	for _, a := range moved {
		if m.Has(a, to) {
			return nil, "taken"
		}
	}
	for _, a := range moved {
		m.handOver(a, from, to)
	}
	if why == "" && len(moved) == 0 && at.IsValid() {
		moved = []netip.Addr{at}
	}
	for _, v6 := range []bool{false, true} {
		last := IPSetLast{from, v6}
		if why == "" && len(moved) > 0 {
			m.Last[last] = slices.DeleteFunc(slices.Clone(m.Last[last]), func(a netip.Addr) bool { return !at.IsValid() || a == at })
		}
	}
	return moved, why
}

// takeAgain gives an address that cools to a handle, for the host that had it.
func (m *IPSet) takeAgain(a netip.Addr, to string) string {
	p, ok := m.pool(a)
	b := m.containing(a)
	h := b.Holds[a]
	switch {
	case !ok:
		return "outside"
	case p.Disabled:
		return "no pool"
	case m.Strict && b.Owner != h.Host && b.Owner != "":
		return "strict"
	}
	b.Take(a, IPSetHold{Handle: to, Host: h.Host, Attr: h.Attr, Since: m.Now})
	return ""
}

// handOver replaces the handle of a holding, which then comes after all others of the address.
func (m *IPSet) handOver(a netip.Addr, from, to string) {
	b := m.containing(a)
	h := b.Holds[a]
	all, i := h.Holders(), h.find(from)
	moved := all[i]
	moved.Handle, moved.First, moved.Since = to, false, m.Now
	all = append(slices.Delete(all, i, i+1), moved)
	first := all[0]
	first.Most, first.Key, first.More = h.Most, h.Key, all[1:]
	b.Holds[a] = first
}
