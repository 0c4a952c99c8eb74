package model

import (
	"maps"
	"net/netip"
	"slices"
	"sort"
)

// ServiceOptions are the options of the service twins.
type ServiceOptions struct {
	Lowest, NeverSpill, PointToPoint bool
	StaticSize                       int // -1: the rule's
	Static                           []netip.Prefix
}

// addressesOf lists all addresses of p, and how many at the beginning and at the end
// are not usable.
func (o ServiceOptions) addressesOf(p netip.Prefix) (all []netip.Addr, skip, cut int) {
	for ip := p.Addr(); p.Contains(ip); ip = ip.Next() {
		all = append(all, ip)
	}
	switch {
	case o.PointToPoint && len(all) <= 2:
		return all, 0, 0
	case p.Addr().Is4() && len(all) <= 2, len(all) == 1:
		return all, len(all), 0
	case p.Addr().Is4():
		return all, 1, 1
	}
	return all, 1, 0
}

// bandsOf returns the band of each usable address of p, were p alone.
func (o ServiceOptions) bandsOf(p netip.Prefix) map[netip.Addr]int {
	all, skip, cut := o.addressesOf(p)
	static := int(ServiceStaticSize(uint64(len(all)), 16, 256))
	if o.StaticSize >= 0 {
		static = o.StaticSize
	}
	bands := map[netip.Addr]int{}
	for i, ip := range all[skip : len(all)-cut] {
		bands[ip] = ServiceDynamic
		if i < static {
			bands[ip] = ServiceStatic
		}
	}
	return bands
}

// finish applies the options that do not belong to one prefix.
func (o ServiceOptions) finish(ip netip.Addr, band int) int {
	switch {
	case band == ServiceClosed:
		return ServiceClosed
	case holds(o.Static, ip):
		return ServiceStatic
	}
	return band
}

// NewServiceRange returns the twin of servicealloc.Range: a set of the usable addresses.
func NewServiceRange(p netip.Prefix, o ServiceOptions) *ServiceSet[netip.Addr] {
	m := &ServiceSet[netip.Addr]{Held: map[netip.Addr]bool{}, NeverSpill: o.NeverSpill}
	bands := o.bandsOf(p)
	all, skip, cut := o.addressesOf(p)
	for _, ip := range all[skip : len(all)-cut] {
		m.Members = append(m.Members, ip)
		m.Band = append(m.Band, o.finish(ip, bands[ip]))
	}
	return m
}

// NewServicePorts returns the twin of the ports of one protocol.
func NewServicePorts(first, last uint16, o ServiceOptions) *ServiceSet[uint16] {
	m := &ServiceSet[uint16]{Held: map[uint16]bool{}, NeverSpill: o.NeverSpill}
	static := ServiceStaticSize(uint64(last-first)+1, 32, 128)
	if o.StaticSize >= 0 {
		static = uint64(o.StaticSize)
	}
	for i := range uint64(last-first) + 1 {
		m.Members = append(m.Members, first+uint16(i))
		if i < static {
			m.Band = append(m.Band, ServiceStatic)
		} else {
			m.Band = append(m.Band, ServiceDynamic)
		}
	}
	return m
}

// ServiceRanges is the twin of the ranges of servicealloc.Registry. It derives
// everything from the entries each time it is asked.
type ServiceRanges struct {
	Options ServiceOptions
	Entries map[string]ServiceEntry
	Held    map[netip.Addr]bool
	bands   map[netip.Prefix]map[netip.Addr]int // bandsOf each prefix, remembered
}

// ServiceEntry is a range or a reservation.
type ServiceEntry struct {
	Prefixes           []netip.Prefix
	Draining, Reserved bool
}

// NewServiceRanges returns a twin without ranges.
func NewServiceRanges(o ServiceOptions) *ServiceRanges {
	return &ServiceRanges{Options: o, Entries: map[string]ServiceEntry{}, Held: map[netip.Addr]bool{},
		bands: map[netip.Prefix]map[netip.Addr]int{}}
}

// band returns the band of ip in p, ServiceClosed if p does not have it usable.
func (m *ServiceRanges) band(p netip.Prefix, ip netip.Addr) int {
	if m.bands[p] == nil {
		m.bands[p] = m.Options.bandsOf(p)
	}
	return m.bands[p][ip]
}

// Band returns the band of ip. It is closed if ip is reserved, static if ip is static
// in any range that does not drain, else dynamic if it is dynamic in any.
func (m *ServiceRanges) Band(ip netip.Addr) int {
	best := ServiceClosed
	for _, e := range m.Entries {
		for _, p := range e.Prefixes {
			switch b := m.band(p, ip); {
			case e.Reserved && p.Contains(ip):
				return ServiceClosed
			case e.Draining || e.Reserved || b == ServiceClosed:
			case best == ServiceClosed || b == ServiceStatic:
				best = b
			}
		}
	}
	return m.Options.finish(ip, best)
}

// usable reports whether a range, draining or not, has ip.
func (m *ServiceRanges) usable(entries map[string]ServiceEntry, ip netip.Addr) bool {
	for _, e := range entries {
		for _, p := range e.Prefixes {
			if !e.Reserved && m.band(p, ip) != ServiceClosed {
				return true
			}
		}
	}
	return false
}

// Groups returns, ascending, a set for each prefix that no other prefix of the family
// contains.
func (m *ServiceRanges) Groups(v4 bool) (groups []*ServiceSet[netip.Addr]) {
	var all []netip.Prefix
	for _, e := range m.Entries {
		for _, p := range e.Prefixes {
			if !e.Reserved && p.Addr().Is4() == v4 && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Addr().Less(all[j].Addr()) })
	for _, p := range all {
		if slices.ContainsFunc(all, func(q netip.Prefix) bool { return q != p && q.Bits() < p.Bits() && q.Contains(p.Addr()) }) {
			continue
		}
		g := &ServiceSet[netip.Addr]{Held: m.Held, NeverSpill: m.Options.NeverSpill}
		for ip := p.Addr(); p.Contains(ip); ip = ip.Next() {
			g.Members = append(g.Members, ip)
			g.Band = append(g.Band, m.Band(ip))
		}
		groups = append(groups, g)
	}
	return groups
}

// Next takes a free address of a family and a band; the random value chooses it.
func (m *ServiceRanges) Next(v4 bool, u uint64) (ip netip.Addr, spilled bool, fail string) {
	all := &ServiceSet[netip.Addr]{Held: m.Held, NeverSpill: m.Options.NeverSpill}
	for _, g := range m.Groups(v4) {
		all.Members, all.Band = append(all.Members, g.Members...), append(all.Band, g.Band...)
	}
	band := all.Choose()
	if band == ServiceClosed {
		return netip.Addr{}, false, ServiceFull
	}
	ip = all.PickFree(band, u)
	m.Held[ip] = true
	return ip, band == ServiceStatic, ""
}

// Take takes ip.
func (m *ServiceRanges) Take(ip netip.Addr) (fail string) {
	if m.Band(ip) != ServiceClosed {
		if m.Held[ip] {
			return ServiceOccupied
		}
		m.Held[ip] = true
		return ""
	}
	for _, e := range m.Entries {
		if e.Reserved && holds(e.Prefixes, ip) {
			return ServiceReserved
		}
	}
	if m.usable(m.Entries, ip) {
		return ServiceInUse
	}
	return ServiceOutOfRange
}

// Set adds or changes a range, Remove removes one: neither may leave something held
// that no range has any more and that one had.
func (m *ServiceRanges) Set(name string, e ServiceEntry) (fail string) {
	if len(e.Prefixes) == 0 || e.Reserved && e.Draining {
		return ServiceInvalid
	}
	return m.change(name, func(entries map[string]ServiceEntry) { entries[name] = e })
}

// Remove removes a range.
func (m *ServiceRanges) Remove(name string) (fail string) {
	if _, ok := m.Entries[name]; !ok {
		return ServiceNotFound
	}
	return m.change(name, func(entries map[string]ServiceEntry) { delete(entries, name) })
}

func (m *ServiceRanges) change(name string, f func(map[string]ServiceEntry)) (fail string) {
	after := maps.Clone(m.Entries)
	f(after)
	for ip := range m.Held {
		if m.usable(m.Entries, ip) && !m.usable(after, ip) {
			return ServiceInUse
		}
	}
	m.Entries = after
	return ""
}
