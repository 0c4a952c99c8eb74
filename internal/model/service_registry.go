package model

import (
	"maps"
	"net/netip"
	"slices"
)

// ServicePort is a port of one of three protocols, numbered from 1.
type ServicePort struct {
	Protocol uint8
	Number   uint16
}

// ServiceGrant is what an owner holds.
type ServiceGrant struct {
	Generation uint64
	Addrs      []netip.Addr
	Ports      []ServicePort
	Spilled    bool
}

// ServiceRegistry is the twin of servicealloc.Registry. A request is worked off on a
// copy of what is held; what fails is thrown away with the copy. Draw is called with
// the family of each address (0 IPv4, 1 IPv6) and each protocol (1..3, plus 1: 2..4)
// whose random value was used.
type ServiceRegistry struct {
	Ranges *ServiceRanges
	Ports  [3]*ServiceSet[uint16]
	Port   [3]uint64 // the random values of the next ports
	Draw   func(slot int)
	Last   uint64
	Owners map[string]ServiceGrant
}

// Allocate gives owner what is asked for; an unspecified address and the number 0 leave
// the choice open.
func (m *ServiceRegistry) Allocate(owner string, addrs []netip.Addr, ports []ServicePort) (g ServiceGrant, fail string) {
	if g, ok := m.Owners[owner]; ok {
		if !g.answers(addrs, ports) {
			return ServiceGrant{}, ServiceMismatch
		}
		return g, ""
	}
	if bad(owner, addrs, ports) {
		return ServiceGrant{}, ServiceBadRequest
	}
	return m.try(owner, addrs, ports, func() {})
}

// Replace is Allocate of what owner does not hold yet; the rest it loses.
func (m *ServiceRegistry) Replace(owner string, generation uint64, addrs []netip.Addr, ports []ServicePort) (g ServiceGrant, fail string) {
	old, ok := m.Owners[owner]
	switch {
	case !ok:
		return g, ServiceNoOwner
	case old.Generation != generation:
		return g, ServiceGeneration
	case old.answers(addrs, ports):
		return old, ""
	case bad(owner, addrs, ports):
		return g, ServiceBadRequest
	}
	addrs, ports = slices.Clone(addrs), slices.Clone(ports)
	keptAddrs := fillIn(addrs, old.Addrs, func(have, want netip.Addr) bool { return want.IsUnspecified() && want.Is4() == have.Is4() })
	keptPorts := fillIn(ports, old.Ports, func(have, want ServicePort) bool { return want.Number == 0 && want.Protocol == have.Protocol })
	lost := func() {
		for _, ip := range old.Addrs {
			if !slices.Contains(keptAddrs, ip) {
				delete(m.Ranges.Held, ip)
			}
		}
		for _, p := range old.Ports {
			if !slices.Contains(keptPorts, p) {
				delete(m.Ports[p.Protocol-1].Held, p.Number)
			}
		}
	}
	g, fail = m.tryWith(owner, addrs, ports, keptAddrs, keptPorts, lost)
	if fail == "" {
		g.Spilled = g.Spilled || old.Spilled
		m.Owners[owner] = g
	}
	return g, fail
}

// fillIn writes into want what of have it is met by, and returns that.
func fillIn[T comparable](want, have []T, open func(have, want T) bool) (kept []T) {
	done := make([]bool, len(want))
	for _, same := range []func(h, w T) bool{func(h, w T) bool { return h == w }, open} {
		for i := range want {
			for _, h := range have {
				if !done[i] && !slices.Contains(kept, h) && same(h, want[i]) {
					want[i], done[i], kept = h, true, append(kept, h)
				}
			}
		}
	}
	return kept
}

func (m *ServiceRegistry) try(owner string, addrs []netip.Addr, ports []ServicePort, then func()) (ServiceGrant, string) {
	return m.tryWith(owner, addrs, ports, nil, nil, then)
}

// tryWith takes addrs and ports but those that are kept, and on success calls then.
func (m *ServiceRegistry) tryWith(owner string, addrs []netip.Addr, ports []ServicePort, keptAddrs []netip.Addr, keptPorts []ServicePort, then func()) (ServiceGrant, string) {
	held := maps.Clone(m.Ranges.Held)
	var heldPorts [3]map[uint16]bool
	for i, s := range m.Ports {
		heldPorts[i] = maps.Clone(s.Held)
	}
	g, used, fail := m.work(addrs, ports, keptAddrs, keptPorts)
	if fail != "" {
		m.Ranges.Held = held
		for i, s := range m.Ports {
			s.Held = heldPorts[i]
		}
		return ServiceGrant{}, fail
	}
	then()
	for slot := range 5 { // in the order in which the engine draws
		if used[slot] {
			m.Draw(slot)
		}
	}
	m.Last++
	g.Generation = m.Last
	m.Owners[owner] = g
	return g, ""
}

// work takes what is asked for and says which random values that used.
func (m *ServiceRegistry) work(addrs []netip.Addr, ports []ServicePort, keptAddrs []netip.Addr, keptPorts []ServicePort) (g ServiceGrant, used [5]bool, fail string) {
	g.Addrs, g.Ports = slices.Clone(addrs), slices.Clone(ports)
	for i, ip := range addrs {
		if slices.Contains(keptAddrs, ip) {
			continue
		}
		if !ip.IsUnspecified() {
			if fail = m.Ranges.Take(ip); fail != "" {
				return g, used, fail
			}
			continue
		}
		var spilled bool
		if g.Addrs[i], spilled, fail = m.Ranges.Next(ip.Is4()); fail != "" {
			return g, used, fail
		}
		g.Spilled = g.Spilled || spilled
		used[slot(ip.Is4())] = true
	}
	for _, p := range ports {
		if p.Number == 0 || slices.Contains(keptPorts, p) {
			continue
		}
		s := m.Ports[p.Protocol-1]
		if _, ok := s.BandOf(p.Number); !ok {
			return g, used, ServiceOutOfRange
		}
		if s.Held[p.Number] {
			return g, used, ServiceOccupied
		}
		s.Held[p.Number] = true
	}
	for proto, s := range m.Ports {
		var open []int
		for i, p := range ports {
			if p.Number == 0 && int(p.Protocol) == proto+1 {
				open = append(open, i)
			}
		}
		numbers, spilled, ok := s.Run(len(open), m.Port[proto])
		if !ok {
			return g, used, ServiceFull
		}
		for i, at := range open {
			g.Ports[at].Number = numbers[i]
		}
		g.Spilled = g.Spilled || spilled > 0
		used[2+proto] = len(open) > 0
	}
	return g, used, ""
}

// Run takes n members, dynamic ones first; all or none.
func (m *ServiceSet[T]) Run(n int, u uint64) (run []T, spilled int, ok bool) {
	dynamic := min(n, m.Free(ServiceDynamic))
	spilled = n - dynamic
	if spilled > 0 && (m.NeverSpill || m.Free(ServiceStatic) < spilled) {
		return nil, 0, false
	}
	run = m.TakeRun(ServiceDynamic, dynamic, u)
	return append(run, m.TakeRun(ServiceStatic, spilled, u)...), spilled, true
}

// Release gives back what owner holds.
func (m *ServiceRegistry) Release(owner string) bool {
	g, ok := m.Owners[owner]
	for _, ip := range g.Addrs {
		delete(m.Ranges.Held, ip)
	}
	for _, p := range g.Ports {
		delete(m.Ports[p.Protocol-1].Held, p.Number)
	}
	delete(m.Owners, owner)
	return ok
}

func (g ServiceGrant) answers(addrs []netip.Addr, ports []ServicePort) bool {
	if len(addrs) != len(g.Addrs) || len(ports) != len(g.Ports) {
		return false
	}
	for i, ip := range addrs {
		if ip != g.Addrs[i] && !(ip.IsUnspecified() && ip.Is4() == g.Addrs[i].Is4()) {
			return false
		}
	}
	for i, p := range ports {
		if p != g.Ports[i] && !(p.Number == 0 && p.Protocol == g.Ports[i].Protocol) {
			return false
		}
	}
	return true
}

// bad reports whether a request contradicts itself.
func bad(owner string, addrs []netip.Addr, ports []ServicePort) bool {
	if owner == "" {
		return true
	}
	for i, ip := range addrs {
		for _, other := range addrs[:i] {
			if other.Is4() == ip.Is4() {
				return true
			}
		}
	}
	for i, p := range ports {
		if p.Number != 0 && slices.Contains(ports[:i], p) {
			return true
		}
	}
	return false
}
