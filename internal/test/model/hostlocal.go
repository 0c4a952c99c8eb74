package model

import (
	"net/netip"
	"slices"
	"strings"
)

// HostLocal is the twin of hostlocal.Engine. One map has the holders, and a set is the
// list of its addresses. Its ranges are small.
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

// NewHostLocal returns a twin that holds nothing.
func NewHostLocal() *HostLocal {
	return &HostLocal{
		Held: map[netip.Addr]HostLocalKey{}, Cursors: map[int]netip.Addr{}, Boot: map[HostLocalKey]int{},
	}
}

// members returns the addresses of a set in the order of a search, and whether each is
// reserved.
func (m *HostLocal) members(set int) (all []netip.Addr, reserved []bool) {
	for _, r := range m.Sets[set] {
		for a := r.First; a != r.Last.Next(); a = a.Next() {
			all, reserved = append(all, a), append(reserved, a == r.Gateway || holds(r.Exclude, a))
		}
	}
	return all, reserved
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
	for a, h := range m.Held {
		if h == k {
			own = append(own, a)
		}
		if h == k || h == (HostLocalKey{k[0], ""}) {
			all = append(all, a)
		}
	}
	if own == nil {
		own = all
	}
	for _, l := range [][]netip.Addr{own, all} {
		slices.SortFunc(l, func(a, b netip.Addr) int { return strings.Compare(a.String(), b.String()) })
	}
	return own, all
}

// next returns the first free address of a set after its cursor, around the end.
func (m *HostLocal) next(set int) (a netip.Addr, ok bool) {
	all, reserved := m.members(set)
	from := slices.Index(all, m.Cursors[set]) + 1
	for i := range all {
		at := (from + i) % len(all)
		if _, taken := m.Held[all[at]]; !taken && !reserved[at] {
			return all[at], true
		}
	}
	return netip.Addr{}, false
}

// Add returns the assigned addresses, or the set that failed and the reason:
// "exists", "full", "occupied", "reserved", or "unused" for requests that no set
// took.
func (m *HostLocal) Add(k HostLocalKey, requested []netip.Addr) (got []netip.Addr, set int, why string) {
	m.expire()
	_, held := m.Of(k)
	moved := map[int]netip.Addr{}
	asked := requested
	for set := range m.Sets {
		all, reserved := m.members(set)
		in := func(a netip.Addr) bool { return slices.Contains(all, a) }
		if slices.ContainsFunc(held, in) {
			return nil, set, "exists"
		}
		i := slices.IndexFunc(asked, in)
		if i < 0 {
			a, ok := m.next(set)
			if !ok {
				return nil, set, "full"
			}
			moved[set] = a
			got = append(got, a)
			continue
		}
		a := asked[i]
		asked = without(asked, []netip.Addr{a})
		if reserved[slices.Index(all, a)] {
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
		if slices.Contains(all, a) {
			found = true
			continue
		}
		for set := range m.Sets {
			if in, _ := m.members(set); slices.Contains(in, a) {
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
	for set := range m.Sets {
		if _, ok := m.next(set); !ok {
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
		if !slices.ContainsFunc(valid, func(k HostLocalKey) bool { return h == k || h == HostLocalKey{k[0], ""} }) {
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
