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
	Most     int // blocks of one owner, 0 is no limit
	Priority int
	Order    int // 0 by release, 1 lowest, 2 random
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
	// Choose chooses n of the addresses that a pool of random order may assign.
	Choose func(free []netip.Addr, n int) []netip.Addr
	// Start is where the walks of an owner through a pool begin.
	Start func(owner string, p IPSetPool) netip.Prefix
	// Last has the last addresses of sticky handles, by handle and family.
	Last map[IPSetLast][]netip.Addr
}

// IPSetLast identifies the last addresses of a sticky handle in one family.
type IPSetLast struct {
	Handle string
	V6     bool
}

// IPSetWant is a request to [IPSet.AutoAssign].
type IPSetWant struct {
	Owner      string
	N          [2]int   // IPv4 and IPv6 addresses
	Pools      []string // the only ones, by name; none for all
	Hold       IPSetHold
	Sticky     bool
	All        bool       // or nothing
	Head, Tail int        // reserved ends of new blocks
	Most       int        // blocks of the owner, 0 is no narrower limit
	Row        bool       // neighbours of one block, all or none
	Aligned    bool       // neighbours that make up a prefix
	From       netip.Addr // the lowest addresses of its family that are not below it
}

// onward reports whether addresses of a family are searched from an address on.
func (w IPSetWant) onward(v6 bool) bool { return w.From.IsValid() && w.From.Is6() == v6 }

// Sorted returns the blocks in address order.
func (m *IPSet) Sorted() []*IPSetBlock {
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

// Advance ends the expired leases and cooldowns of every block, and removes the blocks that then become empty and have no owner. The real
// engine does so before it looks at a block, with the same result.
func (m *IPSet) Advance() {
	for _, b := range m.Blocks {
		b.Advance(m.Now, m.cooldown(b))
		m.gone(b)
	}
}

func (m *IPSet) cooldown(b *IPSetBlock) time.Duration {
	p, _ := m.pool(b.Prefix.Addr())
	return p.Cooldown
}

func (m *IPSet) reserved(a netip.Addr) bool { return holds(m.Reserved, a) }

// idle reports whether a block has been empty for long enough to be given to another owner.
func (m *IPSet) idle(b *IPSetBlock) bool {
	return len(b.Holds) == 0 && m.Now.Sub(b.Since) >= time.Minute
}

// unusable reports whether nothing would be left of a new block.
func (m *IPSet) unusable(p netip.Prefix, w IPSetWant) bool {
	b := NewIPSetBlock(p, w.Head, w.Tail, m.Now)
	if w.Row || w.Aligned {
		return len(m.row(b, w.N[p.Addr().BitLen()/128], w.Aligned)) == 0
	}
	below := func(a netip.Addr) bool { return w.onward(a.Is6()) && a.Less(w.From) }
	return len(b.Peek(1, func(a netip.Addr) bool { return m.reserved(a) || below(a) })) == 0
}

// mayClaim reports whether an owner may have one more block of a pool.
func (m *IPSet) mayClaim(owner string, p IPSetPool, most int) bool {
	all, there := 0, 0
	for _, b := range m.Blocks {
		if b.Owner == owner {
			all++
			if m.serves(p, b.Prefix.Addr()) {
				there++
			}
		}
	}
	return all < m.Limit && (most == 0 || all < most) && (p.Most == 0 || there < p.Most)
}

// places returns the blocks that a pool could have in address order.
func (m *IPSet) places(p IPSetPool) (all []netip.Prefix) {
	for i := range uint64(1) << (p.Bits - p.Prefix.Bits()) {
		if q := child(p.Prefix, p.Bits, i); m.serves(p, q.Addr()) {
			all = append(all, q)
		}
	}
	return all
}

// walk returns the blocks that a pool could have, from the owner's place on and around.
func (m *IPSet) walk(owner string, p IPSetPool) []netip.Prefix {
	all := m.places(p)
	first, _ := slices.BinarySearchFunc(all, m.Start(owner, p), comparePrefixes)
	return slices.Concat(all[first:], all[:first])
}

// met returns the blocks that begin in a pool and not in one in it, from the owner's place on and around.
func (m *IPSet) met(owner string, p IPSetPool) []*IPSetBlock {
	all := slices.DeleteFunc(m.Sorted(), func(b *IPSetBlock) bool {
		served := slices.ContainsFunc(addresses(b.Prefix), func(a netip.Addr) bool { return m.serves(p, a) })
		return !served || !p.Prefix.Contains(b.Prefix.Addr())
	})
	first, _ := slices.BinarySearchFunc(all, m.Start(owner, p), func(b *IPSetBlock, q netip.Prefix) int { return comparePrefixes(b.Prefix, q) })
	return slices.Concat(all[first:], all[:first])
}

// whole reports whether a pool serves all addresses of a block.
func (m *IPSet) whole(p IPSetPool, block netip.Prefix) bool {
	return !slices.ContainsFunc(addresses(block), func(a netip.Addr) bool { return !m.serves(p, a) })
}

// overlapping returns the blocks that share an address with p.
func (m *IPSet) overlapping(p netip.Prefix) []*IPSetBlock {
	return slices.DeleteFunc(m.Sorted(), func(b *IPSetBlock) bool { return !b.Prefix.Overlaps(p) })
}

// mayMake reports whether a block can be made where there are at most empty ones of another size, the owner's or left by others.
func (m *IPSet) mayMake(block netip.Prefix, owner string) bool {
	bs := m.overlapping(block)
	return len(bs) <= 64 && !slices.ContainsFunc(bs, func(b *IPSetBlock) bool {
		return b.Prefix == block || len(b.Holds) > 0 || b.Owner != owner && !m.idle(b)
	})
}

// put puts a block in place of all that it overlaps.
func (m *IPSet) put(b *IPSetBlock) {
	for _, old := range m.overlapping(b.Prefix) {
		delete(m.Blocks, old.Prefix)
	}
	m.Blocks[b.Prefix] = b
}

// claim makes a block of an owner in place of all that it overlaps.
func (m *IPSet) claim(q netip.Prefix, w IPSetWant) *IPSetBlock {
	b := NewIPSetBlock(q, w.Head, w.Tail, m.Now)
	b.Owner = w.Owner
	m.put(b)
	return b
}

// copied returns copies of the blocks.
func (m *IPSet) copied() map[netip.Prefix]*IPSetBlock {
	blocks := make(map[netip.Prefix]*IPSetBlock)
	for p, b := range m.Blocks {
		blocks[p] = b.clone()
	}
	return blocks
}

// AutoAssign gives addresses, as ipset.Engine.AutoAssign does. why is "no pool" or "short" if it gives none for that.
func (m *IPSet) AutoAssign(w IPSetWant) (out []netip.Addr, why string) {
	var pools [2][]IPSetPool
	for f := range pools {
		for _, p := range m.Pools {
			small := p.Prefix.Addr().BitLen()-p.Bits < 10 && w.Head+w.Tail >= 1<<(p.Prefix.Addr().BitLen()-p.Bits)
			if !p.Disabled && p.Prefix.Addr().Is6() == (f == 1) && !small && w.names(p) {
				pools[f] = append(pools[f], p)
			}
		}
		if w.N[f] > 0 && len(pools[f]) == 0 {
			return nil, "no pool"
		}
	}
	before := m.copied()
	for f := range pools {
		as := ipsetAssignment{IPSet: m, IPSetWant: w, n: w.N[f]}
		as.assign(f == 1, pools[f])
		out = append(out, as.out...)
	}
	if w.All && len(out) < w.N[0]+w.N[1] {
		m.Blocks = before
		return nil, "short"
	}
	if !w.Sticky {
		return out, ""
	}
	for f := range pools {
		var last []netip.Addr
		for _, a := range out {
			if a.Is6() == (f == 1) {
				last = append(last, a)
			}
		}
		if len(last) > 0 {
			m.Last[IPSetLast{w.Hold.Handle, f == 1}] = last
		}
	}
	return out, ""
}

// AssignIP assigns one address, like ipset.Engine.AssignIP. It returns the obstacle: "", "outside", "no pool", "taken", "cooling",
// "reserved", "strict", "limit", "overlap", "size", "key" or "full".
func (m *IPSet) AssignIP(a netip.Addr, w IPSetWant) string {
	p, ok := m.pool(a)
	if !ok {
		return "outside"
	}
	if p.Disabled && !m.Has(a, w.Hold.Handle) {
		return "no pool"
	}
	b := m.containing(a)
	switch {
	case m.Has(a, w.Hold.Handle):
		why := m.MayMove(a, w.Hold.Handle, w.Owner)
		if why == "" {
			m.moveTo(a, w.Hold.Handle, w.Owner)
		}
		return why
	case b == nil:
		block := netip.PrefixFrom(a, p.Bits).Masked()
		if !m.mayClaim(w.Owner, p, w.Most) {
			return "limit"
		}
		if w.Head+w.Tail >= 1<<(a.BitLen()-p.Bits) {
			return "size"
		}
		b = NewIPSetBlock(block, w.Head, w.Tail, m.Now)
		if why := b.CanTake(a, w.Hold.Handle); why != "" {
			return why
		}
		if !m.mayMake(block, w.Owner) {
			return "overlap"
		}
		b.Owner = w.Owner
	case b.Held(a) && w.Hold.Most > 0:
		why := b.CanJoin(a, w.Hold.Key)
		if why == "" {
			b.Join(a, w.Hold)
		}
		return why
	case m.Strict && b.Owner != w.Owner && b.Owner != "":
		return "strict"
	case m.Strict && b.Owner == "" && !m.mayClaim(w.Owner, p, w.Most):
		return "limit"
	}
	if why := b.CanTake(a, w.Hold.Handle); why != "" {
		return why
	}
	if m.Strict {
		b.Owner = w.Owner // adopted, if nobody has it
	}
	m.put(b)
	b.Take(a, w.Hold)
	return ""
}

// Has reports whether a handle holds an address.
func (m *IPSet) Has(a netip.Addr, handle string) bool {
	return handle != "" && m.Held(a, handle) == ""
}

// Claim gives a block of a pool's present size to an owner by hand. It returns the obstacle: "", "no pool", "disabled", "owner", "limit"
// or "overlap".
func (m *IPSet) Claim(block netip.Prefix, owner string) string {
	p, ok := m.pool(block.Addr())
	b := m.Blocks[block]
	switch {
	case !ok || p.Bits != block.Bits():
		return "no pool"
	case p.Disabled:
		return "disabled"
	case b != nil && b.Owner == owner:
		return ""
	case b != nil && b.Owner != "":
		return "owner"
	case !m.mayClaim(owner, p, 0):
		return "limit"
	case b == nil && !m.mayMake(block, owner):
		return "overlap"
	case b == nil:
		b = m.claim(block, IPSetWant{})
	}
	b.Owner = owner
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

// Leased reports whether any address is held for a time only.
func (m *IPSet) Leased() bool {
	return len(m.heldBy(func(h IPSetHold) bool { return !h.Until.IsZero() })) > 0
}

// Move has an address held for another host and reports whether it is held.
func (m *IPSet) Move(a netip.Addr, host string) bool {
	if m.Held(a, "") != "" {
		return false
	}
	m.hold(a, "").Host = host
	return true
}
