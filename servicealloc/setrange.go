package servicealloc

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// RangeInfo describes a named address range of a [Registry], or a reservation.
type RangeInfo struct {
	Name     string
	Prefixes []netip.Prefix // usually one of each family
	// A Draining range allocates nothing; its held addresses stay held.
	Draining bool
	// Reserved makes the entry a reservation instead of a range: nothing in its prefixes
	// and its Ports is allocated, from any range.
	Reserved bool
	Ports    []PortRange // of a reservation
}

func (e *RangeInfo) clone() RangeInfo {
	c := *e
	c.Prefixes, c.Ports = slices.Clone(e.Prefixes), slices.Clone(e.Ports)
	return c
}

func (e *RangeInfo) equal(o *RangeInfo) bool {
	return e.Draining == o.Draining && e.Reserved == o.Reserved && slices.Equal(e.Prefixes, o.Prefixes) && slices.Equal(e.Ports, o.Ports)
}

// refuse returns why e is impossible, "" if it is possible.
func (e *RangeInfo) refuse() (field, why string) {
	for _, p := range e.Prefixes {
		if err := addr.Check(p); err != nil {
			return "Prefixes", p.String() + ": " + err.Error()
		} else if why := checkPrefix(p); why != "" && !e.Reserved {
			return "Prefixes", p.String() + ": " + why
		}
	}
	for _, r := range e.Ports {
		if why := r.check(); why != "" {
			return "Ports", r.String() + " " + why
		}
	}
	switch {
	case len(e.Prefixes)+len(e.Ports) == 0:
		return "Prefixes", "none given"
	case e.Reserved && e.Draining:
		return "Draining", "a reservation cannot drain"
	case !e.Reserved && len(e.Ports) > 0:
		return "Ports", "only a reservation has ports"
	}
	return "", ""
}

// SetRange adds the range, or replaces the range of that name. A replacement can start or
// stop draining, and add or remove prefixes. Held addresses stay held, and an address
// that another range makes usable stays usable. Ranges may overlap, nest and repeat each
// other. An address is usable if it is usable in any range that is not draining. It is
// static if it is static in any range. It is held only once. Setting a range to its
// present state changes nothing.
//
// It fails with [ipalloc.ErrInvalid] if a prefix is invalid, zoned, 4-in-6, unmasked or,
// for a range, an IPv6 prefix wider than /64. It fails with [ipalloc.ErrLimit] if there
// would be more than 4,096 prefixes. It fails with [ipalloc.ErrInUse] if held addresses
// would no longer be in any range; the error names the first one and its holder. It is
// linear in the ranges. The first later call that reads the ranges rebuilds their bands,
// in O(n log n) of the prefixes.
func (r *Registry) SetRange(info RangeInfo) error { return r.setRange("set range", info, false) }

// setRange is SetRange; with force it also strands held addresses.
func (r *Registry) setRange(op string, info RangeInfo, force bool) error {
	r.lockRanges()
	defer r.unlock()
	fail := func(e ipalloc.Error) error {
		e.Package, e.Op, e.Name = "servicealloc", op, info.Name
		return &e
	}
	e := info.clone()
	if field, why := e.refuse(); why != "" {
		return fail(ipalloc.Error{Field: field, Reason: why, Err: ipalloc.ErrInvalid})
	}
	var old *RangeInfo
	if i, ok := r.ranges.search(info.Name); ok {
		old = r.ranges.entries[i]
		if old.equal(&e) {
			return nil
		}
	}
	if r.ranges.size(old)+len(e.Prefixes)+len(e.Ports) > maxPrefixes {
		return fail(ipalloc.Error{Reason: "more than 4096 prefixes", Err: ipalloc.ErrLimit})
	}
	return r.replaceRange(op, old, &e, force)
}

// replaceRange replaces old by e, either nil for none, unless that strands a held
// address.
func (r *Registry) replaceRange(op string, old, e *RangeInfo, force bool) error {
	did, is := OpSetRange, e
	if e == nil {
		did, is = OpRemoveRange, old
	}
	if r.closed {
		return &ipalloc.Error{Package: "servicealloc", Op: op, Name: is.Name, Err: ipalloc.ErrClosed}
	}
	if s, some, more := r.ranges.stranded(old, e); some && !force {
		why := "an address is held that no other range has"
		if more {
			why = "addresses are held that no other range has"
		}
		return &ipalloc.Error{Package: "servicealloc", Op: op, Name: is.Name, Addr: s.addr(), Holder: r.holderName(s), Reason: why, Err: ipalloc.ErrInUse}
	}
	r.ranges.update(old, e)
	if r.changes != nil {
		r.changes.Add(Change{Op: did, Range: is.clone()})
	}
	return nil
}

// RemoveRange removes a range, draining or not, or a reservation.
//
// It fails with [ipalloc.ErrNotFound] if nothing has that name. It fails with
// [ipalloc.ErrInUse] if held addresses are in no other range; the error names the first
// one and its holder. On error nothing changes.
func (r *Registry) RemoveRange(name string) error { return r.removeRange("remove range", name, false) }

func (r *Registry) removeRange(op, name string, force bool) error {
	r.lockRanges()
	defer r.unlock()
	i, ok := r.ranges.search(name)
	if !ok {
		return &ipalloc.Error{Package: "servicealloc", Op: op, Name: name, Err: ipalloc.ErrNotFound}
	}
	return r.replaceRange(op, r.ranges.entries[i], nil, force)
}

// Ranges returns the ranges and reservations in the order of their names.
func (r *Registry) Ranges() []RangeInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []RangeInfo
	for _, e := range r.ranges.entries {
		out = append(out, e.clone())
	}
	return out
}

// RegistryStats has the counts of the IPv4 addresses, of the IPv6 addresses and of the
// ports of a [Registry]. Each address counts once, and with PerProtocol each port counts
// once for every protocol. Numbers saturate at 2^64-1.
type RegistryStats struct{ V4, V6, Ports Stats }

// Stats returns the counts. It is linear in the disjoint ranges.
func (r *Registry) Stats() RegistryStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ranges.refresh()
	first, last := anyPort, anyPort
	if r.Ports().PerProtocol {
		first, last = onePort, onePort+lineKind(len(protocols)-1)
	}
	return RegistryStats{r.ranges.stats(ipv4, ipv4), r.ranges.stats(ipv6, ipv6), r.ranges.stats(first, last)}
}

// Ports returns the range of ports that the registry allocates, the zero PortRange for
// none.
func (r *Registry) Ports() PortRange {
	for _, p := range r.ranges.ports.Ports {
		return p
	}
	return PortRange{}
}

// Usable reports whether ip can be held: it is usable in a range, draining or not, and it
// is not reserved. Usable does not report whether ip is held.
func (r *Registry) Usable(ip netip.Addr) bool {
	return addr.CheckAddr(ip) == nil && r.mayHold(subjectOf(ip))
}

// UsablePort is [Registry.Usable] for a port.
func (r *Registry) UsablePort(p Port) bool {
	return p.Number != 0 && p.Protocol.valid() && !slices.ContainsFunc(r.keys(p), func(s subject) bool { return !r.mayHold(s) })
}

func (r *Registry) mayHold(s subject) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ranges.refresh()
	return r.ranges.usable(s)
}
