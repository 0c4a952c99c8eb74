package model

import (
	"maps"
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

// names reports whether a pool is one of those that are asked for.
func (w IPSetWant) names(p IPSetPool) bool {
	return len(w.Pools) == 0 || slices.Contains(w.Pools, p.Name)
}

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
		b.Advance(m.Now, m.cooldown(b.Prefix.Addr()))
		m.gone(b)
	}
}

func (m *IPSet) cooldown(a netip.Addr) time.Duration {
	p, _ := m.pool(a)
	return p.Cooldown
}

func (m *IPSet) reserved(a netip.Addr) bool {
	return slices.ContainsFunc(m.Reserved, func(p netip.Prefix) bool { return p.Contains(a) })
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
	all = slices.Concat(all[i:], all[:i])
	return slices.DeleteFunc(all, func(b netip.Prefix) bool { return !m.serves(p, b.Addr()) })
}

// met returns the blocks that begin in a pool and not in one in it, from the owner's place on and around.
func (m *IPSet) met(owner string, p IPSetPool) (all []*IPSetBlock) {
	start, first := m.Start(owner, p), 0
	for _, b := range m.Sorted() {
		served := false
		for a := b.Prefix.Addr(); b.Prefix.Contains(a); a = a.Next() {
			served = served || m.serves(p, a)
		}
		if !served || !p.Prefix.Contains(b.Prefix.Addr()) {
			continue
		}
		if c := b.Prefix.Addr().Compare(start.Addr()); c < 0 || c == 0 && b.Prefix.Bits() < start.Bits() {
			first++
		}
		all = append(all, b)
	}
	return slices.Concat(all[first:], all[:first])
}

// whole reports whether a pool serves all addresses of a block.
func (m *IPSet) whole(p IPSetPool, block netip.Prefix) bool {
	whole := true
	for a := block.Addr(); whole && block.Contains(a); a = a.Next() {
		whole = m.serves(p, a)
	}
	return whole
}

// mayMake reports whether a block can be made where there are at most empty ones of another size, the owner's or left by others.
func (m *IPSet) mayMake(block netip.Prefix, owner string) bool {
	n := 0
	for q, b := range m.Blocks {
		if !q.Overlaps(block) {
			continue
		}
		if n++; q == block || len(b.Holds) > 0 || b.Owner != owner && m.Now.Sub(b.Since) < time.Minute {
			return false
		}
	}
	return n <= 64
}

// put puts a block in place of all that it overlaps.
func (m *IPSet) put(b *IPSetBlock) {
	for q := range m.Blocks {
		if q.Overlaps(b.Prefix) {
			delete(m.Blocks, q)
		}
	}
	m.Blocks[b.Prefix] = b
}

// renew makes a block of a pool's size in place of one of another size, and more in what a larger one leaves; it reports whether it made any.
func (m *IPSet) renew(w IPSetWant, p IPSetPool, old *IPSetBlock, wanting func() bool, take func(*IPSetBlock)) (made bool) {
	if old.Prefix.Bits() == p.Bits {
		return false
	}
	for _, q := range m.placesOf(w, p) {
		if !wanting() || !q.Overlaps(old.Prefix) || m.unusable(q, w) || w.onward(q.Addr().Is6()) && !q.Contains(w.From) && q.Addr().Less(w.From) {
			continue
		}
		if !made && !m.mayMake(q, w.Owner) {
			return false
		}
		if made && (m.overlaps(q) || !m.mayClaim(w.Owner, p, w.Most)) {
			continue
		}
		b := NewIPSetBlock(q, w.Head, w.Tail, m.Now)
		b.Owner, made = w.Owner, true
		m.put(b)
		take(b)
	}
	return made
}

// placesOf returns the blocks that a pool could have in address order.
func (m *IPSet) placesOf(w IPSetWant, p IPSetPool) []netip.Prefix {
	all := m.walk(w.Owner, p)
	slices.SortFunc(all, func(p, q netip.Prefix) int { return p.Addr().Compare(q.Addr()) })
	return all
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

// clone returns a twin with blocks of its own.
func (m *IPSet) clone() map[netip.Prefix]*IPSetBlock {
	blocks := make(map[netip.Prefix]*IPSetBlock)
	for p, b := range m.Blocks {
		c := *b
		c.Free, c.Cool, c.Holds = slices.Clone(b.Free), slices.Clone(b.Cool), maps.Clone(b.Holds)
		blocks[p] = &c
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
	before := m.clone()
	for f := range pools {
		out = append(out, m.autoAssign(w, w.N[f], f == 1, pools[f])...)
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

// autoAssign gives n addresses of one family.
func (m *IPSet) autoAssign(w IPSetWant, n int, v6 bool, pools []IPSetPool) (out []netip.Addr) {
	owner := w.Owner
	pick := func(b *IPSetBlock) []netip.Addr {
		if w.Row || w.Aligned {
			return m.row(b, n-len(out), w.Aligned)
		}
		return m.peek(b, n-len(out))
	}
	take := func(b *IPSetBlock) {
		for _, a := range pick(b) {
			b.Take(a, w.Hold)
			out = append(out, a)
		}
	}
	var tier []IPSetPool
	poolOf := func(b *IPSetBlock) bool { // one of the tier serves all of it
		return slices.ContainsFunc(tier, func(p IPSetPool) bool { return m.whole(p, b.Prefix) })
	}
	tier = pools
	if w.Sticky {
		for _, a := range m.Last[IPSetLast{w.Hold.Handle, v6}] {
			b := m.containing(a)
			if b != nil && poolOf(b) && len(out) < n && (!m.Strict || b.Owner == owner) && !m.reserved(a) && b.CanTake(a, w.Hold.Handle) == "" {
				b.Take(a, w.Hold)
				out = append(out, a)
			}
		}
	}
	for len(pools) > 0 {
		same := 1
		for same < len(pools) && pools[same].Priority == pools[0].Priority {
			same++
		}
		tier, pools = pools[:same], pools[same:]
		if w.onward(v6) {
			out = append(out, m.assignOnward(w, n-len(out), tier)...)
			continue
		}
		for _, b := range m.Sorted() {
			if b.Owner != owner || !poolOf(b) || m.Blocks[b.Prefix] != b || len(out) == n {
				continue
			}
			if p, _ := m.pool(b.Prefix.Addr()); b.Prefix.Bits() <= p.Bits || !m.renew(w, p, b, func() bool { return len(out) < n }, take) {
				take(b)
			}
		}
		m.assignFrom(w, n, tier, &out, take)
	}
	return out
}

// assignFrom gives addresses of blocks that are not the owner's yet, from pools of one priority.
func (m *IPSet) assignFrom(w IPSetWant, n int, pools []IPSetPool, got *[]netip.Addr, take func(*IPSetBlock)) {
	owner, wanting := w.Owner, func() bool { return len(*got) < n }
	for _, p := range pools {
		for _, q := range m.walk(owner, p) {
			if wanting() && m.mayClaim(owner, p, w.Most) && !m.overlaps(q) && !m.unusable(q, w) {
				m.Blocks[q] = NewIPSetBlock(q, w.Head, w.Tail, m.Now)
				m.Blocks[q].Owner = owner
				take(m.Blocks[q])
			}
		}
	}
	for _, p := range pools {
		for _, b := range m.Sorted() {
			if wanting() && b.Prefix.Bits() < p.Prefix.Bits() && b.Prefix.Overlaps(p.Prefix) && (b.Owner == owner || m.mayClaim(owner, p, w.Most)) {
				m.renew(w, p, b, wanting, take)
			}
		}
		for _, b := range m.met(owner, p) {
			q := b.Prefix
			if m.Blocks[q] != b || !wanting() || !m.mayClaim(owner, p, w.Most) || b.Owner == "" || len(b.Holds) > 0 || m.Now.Sub(b.Since) < time.Minute {
				continue
			}
			if b.Owner != owner || b.Prefix.Bits() > p.Bits || !m.whole(p, q) {
				if m.renew(w, p, b, wanting, take) {
					continue
				}
			}
			if b.Owner != owner && m.whole(p, q) && !m.unusable(q, w) {
				m.Blocks[q] = NewIPSetBlock(q, w.Head, w.Tail, m.Now)
				m.Blocks[q].Owner = owner
				take(m.Blocks[q])
			}
		}
	}
	if w.Row || w.Aligned {
		return // never borrowed
	}
	room := func(b *IPSetBlock) bool { return wanting() && len(b.Peek(1, m.reserved)) > 0 }
	for _, p := range pools {
		for _, b := range m.met(owner, p) {
			if m.whole(p, b.Prefix) && room(b) && b.Owner == "" && m.mayClaim(owner, p, w.Most) {
				b.Owner = owner
				take(b)
			}
		}
	}
	if m.Strict {
		return
	}
	for _, p := range pools {
		for _, b := range m.met(owner, p) {
			if m.whole(p, b.Prefix) && room(b) && b.Owner != owner {
				take(b)
			}
		}
	}
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
	case b.holds(a) && w.Hold.Most > 0:
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
	b := m.containing(a)
	if b == nil || handle == "" {
		return false
	}
	h, ok := b.Holds[a]
	return ok && !h.Cooling && h.find(handle) >= 0
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
		b = NewIPSetBlock(block, 0, 0, m.Now)
		m.put(b)
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
	for _, b := range m.Blocks {
		for _, h := range b.Holds {
			if !h.Cooling && slices.ContainsFunc(h.Holders(), func(o IPSetHold) bool { return !o.Until.IsZero() }) {
				return true
			}
		}
	}
	return false
}

// Move has an address held for another host and reports whether it is held.
func (m *IPSet) Move(a netip.Addr, host string) bool {
	b := m.containing(a)
	if b == nil {
		return false
	}
	h, ok := b.Holds[a]
	if ok = ok && !h.Cooling; ok {
		h.Host = host
		b.Holds[a] = h
	}
	return ok
}
