package model

import (
	"net/netip"
	"sort"
)

// HostLocal is the twin of hostlocal.Engine. One map has the holders, and the next
// free address is found by stepping, like host-local's iterator. Its ranges are
// small.
type HostLocal struct {
	Sets    [][]HostLocalRange
	Held    map[netip.Addr]HostLocalKey
	Cursors map[int]netip.Addr
	Boot    map[HostLocalKey]int // when a key last added something
	Now     int                  // the boot
	Leases  bool
}

// HostLocalKey is a container and an interface.
type HostLocalKey [2]string

// HostLocalRange is a range of [HostLocal].
type HostLocalRange struct {
	First, Last, Gateway netip.Addr
	Exclude              []netip.Prefix
}

// reserved reports whether a range does not give a.
func (r HostLocalRange) reserved(a netip.Addr) bool {
	excluded := a == r.Gateway
	for _, p := range r.Exclude {
		excluded = excluded || p.Contains(a)
	}
	return excluded
}

// NewHostLocal returns a twin that holds nothing.
func NewHostLocal() *HostLocal {
	return &HostLocal{
		Held: map[netip.Addr]HostLocalKey{}, Cursors: map[int]netip.Addr{}, Boot: map[HostLocalKey]int{},
	}
}

// contains reports whether a is in a range; stepping from the first to the last.
func (r HostLocalRange) contains(a netip.Addr) bool {
	for x := r.First; ; x = x.Next() {
		if x == a {
			return true
		}
		if x == r.Last {
			return false
		}
	}
}

// rangeOf returns the number of the range of a set that a is in, or -1.
func (m *HostLocal) rangeOf(set int, a netip.Addr) int {
	for i, r := range m.Sets[set] {
		if r.contains(a) {
			return i
		}
	}
	return -1
}

// Reboot is the start of the node.
func (m *HostLocal) Reboot() {
	m.Now++
	m.expire()
}

// expire forgets what was added before the last reboot, if there are leases.
func (m *HostLocal) expire() {
	for a, k := range m.Held {
		if m.Leases && m.Boot[k] < m.Now {
			delete(m.Held, a)
		}
	}
}

// Of returns the addresses for a key: its own, or else the addresses of its
// container without interface. It also returns both, by text.
func (m *HostLocal) Of(k HostLocalKey) (own, all []netip.Addr) {
	var old []netip.Addr
	for a, h := range m.Held {
		switch h {
		case k:
			own = append(own, a)
			all = append(all, a)
		case HostLocalKey{k[0], ""}:
			old = append(old, a)
			all = append(all, a)
		}
	}
	if own == nil {
		own = old
	}
	for _, l := range [][]netip.Addr{own, all} {
		sort.Slice(l, func(i, j int) bool { return l[i].String() < l[j].String() })
	}
	return own, all
}

// next steps from the cursor of a set to the first free address, at most once around.
func (m *HostLocal) next(set int) (a netip.Addr, ok bool) {
	ranges := m.Sets[set]
	i, at := 0, ranges[0].First
	if c, ok := m.Cursors[set]; ok && m.rangeOf(set, c) >= 0 {
		i, at = m.step(set, m.rangeOf(set, c), c)
	}
	for start, first := at, true; first || at != start; i, at = m.step(set, i, at) {
		first = false
		if _, taken := m.Held[at]; !taken && !ranges[i].reserved(at) {
			return at, true
		}
	}
	return netip.Addr{}, false
}

// step goes to the address after one of range i.
func (m *HostLocal) step(set, i int, a netip.Addr) (int, netip.Addr) {
	if a == m.Sets[set][i].Last {
		i = (i + 1) % len(m.Sets[set])
		return i, m.Sets[set][i].First
	}
	return i, a.Next()
}

// Add returns the assigned addresses, or the set that failed and the reason:
// "exists", "full", "occupied", "reserved", or "unused" for requests that no set
// took.
func (m *HostLocal) Add(k HostLocalKey, requested []netip.Addr) (got []netip.Addr, set int, why string) {
	m.expire()
	_, held := m.Of(k)
	moved := map[int]netip.Addr{}
	asked := append([]netip.Addr(nil), requested...)
	for set := range m.Sets {
		for _, a := range held {
			if m.rangeOf(set, a) >= 0 {
				return nil, set, "exists"
			}
		}
		var a netip.Addr
		for _, q := range asked {
			if m.rangeOf(set, q) >= 0 {
				a = q
				break
			}
		}
		if !a.IsValid() {
			var ok bool
			if a, ok = m.next(set); !ok {
				return nil, set, "full"
			}
			moved[set] = a
			got = append(got, a)
			continue
		}
		var rest []netip.Addr
		for _, q := range asked {
			if q != a {
				rest = append(rest, q)
			}
		}
		asked = rest
		if m.Sets[set][m.rangeOf(set, a)].reserved(a) {
			return nil, set, "reserved"
		}
		if _, taken := m.Held[a]; taken {
			return nil, set, "occupied"
		}
		got = append(got, a)
	}
	if len(asked) > 0 {
		return nil, -1, "unused"
	}
	for set, a := range moved {
		m.Cursors[set] = a
	}
	for _, a := range got {
		m.Held[a] = k
	}
	m.Boot[k] = m.Now
	return got, -1, ""
}

// Del releases the addresses of a key, or else the addresses of its container
// without interface.
func (m *HostLocal) Del(k HostLocalKey) []netip.Addr {
	m.expire()
	own, _ := m.Of(k)
	for _, a := range own {
		delete(m.Held, a)
	}
	return own
}

// Verify returns "", "not found" or "mismatch".
func (m *HostLocal) Verify(k HostLocalKey, listed []netip.Addr) string {
	m.expire()
	_, all := m.Of(k)
	if len(all) == 0 {
		return "not found"
	}
	found := len(listed) == 0
	for _, a := range listed {
		mine := false
		for _, b := range all {
			mine = mine || a == b
		}
		found = found || mine
		for set := range m.Sets {
			if !mine && m.rangeOf(set, a) >= 0 {
				return "mismatch"
			}
		}
	}
	if !found {
		return "mismatch"
	}
	return ""
}

// Full returns the first set without a free address, or -1.
func (m *HostLocal) Full() int {
	m.expire()
	for set, ranges := range m.Sets {
		free := false
		for _, r := range ranges {
			for a := r.First; ; a = a.Next() {
				_, taken := m.Held[a]
				free = free || !taken && !r.reserved(a)
				if a == r.Last {
					break
				}
			}
		}
		if !free {
			return set
		}
	}
	return -1
}

// GC releases the addresses of all other keys than the valid ones and returns
// their number.
func (m *HostLocal) GC(valid []HostLocalKey) (freed int) {
	m.expire()
	for a, h := range m.Held {
		keep := false
		for _, k := range valid {
			keep = keep || h == k || h == HostLocalKey{k[0], ""}
		}
		if !keep {
			delete(m.Held, a)
			freed++
		}
	}
	return freed
}

// Import gives an address to a key; false if another one has it.
func (m *HostLocal) Import(k HostLocalKey, a netip.Addr) bool {
	m.expire()
	h, taken := m.Held[a]
	if taken && h != k {
		return false
	}
	if !taken {
		m.Boot[k] = m.Now
	}
	m.Held[a] = k
	return true
}
