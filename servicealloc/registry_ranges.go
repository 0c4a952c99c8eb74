package servicealloc

import (
	"github.com/ipalloc/ipalloc"
)

// SetRange adds the range, or changes the one of that name to it: draining can be begun
// and undone, prefixes can come and go. What is held stays held, and an address that
// another range makes usable stays usable. Ranges may overlap, nest and repeat each
// other: an address is usable if any range that is not draining has it usable, static
// if it is static in any, and held once. Setting a range to what it is changes nothing.
//
// It fails with [ipalloc.ErrInvalid] if a prefix is invalid, zoned, 4-in-6, unmasked or,
// for a range, an IPv6 prefix wider than /64; with [ipalloc.ErrLimit] if there would be
// more than 4,096 prefixes; and with [ipalloc.ErrInUse] if addresses are held that no
// range would have any more, of which the error names the first and its holder. It is
// linear in the ranges, and in what is held below a prefix that now lies inside a larger
// one.
func (r *Registry) SetRange(info RangeInfo) error {
	r.lock()
	defer r.unlock()
	fail := func(e ipalloc.Error) error {
		e.Package, e.Op, e.Name = "servicealloc", "set range", info.Name
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
	return r.replaceRange("set range", old, &e)
}

// replaceRange puts e, nil for none, in the place of old, nil for none, unless something
// is held that only old has.
func (r *Registry) replaceRange(op string, old, e *RangeInfo) error {
	kind, is := RangeSet, e
	if e == nil {
		kind, is = RangeRemoved, old
	}
	if ip, n := r.ranges.stranded(old, e); n > 0 {
		h, _ := r.holder(subject{addr: ip})
		why := "an address is held that no other range has"
		if n > 1 {
			why = "addresses are held that no other range has"
		}
		return &ipalloc.Error{Package: "servicealloc", Op: op, Name: is.Name, Addr: ip, Holder: h.Owner, Reason: why, Err: ipalloc.ErrInUse}
	}
	r.ranges.update(old, e)
	r.ports.cut(r.ranges.ports)
	if r.changes != nil {
		r.changes.Add(Change{Kind: kind, Range: is.clone()})
	}
	return nil
}

// RemoveRange removes a range, draining or not, or a reservation.
//
// It fails with [ipalloc.ErrNotFound] if there is none of that name, and with
// [ipalloc.ErrInUse] if addresses are held that no other range has; the error names the
// first and its holder. Nothing is changed then.
func (r *Registry) RemoveRange(name string) error {
	r.lock()
	defer r.unlock()
	i, ok := r.ranges.search(name)
	if !ok {
		return &ipalloc.Error{Package: "servicealloc", Op: "remove range", Name: name, Err: ipalloc.ErrNotFound}
	}
	return r.replaceRange("remove range", r.ranges.entries[i], nil)
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

// Stats returns the counts of the IPv4 addresses, of the IPv6 addresses and of the
// ports, each address counted once. Numbers saturate at 2^64-1. It is linear in the
// disjoint ranges.
func (r *Registry) Stats() (v4, v6, ports Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ranges.stats(0), r.ranges.stats(1), r.ports.stats()
}
