package model

import (
	"net/netip"
	"slices"
)

// NodeIPAM is the twin of nodeipam.Allocator, with lists of holdings and reservations.
// To find out whether a child is free, it looks at every prefix. Its pools are small.
type NodeIPAM struct {
	Slots    []NodeSlot
	Reserved []netip.Prefix
	Held     map[string][]netip.Prefix
	Leaving  map[string]bool // owners that are terminating
	UIDs     map[string]string
}

// NodeSlot is a slot of [NodeIPAM].
type NodeSlot struct {
	Bits  int
	V4    bool
	Pools []*NodePool
}

// NodePool is a pool of [NodeIPAM].
type NodePool struct {
	Prefix   netip.Prefix
	Cursor   uint64
	Draining bool
}

// children returns the number of children of a pool of the slot.
func (s *NodeSlot) children(p *NodePool) uint64 { return 1 << (s.Bits - p.Prefix.Bits()) }

// Free reports whether nothing held or reserved overlaps p.
func (m *NodeIPAM) Free(p netip.Prefix) bool {
	return !overlapsAny(m.Reserved, p) && len(m.Rivals(p, "")) == 0
}

// Rivals returns the other owners with a prefix that overlaps p, by name.
func (m *NodeIPAM) Rivals(p netip.Prefix, but string) (names []string) {
	for name, ps := range m.Held {
		if name != but && overlapsAny(ps, p) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// next returns the free child that a slot would give now.
func (m *NodeIPAM) next(s *NodeSlot) (pool *NodePool, i uint64, ok bool) {
	for _, p := range s.Pools {
		n := s.children(p)
		for k := uint64(0); k < n && !p.Draining; k++ {
			if i := (p.Cursor + k) % n; m.Free(child(p.Prefix, s.Bits, i)) {
				return p, i, true
			}
		}
	}
	return nil, 0, false
}

// meet releases what another node of that name, with another UID, holds.
func (m *NodeIPAM) meet(name, uid string) {
	if m.Held[name] != nil && uid != "" && m.UIDs[name] != "" && m.UIDs[name] != uid {
		m.Release(name)
	}
}

// know notes the UID of an owner that holds something.
func (m *NodeIPAM) know(name, uid string) {
	if m.Held[name] != nil && uid != "" {
		m.UIDs[name] = uid
	}
}

// Allocate returns the prefixes of the owner or assigns it a child of each slot. If it
// cannot, ok is false and slot is the first slot without a child.
func (m *NodeIPAM) Allocate(name, uid string) (ps []netip.Prefix, slot int, ok bool) {
	m.meet(name, uid)
	defer m.know(name, uid)
	if ps, ok := m.Held[name]; ok {
		return ps, 0, true
	}
	for i := range m.Slots {
		if _, _, ok := m.next(&m.Slots[i]); !ok {
			return nil, i, false
		}
	}
	for i := range m.Slots {
		s := &m.Slots[i]
		p, o, _ := m.next(s)
		p.Cursor = (o + 1) % s.children(p)
		ps = append(ps, child(p.Prefix, s.Bits, o))
	}
	m.Held[name] = ps
	return ps, 0, true
}

// Observe records the prefixes of a node, which are masked. For an invalid prefix the
// node keeps its former prefix at that place, or all former prefixes if the record has
// another number of prefixes.
func (m *NodeIPAM) Observe(name, uid string, ps []netip.Prefix, leaving bool) {
	m.meet(name, uid)
	defer m.know(name, uid)
	var set, all []netip.Prefix
	held := m.Held[name]
	for i, p := range ps {
		switch {
		case p.IsValid():
			all = append(all, p)
		case len(held) == len(ps):
			all = append(all, held[i])
		}
	}
	if len(held) != len(ps) && slices.Contains(ps, netip.Prefix{}) {
		all = append(all, held...)
	}
	for _, p := range all {
		if !slices.Contains(set, p) {
			set = append(set, p)
		}
	}
	if len(set) > 0 {
		m.Held[name] = set
	}
	if m.Held[name] != nil {
		m.Leaving[name] = leaving
	}
}

// Release forgets the owner.
func (m *NodeIPAM) Release(name string) bool {
	_, ok := m.Held[name]
	delete(m.Held, name)
	delete(m.Leaving, name)
	delete(m.UIDs, name)
	return ok
}

// Occupy gives the owner the prefixes, unless some of them are not right.
func (m *NodeIPAM) Occupy(name, uid string, ps []netip.Prefix) bool {
	for i, p := range ps {
		if !p.IsValid() || slices.Contains(ps[:i], p) {
			return false
		}
	}
	if len(ps) == 0 {
		return false
	}
	m.meet(name, uid)
	if had := m.Held[name]; had != nil {
		return slices.Equal(had, ps)
	}
	for i, p := range ps {
		if len(m.Judge(name, i, p)) > 0 {
			return false
		}
	}
	m.Held[name] = ps
	m.know(name, uid)
	return true
}

// Judge returns the first fault of prefix i of an owner. The order is "slot",
// "family", "range" or "size", then "reserved", then the name of a rival.
func (m *NodeIPAM) Judge(name string, i int, p netip.Prefix) (words []string) {
	if w := m.fits(i, p); w != "" {
		words = append(words, w)
	}
	if overlapsAny(m.Reserved, p) {
		words = append(words, "reserved")
	}
	if len(m.Rivals(p, name)) > 0 {
		words = append(words, "rival")
	}
	return words
}

// Missing returns "missing" for each slot whose family has too few of these prefixes.
// A node without a valid prefix lacks none.
func (m *NodeIPAM) Missing(prefixes []netip.Prefix) (words []string) {
	have, none := map[bool]int{}, true
	for _, p := range prefixes {
		if p.IsValid() {
			have[p.Addr().Is4()]++
			none = false
		}
	}
	for i := range m.Slots {
		have[m.Slots[i].V4]--
		if !none && have[m.Slots[i].V4] < 0 {
			words = append(words, "missing")
		}
	}
	return words
}

func (m *NodeIPAM) fits(i int, p netip.Prefix) string {
	if i >= len(m.Slots) {
		return "slot"
	}
	s := &m.Slots[i]
	if s.V4 != p.Addr().Is4() {
		return "family"
	}
	for _, pool := range s.Pools {
		if pool.Prefix.Bits() <= p.Bits() && pool.Prefix.Contains(p.Addr()) {
			if p.Bits() != s.Bits {
				return "size"
			}
			return ""
		}
	}
	return "range"
}

// Pool returns the pool that is p and its slot, nil if there is none.
func (m *NodeIPAM) Pool(p netip.Prefix) (*NodeSlot, *NodePool) {
	for i := range m.Slots {
		for _, pool := range m.Slots[i].Pools {
			if pool.Prefix == p {
				return &m.Slots[i], pool
			}
		}
	}
	return nil, nil
}

// Overlaps reports whether p overlaps a pool other than the given one.
func (m *NodeIPAM) Overlaps(p netip.Prefix, but *NodePool) bool {
	for i := range m.Slots {
		for _, pool := range m.Slots[i].Pools {
			if pool != but && pool.Prefix.Overlaps(p) {
				return true
			}
		}
	}
	return false
}

// Count returns the numbers of children of a pool that are reserved, used only by
// owners, and free.
func (m *NodeIPAM) Count(s *NodeSlot, p *NodePool) (reserved, used, free uint64) {
	for i := range s.children(p) {
		c := child(p.Prefix, s.Bits, i)
		switch {
		case overlapsAny(m.Reserved, c):
			reserved++
		case m.Free(c):
			free++
		default:
			used++
		}
	}
	return reserved, used, free
}

// Grow makes a pool larger; the cursor stays at its address.
func (m *NodeIPAM) Grow(s *NodeSlot, p *NodePool, to netip.Prefix) {
	at := child(p.Prefix, s.Bits, p.Cursor).Addr()
	p.Prefix, p.Cursor = to, 0
	for child(p.Prefix, s.Bits, p.Cursor).Addr() != at {
		p.Cursor++
	}
}
