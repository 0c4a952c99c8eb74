package model

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
)

// ServiceOptions are the options of the service twins.
type ServiceOptions struct {
	Lowest, NeverSpill, PointToPoint bool
	StaticSize                       int // -1: the rule's
	Static                           []netip.Prefix
}

// band returns the band of ip in p, were p alone, ServiceClosed if p does not have it
// usable.
func (o ServiceOptions) band(p netip.Prefix, ip netip.Addr) int {
	if !p.Contains(ip) {
		return ServiceClosed
	}
	i, n := low(ip)-low(p.Addr()), 1<<(ip.BitLen()-p.Bits()) // of a small prefix
	first, end := 1, n
	switch {
	case o.PointToPoint && n <= 2:
		first = 0
	case n == 1, ip.Is4() && n == 2:
		end = 0
	case ip.Is4():
		end--
	}
	static := o.StaticSize
	if static < 0 {
		static = int(ServiceStaticSize(uint64(n), 16, 256))
	}
	switch {
	case i < first || i >= end:
		return ServiceClosed
	case i-first < static || holds(o.Static, ip):
		return ServiceStatic
	}
	return ServiceDynamic
}

// low returns the low bits of an address.
func low(ip netip.Addr) int {
	raw := ip.As16()
	return int(binary.BigEndian.Uint32(raw[12:]))
}

// NewServiceRange returns the twin of servicealloc.Range: a set of the usable addresses.
func NewServiceRange(p netip.Prefix, o ServiceOptions) *ServiceSet[netip.Addr] {
	m := &ServiceSet[netip.Addr]{Held: map[netip.Addr]bool{}, NeverSpill: o.NeverSpill}
	for _, ip := range addresses(p) {
		if band := o.band(p, ip); band != ServiceClosed {
			m.Members, m.Band = append(m.Members, ip), append(m.Band, band)
		}
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
		band := ServiceDynamic
		if i < static {
			band = ServiceStatic
		}
		m.Members, m.Band = append(m.Members, first+uint16(i)), append(m.Band, band)
	}
	return m
}

// ServiceRanges is the twin of the ranges of servicealloc.Registry. It derives
// everything from the entries each time it is asked.
type ServiceRanges struct {
	Options ServiceOptions
	Entries map[string]ServiceEntry
	Held    map[netip.Addr]bool
}

// ServiceEntry is a range or a reservation.
type ServiceEntry struct {
	Prefixes           []netip.Prefix
	Draining, Reserved bool
}

// NewServiceRanges returns a twin without ranges.
func NewServiceRanges(o ServiceOptions) *ServiceRanges {
	return &ServiceRanges{Options: o, Entries: map[string]ServiceEntry{}, Held: map[netip.Addr]bool{}}
}

// Band returns the band of ip. It is closed if ip is reserved, static if ip is static
// in any range that does not drain, else dynamic if it is dynamic in any.
func (m *ServiceRanges) Band(ip netip.Addr) int {
	best := ServiceClosed
	for _, e := range m.Entries {
		for _, p := range e.Prefixes {
			switch b := m.Options.band(p, ip); {
			case e.Reserved && p.Contains(ip):
				return ServiceClosed
			case e.Draining || e.Reserved || b == ServiceClosed:
			case best == ServiceClosed || b == ServiceStatic:
				best = b
			}
		}
	}
	return best
}

// usable reports whether a range, draining or not, has ip.
func (m *ServiceRanges) usable(entries map[string]ServiceEntry, ip netip.Addr) bool {
	for _, e := range entries {
		for _, p := range e.Prefixes {
			if !e.Reserved && m.Options.band(p, ip) != ServiceClosed {
				return true
			}
		}
	}
	return false
}

// Family returns the addresses of all ranges of a family, with their bands.
func (m *ServiceRanges) Family(v4 bool) *ServiceSet[netip.Addr] {
	all := &ServiceSet[netip.Addr]{Held: m.Held, NeverSpill: m.Options.NeverSpill}
	for _, e := range m.Entries {
		for _, p := range e.Prefixes {
			if !e.Reserved && p.Addr().Is4() == v4 {
				all.Members = append(all.Members, addresses(p)...)
			}
		}
	}
	slices.SortFunc(all.Members, netip.Addr.Compare)
	all.Members = slices.Compact(all.Members)
	for _, ip := range all.Members {
		all.Band = append(all.Band, m.Band(ip))
	}
	return all
}

// Next takes a free address of a family and a band; the random value chooses it.
func (m *ServiceRanges) Next(v4 bool, u uint64) (ip netip.Addr, spilled bool, fail string) {
	all := m.Family(v4)
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
	after := maps.Clone(m.Entries)
	after[name] = e
	return m.change(after)
}

// Remove removes a range.
func (m *ServiceRanges) Remove(name string) (fail string) {
	after := maps.Clone(m.Entries)
	if delete(after, name); len(after) == len(m.Entries) {
		return ServiceNotFound
	}
	return m.change(after)
}

func (m *ServiceRanges) change(after map[string]ServiceEntry) (fail string) {
	for ip := range m.Held {
		if m.usable(m.Entries, ip) && !m.usable(after, ip) {
			return ServiceInUse
		}
	}
	m.Entries = after
	return ""
}
