package servicealloc

import (
	"net/netip"
	"slices"
)

// AddRange is [Ranges.Add].
func (r *Registry) AddRange(name string, ps ...netip.Prefix) error {
	r.mu.Lock()
	if err := r.ranges.add(name, ps); err != nil {
		r.mu.Unlock()
		return err
	}
	r.unlock(Change{Op: OpAddRange, Name: name, Prefixes: slices.Clone(ps)})
	return nil
}

// DrainRange is [Ranges.Drain].
func (r *Registry) DrainRange(name string) error {
	r.mu.Lock()
	changed, err := r.ranges.drain(name)
	if err != nil || !changed {
		r.mu.Unlock()
		return err
	}
	r.unlock(Change{Op: OpDrainRange, Name: name})
	return nil
}

// RemoveRange is [Ranges.Remove]; the error says who holds the address in the way.
func (r *Registry) RemoveRange(name string) error {
	r.mu.Lock()
	if err := r.ranges.remove(name); err != nil {
		if e, ok := err.(*Error); ok {
			e.Holder = holder(r.byAddr[e.Addr])
		}
		r.mu.Unlock()
		return err
	}
	r.unlock(Change{Op: OpRemoveRange, Name: name})
	return nil
}

// Ranges returns the address ranges in the order of their names.
func (r *Registry) Ranges() []RangeInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ranges.list(func(RangeInfo) bool { return true })
}

// PortRange returns the range of the ports, zero if there are none.
func (r *Registry) PortRange() PortRange {
	if r.ports == nil {
		return PortRange{}
	}
	return r.ports.r
}

// Remaining returns the grants that stand in the way of removing a range, in the order
// of their addresses in it: those with an address that no other range has usable.
//
// [ErrNoRange]: there is none of that name.
func (r *Registry) Remaining(name string) ([]Grant, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.ranges.entry(name)
	if e == nil {
		return nil, &Error{Op: "list remaining of", Name: name, Err: ErrNoRange}
	}
	var out []Grant
	for ip := range r.ranges.dependents(e) {
		g := r.byAddr[ip]
		if !slices.ContainsFunc(out, func(o Grant) bool { return o.Owner == g.Owner }) {
			out = append(out, g.clone())
		}
	}
	return out, nil
}

// Stats returns the counts of the addresses of one family, zero if f is no family.
// Cost: linear in the disjoint prefixes.
func (r *Registry) Stats(f Family) Stats {
	if !f.valid() {
		return Stats{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ranges.stats(f)
}

// PortStats returns the counts of the ports of proto, zero if there are none. Cost:
// O(1).
func (r *Registry) PortStats(proto Protocol) Stats {
	if r.ports == nil || !proto.valid() {
		return Stats{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ports.space[proto-1].stats()
}

// Band returns the band of ip as the ranges are now.
func (r *Registry) Band(ip netip.Addr) Band {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ord, ok := r.ranges.locate(ip)
	if !ok {
		return Closed
	}
	return a.bandOf(ord)
}
