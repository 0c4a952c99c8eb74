package servicealloc

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/snap"
)

// A rangeSet is the address ranges and reservations of a registry.
//
// Prefixes nest or are disjoint, so those of all ranges form a forest, and its roots,
// the largest ones, part the addresses. Each root is an area of all its addresses,
// usable or not; what the ranges make of them is in its bands. What is held has no part
// in this: it is one bit, whatever ranges come and go above it. What is held where no
// range is, is a stray.
type rangeSet struct {
	set      *settings
	entries  []*RangeInfo // ascending by name
	families [2]family    // IPv4, IPv6
	ports    []PortRange  // reserved
	strays   map[netip.Addr]bool
}

type family struct {
	all   []ranked // the prefixes of all entries, ascending; repeats stay
	roots []*root  // ascending
}

type ranked struct {
	netip.Prefix
	of *RangeInfo
}

type root struct {
	prefix netip.Prefix
	area
}

// slot returns where the family of ip has its place in an array.
func slot(ip netip.Addr) int {
	if ip.Is4() {
		return 0
	}
	return 1
}

// search returns where name is, or would be.
func (r *rangeSet) search(name string) (int, bool) {
	return slices.BinarySearchFunc(r.entries, name, func(e *RangeInfo, name string) int { return cmp.Compare(e.Name, name) })
}

func comparePrefix(p ranked, q netip.Prefix) int {
	return cmp.Or(p.Addr().Compare(q.Addr()), cmp.Compare(p.Bits(), q.Bits()))
}

func (e *RangeInfo) clone() RangeInfo {
	c := *e
	c.Prefixes, c.Ports = slices.Clone(e.Prefixes), slices.Clone(e.Ports)
	return c
}

func (e *RangeInfo) equal(o *RangeInfo) bool {
	return e.Draining == o.Draining && e.Reserved == o.Reserved && slices.Equal(e.Prefixes, o.Prefixes) && slices.Equal(e.Ports, o.Ports)
}

// refuse returns why e cannot be, "" if it can.
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

// size returns the number of prefixes and port ranges, without those of one entry.
func (r *rangeSet) size(without *RangeInfo) (n int) {
	for _, e := range r.entries {
		if e != without {
			n += len(e.Prefixes) + len(e.Ports)
		}
	}
	return n
}

// update puts e, nil for none, in the place of old, nil for none, and carries over what
// is held. Only the roots that one of the two overlaps are made anew.
func (r *rangeSet) update(old, e *RangeInfo) {
	changed := [2][]netip.Prefix{}
	if old != nil {
		i, _ := r.search(old.Name)
		r.entries = slices.Delete(r.entries, i, i+1)
		for _, p := range old.Prefixes {
			f := &r.families[slot(p.Addr())]
			i := slices.IndexFunc(f.all, func(q ranked) bool { return q.of == old && q.Prefix == p })
			f.all = slices.Delete(f.all, i, i+1)
			changed[slot(p.Addr())] = append(changed[slot(p.Addr())], p)
		}
	}
	if e != nil {
		i, _ := r.search(e.Name)
		r.entries = slices.Insert(r.entries, i, e)
		for _, p := range e.Prefixes {
			f := &r.families[slot(p.Addr())]
			i, _ := slices.BinarySearchFunc(f.all, p, comparePrefix)
			f.all = slices.Insert(f.all, i, ranked{p, e})
			changed[slot(p.Addr())] = append(changed[slot(p.Addr())], p)
		}
	}
	for i := range r.families {
		if len(changed[i]) > 0 {
			r.rebuild(&r.families[i], changed[i])
		}
	}
	r.ports = nil
	for _, e := range r.entries {
		r.ports = append(r.ports, e.Ports...)
	}
}

// rebuild makes the roots of f that a changed prefix overlaps anew.
func (r *rangeSet) rebuild(f *family, changed []netip.Prefix) {
	old := f.roots
	f.roots = nil
	var gone []*root
	for _, q := range f.all {
		if q.of.Reserved || len(f.roots) > 0 && f.roots[len(f.roots)-1].prefix.Overlaps(q.Prefix) {
			continue // what contains q sorts before it
		}
		for len(old) > 0 && old[0].prefix.Addr().Compare(q.Addr()) < 0 {
			gone, old = append(gone, old[0]), old[1:]
		}
		if len(old) == 0 || old[0].prefix != q.Prefix {
			first, last := ends(q.Prefix)
			n := &root{prefix: q.Prefix, area: areaOf(q.Prefix, first, last, true)}
			n.init(n.last, r.zonesOf(f, n))
			f.roots = append(f.roots, n)
			continue
		}
		f.roots, old = append(f.roots, old[0]), old[1:]
		if same := f.roots[len(f.roots)-1]; slices.ContainsFunc(changed, same.prefix.Overlaps) {
			same.cut(r.zonesOf(f, same))
		}
	}
	for _, o := range append(gone, old...) {
		o.each(unshared{}, func(x uint64) bool { r.set1(o.addr(x)); return true })
	}
	for ip := range r.strays {
		if n, x := r.locate(ip); n != nil {
			n.take(x)
			delete(r.strays, ip)
		}
	}
}

// set1 notes that ip is held, wherever it lies.
func (r *rangeSet) set1(ip netip.Addr) {
	if n, x := r.locate(ip); n != nil {
		n.take(x)
		return
	}
	r.strays[ip] = true
}

// drop notes that ip is not held any more.
func (r *rangeSet) drop(ip netip.Addr) {
	if n, x := r.locate(ip); n != nil {
		n.drop(x)
		return
	}
	delete(r.strays, ip)
}

// inside returns the prefixes of f that lie in p, which is a root.
func (f *family) inside(p netip.Prefix) []ranked {
	i, _ := slices.BinarySearchFunc(f.all, p, comparePrefix)
	n := i
	for n < len(f.all) && p.Overlaps(f.all[n].Prefix) {
		n++
	}
	return f.all[i:n]
}

// zonesOf returns what the ranges that do not drain make of the addresses of n.
func (r *rangeSet) zonesOf(f *family, n *root) []zone {
	var zones []zone
	for _, q := range f.inside(n.prefix) {
		if !q.of.Draining && !q.of.Reserved {
			zones = r.set.zonesOf(&n.area, q.Prefix, zones)
		}
	}
	var reserved []netip.Prefix
	for _, e := range r.entries {
		if e.Reserved {
			reserved = append(reserved, e.Prefixes...)
		}
	}
	return r.set.finish(&n.area, zones, reserved)
}

// stranded returns an address that is held, that old makes usable, and that no range
// would if e, nil for none, took its place; and how many there are.
func (r *rangeSet) stranded(old, e *RangeInfo) (first netip.Addr, count uint64) {
	if old == nil || old.Reserved {
		return first, 0
	}
	done := map[*root]bool{}
	for _, p := range old.Prefixes {
		n, _ := r.locate(p.Addr())
		if done[n] {
			continue
		}
		done[n] = true
		var zones []zone
		usable := func(p netip.Prefix, b bandID) {
			lo, hi, ok := r.set.usable(p)
			if sp, in := n.spanOf(lo, hi); ok && in && slot(p.Addr()) == slot(n.prefix.Addr()) {
				zones = append(zones, zone{sp, b})
			}
		}
		for _, q := range r.families[slot(p.Addr())].inside(n.prefix) {
			if q.of == old {
				usable(q.Prefix, dynamic)
			} else if !q.of.Reserved {
				usable(q.Prefix, closed) // out of what merge returns
			}
		}
		if e != nil && !e.Reserved {
			for _, q := range e.Prefixes {
				usable(q, closed)
			}
		}
		for _, z := range merge(zones) {
			if k := n.bits.CountRange(z.lo, z.hi); k > 0 {
				if x, _ := n.bits.NextSet(z.lo); count == 0 {
					first = n.addr(x)
				}
				count += k
			}
		}
	}
	return first, count
}

// locate returns the root of ip and its position there, nil if it lies in no range.
func (r *rangeSet) locate(ip netip.Addr) (*root, uint64) {
	roots := r.families[slot(ip)].roots
	i, ok := slices.BinarySearchFunc(roots, ip, func(n *root, ip netip.Addr) int { return n.prefix.Addr().Compare(ip) })
	if !ok {
		i--
	}
	if i < 0 {
		return nil, 0
	}
	if x, ok := roots[i].locate(ip); ok {
		return roots[i], x
	}
	return nil, 0
}

// takeable returns nil if ip can be taken now. It takes O(log n), and only for an address
// that is never handed out also looks at the ranges one by one.
func (r *rangeSet) takeable(ip netip.Addr) *ipalloc.Error {
	n, x := r.locate(ip)
	switch {
	case n == nil || n.bandOf(x) == closed:
		return r.closedTo(ip)
	case n.bits.Test(x):
		return &ipalloc.Error{Err: ipalloc.ErrOccupied}
	}
	return nil
}

// closedTo says why ip is in no band.
func (r *rangeSet) closedTo(ip netip.Addr) *ipalloc.Error {
	err := &ipalloc.Error{Err: ipalloc.ErrOutOfRange, Reason: "not a usable address of any range"}
	for _, e := range r.entries {
		for _, p := range e.Prefixes {
			switch {
			case !p.Contains(ip):
			case e.Reserved:
				return &ipalloc.Error{Name: e.Name, Pool: p, Err: ipalloc.ErrReserved}
			case r.set.has(p, ip):
				err = &ipalloc.Error{Name: e.Name, Pool: p, Err: ipalloc.ErrInUse, Reason: "only in ranges that are draining"}
			}
		}
	}
	return err
}

// has reports whether p by itself makes ip usable.
func (s *settings) has(p netip.Prefix, ip netip.Addr) bool {
	if !p.Contains(ip) || ip.Is4In6() {
		return false
	}
	first, last, ok := s.usable(p)
	u := addr.FromAddr(ip)
	return ok && first.Cmp(u) <= 0 && u.Cmp(last) <= 0
}

// pick returns where the next address of a family comes from: the root that has the
// k-th free address of the band, k uniform by which, and there the way of a Range from
// start. b is closed if there is none.
func (r *rangeSet) pick(f int, which, start uint64) (n *root, x uint64, b bandID) {
	roots := r.families[f].roots
	for b := dynamic; b > closed && (b == dynamic || !r.set.neverSpill); b-- {
		var total addr.U128
		for _, n := range roots {
			total = total.Add(addr.U128{Lo: n.band(b).free()})
		}
		if total.IsZero() {
			continue
		}
		k := scaleWide(which, total)
		for _, n := range roots {
			free := addr.U128{Lo: n.band(b).free()}
			if k.Cmp(free) < 0 {
				return n, n.peek(b, start), b
			}
			k = k.Sub(free)
		}
	}
	return nil, 0, closed
}

func (r *rangeSet) stats(f int) (sum Stats) {
	for _, n := range r.families[f].roots {
		sum = sum.add(n.stats())
	}
	return sum
}

// check compares the roots with what the entries make of them.
func (r *rangeSet) check() error {
	want := rangeSet{set: r.set, strays: map[netip.Addr]bool{}}
	for _, e := range r.entries {
		want.update(nil, e)
	}
	for i := range r.families {
		f, g := &r.families[i], &want.families[i]
		if !slices.EqualFunc(f.roots, g.roots, func(a, b *root) bool { return a.prefix == b.prefix }) ||
			!slices.EqualFunc(f.all, g.all, func(a, b ranked) bool { return a.Prefix == b.Prefix }) {
			return corrupt(ipalloc.Error{}, "the prefixes of the ranges")
		}
		for _, n := range f.roots {
			if err := n.check(r.zonesOf(f, n)); err != nil {
				return corrupt(ipalloc.Error{Pool: n.prefix}, err.Error())
			}
		}
	}
	return nil
}

func (r *rangeSet) write(w *snap.Writer) {
	w.Count(len(r.entries))
	for _, e := range r.entries {
		w.String(e.Name)
		w.Bool(e.Draining)
		w.Bool(e.Reserved)
		snap.WriteList(w, e.Prefixes, w.Prefix)
		snap.WriteList(w, e.Ports, func(p PortRange) { p.write(w) })
	}
}

func (r *rangeSet) read(d *snap.Reader) {
	before, total := "", 0
	for n, i := d.Count(4), 0; i < n && d.Err() == nil; i++ {
		e := &RangeInfo{Name: d.String(), Draining: d.Bool(), Reserved: d.Bool(), Prefixes: snap.ReadList(d, 2, d.Prefix),
			Ports: snap.ReadList(d, 3, func() PortRange { return readPortRange(d) })}
		if total += len(e.Prefixes) + len(e.Ports); total > maxPrefixes || i > 0 && e.Name <= before {
			d.Fail("the range %q", e.Name)
		}
		if _, why := e.refuse(); d.Err() == nil && why != "" {
			d.Fail("the range %q: %s", e.Name, why)
		}
		if d.Err() == nil {
			r.update(nil, e)
		}
		before = e.Name
	}
}
