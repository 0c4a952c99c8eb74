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
		if i := slices.Index(all, owner); i >= 0 && !slices.Contains(has, s) {
			m.Claims[s] = slices.Delete(slices.Clone(all), i, i+1)
		}
	}
	for _, s := range has {
		if !slices.Contains(m.Claims[s], owner) {
			m.Claims[s] = append(slices.Clone(m.Claims[s]), owner)
		}
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
	claim := func(s ServiceSubject) {
		all := m.Claims[s]
		if seen[s] || slices.Contains(all, owner) {
			return
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
	some, more := false, false
	g.Addrs, g.Ports = slices.Clone(g.Addrs), slices.Clone(g.Ports)
	next.Addrs, next.Ports = slices.Clone(next.Addrs), slices.Clone(next.Ports)
	for _, ip := range addrs {
		claim(ServiceSubject{Addr: ip})
		if !slices.Contains(g.Addrs, ip) {
			g.Addrs, some = append(g.Addrs, ip), true
			if !slices.Contains(next.Addrs, ip) {
				next.Addrs, more = append(next.Addrs, ip), true
			}
		}
	}
	for _, p := range ports {
		for _, s := range m.keys(p) {
			claim(s)
		}
		if !slices.Contains(g.Ports, p) {
			g.Ports, some = append(g.Ports, p), true
			if !slices.Contains(next.Ports, p) {
				next.Ports, more = append(next.Ports, p), true
			}
		}
	}
	if !some {
		return problems
	}
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
	all := slices.DeleteFunc(slices.Clone(m.Claims[s]), func(o string) bool { return o == to })
	all[0] = to
	m.Claims[s] = all
	a, b := m.Owners[from], m.Owners[to]
	a.Addrs = slices.DeleteFunc(slices.Clone(a.Addrs), func(o netip.Addr) bool { return o == ip })
	if len(a.Addrs)+len(a.Ports) == 0 {
		a = ServiceGrant{}
	} else {
		m.Last++
		a.Generation = m.Last
	}
	b.Addrs = append(slices.DeleteFunc(slices.Clone(b.Addrs), func(o netip.Addr) bool { return o == ip }), ip) // it comes last
	m.Last++
	b.Generation = m.Last
	m.enter(from, a)
	m.enter(to, b)
	return ""
}
