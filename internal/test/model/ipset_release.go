package model

import (
	"net/netip"
	"slices"
	"time"
)

// Releases of the twin of ipset: by address, by handle, by host, and of blocks.

// ReleaseOf takes one holder from an address and reports whether it was one, and whether the address was held at all.
func (m *IPSet) ReleaseOf(a netip.Addr, handle string) (was, held bool) {
	b := m.containing(a)
	if b == nil || !b.holds(a) {
		return false, false
	}
	i := b.Holds[a].find(handle)
	if i >= 0 {
		b.Leave(a, i, m.Now, m.cooldown(b.Prefix.Addr()))
		m.gone(b)
	}
	return i >= 0, true
}

// Release releases an address and reports whether it was held.
func (m *IPSet) Release(a netip.Addr) bool {
	b := m.containing(a)
	if b == nil {
		return false
	}
	if h, ok := b.Holds[a]; !ok || h.Cooling {
		return false
	}
	b.Drop(a, m.Now, m.cooldown(b.Prefix.Addr()))
	m.gone(b)
	return true
}

// gone removes a block that has nothing left if nobody owns it.
func (m *IPSet) gone(b *IPSetBlock) {
	if b.Owner == "" && len(b.Holds) == 0 {
		delete(m.Blocks, b.Prefix)
	}
}

// ReleaseHandle releases all addresses of a handle and returns them, block by block.
func (m *IPSet) ReleaseHandle(handle string) []netip.Addr {
	return m.releaseWhere(func(h IPSetHold) bool { return h.Handle == handle })
}

// ReleaseHandleOf releases the addresses of a handle that are held for a host and returns them, block by block.
func (m *IPSet) ReleaseHandleOf(handle, host string) []netip.Addr {
	return m.releaseWhere(func(h IPSetHold) bool { return h.Handle == handle && h.Host == host })
}

// ReleaseByHost releases all addresses held for a host and returns them, block by block.
func (m *IPSet) ReleaseByHost(host string) []netip.Addr {
	return m.releaseWhere(func(h IPSetHold) bool { return h.Host == host })
}

func (m *IPSet) releaseWhere(is func(IPSetHold) bool) (out []netip.Addr) {
	for _, b := range m.Sorted() {
		var as []netip.Addr
		for a, h := range b.Holds {
			if !h.Cooling && slices.ContainsFunc(h.Holders(), is) {
				as = append(as, a)
			}
		}
		slices.SortFunc(as, netip.Addr.Compare)
		for _, a := range as {
			for h := b.Holds[a]; b.holds(a); h = b.Holds[a] {
				i := slices.IndexFunc(h.Holders(), is)
				if i < 0 {
					break
				}
				b.Leave(a, i, m.Now, m.cooldown(b.Prefix.Addr()))
			}
		}
		if len(as) > 0 {
			m.gone(b)
		}
		out = append(out, as...)
	}
	return out
}

// GiveBack takes blocks that have been empty for a time from their owners, in address order, as long as an owner keeps
// more than keep blocks.
func (m *IPSet) GiveBack(idle time.Duration, keep int) {
	for _, b := range m.Sorted() {
		owned := 0
		for _, c := range m.Blocks {
			if c.Owner == b.Owner {
				owned++
			}
		}
		if b.Owner != "" && len(b.Holds) == 0 && m.Now.Sub(b.Since) >= idle && owned > keep {
			delete(m.Blocks, b.Prefix)
		}
	}
}

// ReleaseHost takes its blocks from an owner; empty ones go, and only those if mustBeEmpty.
func (m *IPSet) ReleaseHost(owner string, mustBeEmpty bool) {
	for _, b := range m.Sorted() {
		if b.Owner == owner && (!mustBeEmpty || len(b.Holds) == 0) {
			b.Owner = ""
			m.gone(b)
		}
	}
}
