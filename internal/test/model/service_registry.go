package model

import (
	"net/netip"
	"slices"
)

// ServicePort is a port of a protocol: 1, 2 or 3, or 0 for all three.
type ServicePort struct {
	Protocol uint8
	Number   uint16
}

// ServiceGrant is the set of resources of an owner.
type ServiceGrant struct {
	Generation uint64
	Addrs      []netip.Addr
	Ports      []ServicePort
	Spilled    bool
}

// ServiceRegistry is the twin of servicealloc.Registry. Before each step, the held
// resources are derived again from the grants of the owners and their open transactions.
type ServiceRegistry struct {
	Ranges      *ServiceRanges
	Ports       *ServiceSet[uint16] // the bands; Held is of the protocol looked at
	PerProtocol bool
	U           uint64 // the random value of the next request that uses one
	Draw        func() uint64
	Last        uint64
	Owners      map[string]ServiceGrant
	Open        map[string]ServiceGrant     // what an owner has when its transaction is committed
	Claims      map[ServiceSubject][]string // who has what: the holder, then those that were loaded later
}

// Sync derives the held resources.
func (m *ServiceRegistry) Sync() {
	clear(m.Ranges.Held)
	for _, grants := range []map[string]ServiceGrant{m.Owners, m.Open} {
		for _, g := range grants {
			for _, ip := range g.Addrs {
				m.Ranges.Held[ip] = true
			}
		}
	}
}

// portHeld reports whether an owner other than the given one, any if that is "", holds a
// port that p clashes with, or more has one.
func (m *ServiceRegistry) portHeld(p ServicePort, owner string, more []ServicePort) bool {
	taken := m.subjects(ServiceGrant{Ports: more})
	return slices.ContainsFunc(m.keys(p), func(s ServiceSubject) bool {
		by := m.holder(s)
		return by != "" && by != owner || slices.Contains(taken, s)
	})
}

// Allocate gives owner the requested resources; an unspecified address and the number 0
// leave the choice open. A generation other than 0 must equal the generation of the
// owner's present grant, and allows another grant.
func (m *ServiceRegistry) Allocate(owner string, generation uint64, addrs []netip.Addr, ports []ServicePort) (ServiceGrant, string) {
	g, fail := m.begin(owner, generation, addrs, ports)
	if fail == "" {
		m.enter(owner, g)
	}
	return g, fail
}

// enter makes g what owner has.
func (m *ServiceRegistry) enter(owner string, g ServiceGrant) {
	delete(m.Owners, owner)
	if g.Generation != 0 {
		m.Owners[owner] = g
	}
	m.settle(owner)
}

// Begin is Allocate that keeps the owner's present grant until Commit.
func (m *ServiceRegistry) Begin(owner string, addrs []netip.Addr, ports []ServicePort) (ServiceGrant, string) {
	g, fail := m.begin(owner, m.Owners[owner].Generation, addrs, ports)
	if fail == "" {
		m.Open[owner] = g
		m.settle(owner)
	}
	return g, fail
}

// End ends a transaction.
func (m *ServiceRegistry) End(owner string, commit bool) {
	g := m.Owners[owner]
	if commit {
		g = m.Open[owner]
	}
	delete(m.Open, owner)
	m.enter(owner, g)
}

// begin works out what owner gets.
func (m *ServiceRegistry) begin(owner string, generation uint64, addrs []netip.Addr, ports []ServicePort) (g ServiceGrant, fail string) {
	old, holds := m.Owners[owner]
	_, open := m.Open[owner]
	switch {
	case owner == "":
		return g, ServiceInvalid
	case open:
		return g, ServiceInUse
	case generation != 0 && !holds:
		return g, ServiceNotHeld
	case generation != 0 && old.Generation != generation, generation == 0 && holds && !old.answers(addrs, ports):
		return g, ServiceMismatch
	case old.answers(addrs, ports) && !m.lacks(owner, old):
		return old, ""
	case generation == 0 && holds:
		return g, ServiceOccupied
	case bad(addrs, ports):
		return g, ServiceInvalid
	}
	m.Sync()
	return m.work(owner, m.held(owner, old), addrs, ports)
}

// fillIn writes into want what of have it is met by, and returns which places those are.
// Nothing that overlaps a place that is named or filled meets an open one.
func fillIn[T comparable](want, have []T, open, overlap func(have, want T) bool) (done []bool) {
	done = make([]bool, len(want))
	for i, w := range want {
		done[i] = slices.Contains(have, w)
	}
	for i := range want {
		for _, h := range have {
			if !done[i] && open(h, want[i]) && !slices.ContainsFunc(want, func(w T) bool { return overlap(h, w) }) {
				want[i], done[i] = h, true
			}
		}
	}
	return done
}

// overlaps reports whether p and q are one number, of a protocol or of all.
func (p ServicePort) overlaps(q ServicePort) bool {
	return p.Number != 0 && p.Number == q.Number && (p.Protocol == q.Protocol || p.Protocol == 0 || q.Protocol == 0)
}

// work chooses what is left open, after what is named, and takes nothing.
func (m *ServiceRegistry) work(owner string, old ServiceGrant, addrs []netip.Addr, ports []ServicePort) (g ServiceGrant, fail string) {
	g = ServiceGrant{Addrs: slices.Clone(addrs), Ports: slices.Clone(ports), Spilled: old.Spilled}
	keptAddrs := fillIn(g.Addrs, old.Addrs, openAddr, func(have, want netip.Addr) bool { return have == want })
	keptPorts := fillIn(g.Ports, old.Ports, openPort, ServicePort.overlaps)
	for i, ip := range g.Addrs {
		if !keptAddrs[i] && !ip.IsUnspecified() {
			if fail := m.Ranges.Take(ip); fail != "" {
				return ServiceGrant{}, fail
			}
		}
	}
	for i, p := range g.Ports {
		if p.Number == 0 || keptPorts[i] {
			continue
		}
		if _, ok := m.Ports.BandOf(p.Number); !ok {
			return ServiceGrant{}, ServiceOutOfRange
		}
		if m.portHeld(p, owner, nil) {
			return ServiceGrant{}, ServiceOccupied
		}
	}
	used := false
	for i, ip := range g.Addrs {
		if !ip.IsUnspecified() {
			continue
		}
		chosen, spilled, fail := m.Ranges.Next(ip.Is4(), m.mix(ip.BitLen()/128))
		if fail != "" {
			return ServiceGrant{}, fail
		}
		g.Addrs[i], used, g.Spilled = chosen, true, g.Spilled || spilled
	}
	for i, p := range g.Ports {
		if p.Number != 0 {
			continue
		}
		clear(m.Ports.Held)
		for _, n := range m.Ports.Members {
			m.Ports.Held[n] = m.portHeld(ServicePort{p.Protocol, n}, "", g.Ports)
		}
		band := m.Ports.Choose()
		if band == ServiceClosed {
			return ServiceGrant{}, ServiceFull
		}
		g.Ports[i].Number = m.Ports.PickFree(band, m.mix(2+i))
		used, g.Spilled = true, g.Spilled || band == ServiceStatic
	}
	if used {
		m.U = m.Draw()
	}
	if len(addrs)+len(ports) == 0 {
		return ServiceGrant{}, ""
	}
	m.Last++
	g.Generation = m.Last
	return g, ""
}

func (m *ServiceRegistry) mix(i int) uint64 {
	if m.Ranges.Options.Lowest {
		return 0
	}
	return ServiceMix(m.U, i)
}

// Release releases everything that owner holds.
func (m *ServiceRegistry) Release(owner string, generation uint64) string {
	g, ok := m.Owners[owner]
	_, open := m.Open[owner]
	switch {
	case !ok && !open:
		return ServiceNotHeld
	case open:
		return ServiceInUse
	case generation != 0 && g.Generation != generation:
		return ServiceMismatch
	}
	m.enter(owner, ServiceGrant{})
	return ""
}

// Restart gives each owner of an open transaction both its old and its new grant.
func (m *ServiceRegistry) Restart() {
	for owner, n := range m.Open {
		g := m.Owners[owner]
		g.Generation, g.Spilled = max(g.Generation, n.Generation), g.Spilled || n.Spilled
		g.Addrs, g.Ports = union(g.Addrs, n.Addrs), union(g.Ports, n.Ports)
		delete(m.Open, owner)
		m.enter(owner, g)
	}
}

// union returns a and what else b has.
func union[T comparable](a, b []T) []T {
	a = slices.Clone(a)
	for _, x := range b {
		if !slices.Contains(a, x) {
			a = append(a, x)
		}
	}
	return a
}

// without returns what of a is not in b.
func without[T comparable](a, b []T) []T {
	return slices.DeleteFunc(slices.Clone(a), func(x T) bool { return slices.Contains(b, x) })
}

// openAddr reports whether want leaves the address open that have answers.
func openAddr(have, want netip.Addr) bool { return want.IsUnspecified() && want.Is4() == have.Is4() }

func openPort(have, want ServicePort) bool { return want.Number == 0 && want.Protocol == have.Protocol }

func (g ServiceGrant) answers(addrs []netip.Addr, ports []ServicePort) bool {
	return slices.EqualFunc(g.Addrs, addrs, func(have, want netip.Addr) bool { return have == want || openAddr(have, want) }) &&
		slices.EqualFunc(g.Ports, ports, func(have, want ServicePort) bool { return have == want || openPort(have, want) })
}

// bad reports whether a request contradicts itself.
func bad(addrs []netip.Addr, ports []ServicePort) bool {
	for i, ip := range addrs {
		if slices.ContainsFunc(addrs[:i], func(other netip.Addr) bool { return other.Is4() == ip.Is4() }) {
			return true
		}
	}
	for i, p := range ports {
		if slices.ContainsFunc(ports[:i], p.overlaps) {
			return true
		}
	}
	return false
}
