package model

import (
	"net/netip"
	"slices"
	"time"
)

// IPSetPool is a pool of an [IPSet].
type IPSetPool struct {
	Name     string
	Prefix   netip.Prefix
	Bits     int
	Disabled bool
	Cooldown time.Duration
}

// IPSet is the twin of ipset.Engine: pools, blocks and reservations in slices and maps, every question answered by
// looking at all of them. The pools must be small.
type IPSet struct {
	Pools    []IPSetPool // in the order in which they are tried
	Blocks   map[netip.Prefix]*IPSetBlock
	Reserved []netip.Prefix
	Strict   bool
	Limit    int // of blocks per owner
	Now      time.Time
	// Start is where the walks of an owner through a pool begin.
	Start func(owner string, p IPSetPool) netip.Prefix
}

// sorted returns the blocks in address order.
func (m *IPSet) sorted() []*IPSetBlock {
	var bs []*IPSetBlock
	for _, b := range m.Blocks {
		bs = append(bs, b)
	}
	slices.SortFunc(bs, func(a, b *IPSetBlock) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	return bs
}

// Step moves the time.
func (m *IPSet) Step(d time.Duration) {
	m.Now = m.Now.Add(d)
	m.Advance()
}

// Advance ends in every block what is over. The real engine does so when it touches a block, with the same result.
func (m *IPSet) Advance() {
	for _, b := range m.Blocks {
		b.Advance(m.Now, m.cooldown(b.Prefix.Addr()))
	}
}

// Sweep removes the blocks without owner that are empty.
func (m *IPSet) Sweep() {
	for p, b := range m.Blocks {
		if b.Owner == "" && len(b.Holds) == 0 {
			delete(m.Blocks, p)
		}
	}
}

func (m *IPSet) pool(a netip.Addr) (IPSetPool, bool) {
	for _, p := range m.Pools {
		if p.Prefix.Contains(a) {
			return p, true
		}
	}
	return IPSetPool{}, false
}

func (m *IPSet) cooldown(a netip.Addr) time.Duration {
	p, _ := m.pool(a)
	return p.Cooldown
}

func (m *IPSet) reserved(a netip.Addr) bool {
	return slices.ContainsFunc(m.Reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}

// unusable reports whether all of a block is reserved.
func (m *IPSet) unusable(p netip.Prefix) bool {
	return len(NewIPSetBlock(p, 0, 0, m.Now).Peek(1, m.reserved)) == 0
}

// owned returns the number of blocks of an owner.
func (m *IPSet) owned(owner string) (n int) {
	for _, b := range m.Blocks {
		if b.Owner == owner {
			n++
		}
	}
	return n
}

// walk returns the blocks that a pool could have, from the owner's place on and around.
func (m *IPSet) walk(owner string, p IPSetPool) []netip.Prefix {
	var all []netip.Prefix
	for b := netip.PrefixFrom(p.Prefix.Addr(), p.Bits); p.Prefix.Contains(b.Addr()); {
		all = append(all, b)
		a := b.Addr()
		for b.Contains(a) {
			a = a.Next()
		}
		b = netip.PrefixFrom(a, p.Bits)
	}
	i := slices.Index(all, m.Start(owner, p))
	return slices.Concat(all[i:], all[:i])
}

// overlaps reports whether any block shares an address with p.
func (m *IPSet) overlaps(p netip.Prefix) bool {
	for q := range m.Blocks {
		if q.Overlaps(p) {
			return true
		}
	}
	return false
}

// claim makes a block for an owner, or adopts or takes over the one that is there.
func (m *IPSet) claim(p netip.Prefix, owner string) *IPSetBlock {
	b := m.Blocks[p]
	if b == nil || len(b.Holds) == 0 && b.Owner != "" {
		b = NewIPSetBlock(p, 0, 0, m.Now)
		m.Blocks[p] = b
	}
	b.Owner = owner
	return b
}

// AutoAssign gives n addresses of a family, as ipset.Engine.AutoAssign does. ok is false if no pool may serve.
func (m *IPSet) AutoAssign(owner string, v6 bool, n int, h IPSetHold) (out []netip.Addr, ok bool) {
	var pools []IPSetPool
	for _, p := range m.Pools {
		if !p.Disabled && p.Prefix.Addr().Is6() == v6 {
			pools = append(pools, p)
		}
	}
	take := func(b *IPSetBlock) {
		for _, a := range b.Peek(n-len(out), m.reserved) {
			b.Take(a, h)
			out = append(out, a)
		}
	}
	current := func(b *IPSetBlock) bool { // in one of the pools, of its present size
		return slices.ContainsFunc(pools, func(p IPSetPool) bool { return p.Prefix.Contains(b.Prefix.Addr()) && p.Bits == b.Prefix.Bits() })
	}
	for _, b := range m.sorted() {
		if b.Owner == owner && current(b) {
			take(b)
		}
	}
	for _, p := range pools {
		for _, b := range m.walk(owner, p) {
			if len(out) < n && m.owned(owner) < m.Limit && !m.overlaps(b) && !m.unusable(b) {
				take(m.claim(b, owner))
			}
		}
	}
	for _, p := range pools {
		for _, q := range m.walk(owner, p) {
			b := m.Blocks[q]
			if len(out) < n && m.owned(owner) < m.Limit && b != nil && b.Owner != "" && b.Owner != owner && len(b.Holds) == 0 &&
				m.Now.Sub(b.Since) >= time.Minute && !m.unusable(q) {
				take(m.claim(q, owner))
			}
		}
	}
	for _, p := range pools {
		for _, q := range m.walk(owner, p) {
			b := m.Blocks[q]
			switch {
			case b == nil || b.Owner == owner || len(out) == n || len(b.Peek(1, m.reserved)) == 0:
			case !m.Strict:
				take(b)
			case b.Owner == "" && m.owned(owner) < m.Limit:
				b.Owner = owner
				take(b)
			}
		}
	}
	return out, len(pools) > 0
}

// AssignIP gives one address, as ipset.Engine.AssignIP does; it says what stands in the way: "", "no pool", "taken",
// "cooling", "strict", "limit" or "overlap".
func (m *IPSet) AssignIP(a netip.Addr, owner string, h IPSetHold) string {
	p, ok := m.pool(a)
	if !ok || p.Disabled {
		return "no pool"
	}
	b := m.containing(a)
	if b == nil {
		block := netip.PrefixFrom(a, p.Bits).Masked()
		switch {
		case m.owned(owner) >= m.Limit:
			return "limit"
		case m.overlaps(block):
			return "overlap"
		}
		b = m.claim(block, owner)
	} else if m.Strict && b.Owner != owner {
		return "strict"
	}
	if why := b.CanTake(a, h.Handle); why != "" {
		return why
	}
	b.Take(a, h)
	return ""
}

func (m *IPSet) containing(a netip.Addr) *IPSetBlock {
	for p, b := range m.Blocks {
		if p.Contains(a) {
			return b
		}
	}
	return nil
}

// Release gives an address back and reports whether it was held.
func (m *IPSet) Release(a netip.Addr) bool {
	b := m.containing(a)
	if b == nil {
		return false
	}
	if h, ok := b.Holds[a]; !ok || h.Cooling {
		return false
	}
	b.Drop(a, m.Now, m.cooldown(a))
	m.gone(b)
	return true
}

// gone removes a block that nobody owns and that has nothing left.
func (m *IPSet) gone(b *IPSetBlock) {
	if b.Owner == "" && len(b.Holds) == 0 {
		delete(m.Blocks, b.Prefix)
	}
}

// ReleaseHandle gives back all addresses of a handle and returns them, block by block.
func (m *IPSet) ReleaseHandle(handle string) (out []netip.Addr) {
	for _, b := range m.sorted() {
		for _, a := range b.HeldBy(handle) {
			b.Drop(a, m.Now, m.cooldown(a))
			out = append(out, a)
		}
		m.gone(b)
	}
	return out
}

// ReleaseHost takes its blocks from an owner; empty ones go, and only those if mustBeEmpty.
func (m *IPSet) ReleaseHost(owner string, mustBeEmpty bool) {
	for _, b := range m.sorted() {
		if b.Owner == owner && (!mustBeEmpty || len(b.Holds) == 0) {
			b.Owner = ""
			m.gone(b)
		}
	}
}

// Renew moves the end of the leases of a handle and returns how many there are.
func (m *IPSet) Renew(handle string, ttl time.Duration) (n int) {
	for _, b := range m.Blocks {
		for _, a := range b.HeldBy(handle) {
			if h := b.Holds[a]; !h.Until.IsZero() {
				h.Until = m.Now.Add(ttl)
				b.Holds[a] = h
				n++
			}
		}
	}
	return n
}
