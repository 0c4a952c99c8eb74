package model

import (
	"net/netip"
	"slices"
)

// ServiceSubject is an address, or a port number of a protocol; 0 is all of them.
type ServiceSubject struct {
	Addr netip.Addr
	Port ServicePort
}

// ServiceDuplicate is the problem of a resource that another owner has.
const ServiceDuplicate = "occupied"

func (m *ServiceRegistry) keys(p ServicePort) (out []ServiceSubject) {
	if !m.PerProtocol {
		return []ServiceSubject{{Port: ServicePort{Number: p.Number}}}
	}
	for q := uint8(1); q <= 3; q++ {
		if p.Protocol == 0 || p.Protocol == q {
			out = append(out, ServiceSubject{Port: ServicePort{q, p.Number}})
		}
	}
	return out
}

// subjects returns what a grant is made of.
func (m *ServiceRegistry) subjects(g ServiceGrant) (out []ServiceSubject) {
	for _, ip := range g.Addrs {
		out = append(out, ServiceSubject{Addr: ip})
	}
	for _, p := range g.Ports {
		out = append(out, m.keys(p)...)
	}
	return out
}

// holder returns who holds s, "" for nobody.
func (m *ServiceRegistry) holder(s ServiceSubject) string {
	if all := m.Claims[s]; len(all) > 0 {
		return all[0]
	}
	return ""
}

// settle makes the claims of an owner what it has, with its open transaction: new ones
// come last.
func (m *ServiceRegistry) settle(owner string) {
	if m.Claims == nil {
		m.Claims = map[ServiceSubject][]string{}
	}
	has := append(m.subjects(m.Owners[owner]), m.subjects(m.Open[owner])...)
	for s, all := range m.Claims {
		if !slices.Contains(has, s) {
			m.Claims[s] = without(all, []string{owner})
		}
	}
	for _, s := range has {
		m.Claims[s] = union(m.Claims[s], []string{owner})
	}
}

// lacks reports whether another owner holds what g lists.
func (m *ServiceRegistry) lacks(owner string, g ServiceGrant) bool {
	return slices.ContainsFunc(m.subjects(g), func(s ServiceSubject) bool { return m.holder(s) != owner })
}

// held returns g without what another owner holds.
func (m *ServiceRegistry) held(owner string, g ServiceGrant) ServiceGrant {
	g.Addrs = slices.DeleteFunc(slices.Clone(g.Addrs), func(ip netip.Addr) bool { return m.holder(ServiceSubject{Addr: ip}) != owner })
	g.Ports = slices.DeleteFunc(slices.Clone(g.Ports), func(p ServicePort) bool {
		return slices.ContainsFunc(m.keys(p), func(s ServiceSubject) bool { return m.holder(s) != owner })
	})
	return g
}

// Load takes over the record of an owner and returns its faults.
func (m *ServiceRegistry) Load(owner string, generation uint64, addrs []netip.Addr, ports []ServicePort) (problems []string) {
	m.Sync()
	g, holds := m.Owners[owner]
	next, open := m.Open[owner]
	seen := map[ServiceSubject]bool{}
	for _, s := range m.subjects(ServiceGrant{Addrs: addrs, Ports: ports}) {
		all := m.Claims[s]
		if seen[s] || slices.Contains(all, owner) {
			continue
		}
		seen[s] = true
		problem := ""
		if len(all) > 0 {
			problem = ServiceDuplicate
		} else if s.Addr.IsValid() {
			problem = m.Ranges.Take(s.Addr)
		} else if _, ok := m.Ports.BandOf(s.Port.Number); !ok {
			problem = ServiceOutOfRange
		}
		if problem != "" && problem != ServiceInUse {
			problems = append(problems, problem)
		}
	}
	addrs, ports = without(addrs, g.Addrs), without(ports, g.Ports)
	if len(addrs)+len(ports) == 0 {
		return problems
	}
	g.Addrs, g.Ports = union(g.Addrs, addrs), union(g.Ports, ports)
	more := len(without(addrs, next.Addrs))+len(without(ports, next.Ports)) > 0
	next.Addrs, next.Ports = union(next.Addrs, addrs), union(next.Ports, ports)
	if g.Generation = generation; holds || open || generation == 0 {
		g.Generation = m.Last + 1
	}
	m.Last = max(m.Last, g.Generation)
	if m.Owners[owner] = g; open {
		if more {
			m.Last++
			next.Generation = m.Last
		}
		m.Open[owner] = next
	}
	m.settle(owner)
	return problems
}

// Move passes an address of one owner to another one.
func (m *ServiceRegistry) Move(from, to string, ip netip.Addr) (fail string) {
	_, opened := m.Open[from]
	if _, other := m.Open[to]; opened || other {
		return ServiceInUse
	}
	s := ServiceSubject{Addr: ip}
	if m.holder(s) != from {
		return ServiceNotHeld
	}
	m.Claims[s] = append([]string{to}, without(m.Claims[s], []string{from, to})...)
	a, b := m.Owners[from], m.Owners[to]
	a.Addrs = without(a.Addrs, []netip.Addr{ip})
	if len(a.Addrs)+len(a.Ports) == 0 {
		a = ServiceGrant{}
	} else {
		m.Last++
		a.Generation = m.Last
	}
	b.Addrs = append(without(b.Addrs, []netip.Addr{ip}), ip) // it comes last
	m.Last++
	b.Generation = m.Last
	m.enter(from, a)
	m.enter(to, b)
	return ""
}
