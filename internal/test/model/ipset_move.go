package model

import (
	"net/netip"
	"slices"
)

// RenameHost moves the blocks and holdings of a host to another name and returns the number of holdings, and false if the new name has
// any.
func (m *IPSet) RenameHost(from, to string, merge bool) (moved int, ok bool) {
	of := func(host string) func(IPSetHold) bool { return func(h IPSetHold) bool { return h.Host == host } }
	has := func(host string) bool {
		owns := slices.ContainsFunc(m.Sorted(), func(b *IPSetBlock) bool { return b.Owner == host })
		return owns || len(m.heldBy(of(host))) > 0
	}
	if has(from) && has(to) && !merge {
		return 0, false
	}
	for _, a := range m.heldBy(of(from)) {
		b := m.containing(a)
		for i := slices.IndexFunc(b.Holds[a], of(from)); i >= 0; i = slices.IndexFunc(b.Holds[a], of(from)) {
			m.moveTo(a, b.Holds[a][i].Handle, to)
			moved++
		}
	}
	for _, b := range m.Blocks {
		if b.Owner == from {
			b.Owner = to
		}
	}
	return moved, true
}

// Transfer gives an address of a handle, or all for the zero one, to another handle. It returns the addresses, and the obstacle, as
// [IPSet.Held] or [IPSet.AssignIP] do.
func (m *IPSet) Transfer(at netip.Addr, from, to string) (moved []netip.Addr, why string) {
	switch {
	case !at.IsValid():
		moved = m.Holds(from)
	case m.Held(at, from) == "":
		moved = []netip.Addr{at}
	case m.Held(at, from) == "other" && m.Held(at, to) == "":
		return []netip.Addr{at}, ""
	case m.Held(at, from) == "cooling" && m.containing(at).Holds[at][0].Handle == from:
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
		b, h := m.containing(a), *m.hold(a, from)
		h.Handle, h.First, h.Since = to, false, m.Now
		b.Change(a, find(b.Holds[a], from), h)
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
	h := b.Holds[a][0]
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
