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
	if b == nil || !b.Held(a) {
		return false, false
	}
	i := find(b.Holds[a], handle)
	if i >= 0 {
		m.leave(b, a, i)
	}
	return i >= 0, true
}

// leave takes a holder from an address.
func (m *IPSet) leave(b *IPSetBlock, a netip.Addr, i int) {
	b.Leave(a, i, m.Now, m.cooldown(b))
	m.gone(b)
}

// Release releases an address and reports whether it was held.
func (m *IPSet) Release(a netip.Addr) bool {
	b := m.containing(a)
	if b == nil || !b.Held(a) {
		return false
	}
	b.Drop(a, m.Now, m.cooldown(b))
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
	out = m.heldBy(is)
	for _, a := range out {
		b := m.containing(a)
		for b.Held(a) && slices.ContainsFunc(b.Holds[a], is) {
			m.leave(b, a, slices.IndexFunc(b.Holds[a], is))
		}
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
