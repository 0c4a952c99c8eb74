package servicealloc

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/servicealloc/internal/bands"
)

// A rangeSet has the ranges and reservations of a registry, and the lines of their
// addresses and ports. A line is a space of all its numbers, usable or not; its bands
// follow from the ranges. A held number is one bit of its line, independent of the ranges
// above it. A number that is held on no line is a stray.
type rangeSet struct {
	set     [2]*settings // of addresses and of ports
	ports   *RangeInfo   // the range of the ports; it has no name
	entries []*RangeInfo // ascending by name
	lines   []*line      // ascending
	stale   bool         // a line is
	strays  map[subject]bool
}

type line struct {
	lineKey
	bands.Space
	stale bool // its bands must be rebuilt
}

// newRangeSet returns a set with the ports alone, or an empty set if ports is zero.
func newRangeSet(set *settings, ports PortRange, portSet *settings) *rangeSet {
	r := &rangeSet{set: [2]*settings{set, portSet}, ports: &RangeInfo{}, strays: map[subject]bool{}}
	if ports == (PortRange{}) {
		return r
	}
	r.ports.Ports = []PortRange{ports}
	r.addLine(lineKey{kind: anyPort})
	if ports.PerProtocol {
		for i := range protocols {
			r.addLine(lineKey{kind: onePort + lineKind(i)})
		}
	}
	return r
}

// line returns the line of a key, nil if there is none.
func (r *rangeSet) line(k lineKey) *line {
	if i, ok := slices.BinarySearchFunc(r.lines, k, func(l *line, k lineKey) int { return l.compare(k) }); ok {
		return r.lines[i]
	}
	return nil
}

// addLine adds a line, with its held numbers, if it is absent.
func (r *rangeSet) addLine(k lineKey) {
	i, ok := slices.BinarySearchFunc(r.lines, k, func(l *line, k lineKey) int { return l.compare(k) })
	if ok {
		return
	}
	l := &line{lineKey: k, Space: bands.New(k.last(), r.zones(k))}
	r.lines = slices.Insert(r.lines, i, l)
	for s := range r.strays {
		if s.lineKey == k {
			l.Take(s.x)
			delete(r.strays, s)
		}
	}
}

// zones returns the zones that the ranges make on a line.
func (r *rangeSet) zones(k lineKey) []zone {
	if k.kind >= anyPort {
		return r.set[1].zones(k, append(r.entries[:len(r.entries):len(r.entries)], r.ports)...)
	}
	return r.set[0].zones(k, r.entries...)
}

// refresh rebuilds the bands of the lines whose ranges have changed. A change of ranges
// defers it to the next use, because it is linear in the ranges for each line.
func (r *rangeSet) refresh() {
	if !r.stale {
		return
	}
	r.stale = false
	r.lines = slices.DeleteFunc(r.lines, func(l *line) bool {
		if l.stale {
			l.stale = false
			l.Cut(r.zones(l.lineKey))
			return l.kind < anyPort && l.Bits.Empty() && !slices.ContainsFunc(r.entries, func(e *RangeInfo) bool { return !e.Reserved && l.changes(e) })
		}
		return false
	})
}

// mark records whether s is held, also on no line. The line of all protocols also has the
// numbers that are taken for one protocol.
func (r *rangeSet) mark(s subject, held bool) {
	set := func(l *line, held bool) {
		if held {
			l.Take(s.x)
		} else {
			l.Drop(s.x)
		}
	}
	l := r.line(s.lineKey)
	switch {
	case l != nil:
		set(l, held)
	case held:
		r.strays[s] = true
	default:
		delete(r.strays, s)
	}
	if s.kind < onePort {
		return
	}
	for i := range protocols {
		held = held || r.line(lineKey{kind: onePort + lineKind(i)}).Bits.Test(s.x)
	}
	set(r.line(lineKey{kind: anyPort}), held)
}

// search returns the index of name, or else the index to insert it at.
func (r *rangeSet) search(name string) (int, bool) {
	return slices.BinarySearchFunc(r.entries, name, func(e *RangeInfo, name string) int { return cmp.Compare(e.Name, name) })
}

// size returns the number of prefixes and port ranges, excluding one entry.
func (r *rangeSet) size(without *RangeInfo) (n int) {
	for _, e := range r.entries {
		if e != without {
			n += len(e.Prefixes) + len(e.Ports)
		}
	}
	return n
}

// update replaces old by e; either may be nil for none.
func (r *rangeSet) update(old, e *RangeInfo) {
	if old != nil {
		i, _ := r.search(old.Name)
		r.entries = slices.Delete(r.entries, i, i+1)
	}
	if e != nil {
		i, _ := r.search(e.Name)
		r.entries = slices.Insert(r.entries, i, e)
		for _, p := range e.Prefixes {
			if !e.Reserved {
				r.addLine(subjectOf(p.Addr()).lineKey)
			}
		}
	}
	for _, l := range r.lines {
		if l.changes(old) || l.changes(e) {
			l.stale, r.stale = true, true
		}
	}
}

// changes reports whether e, nil for none, has members on the line.
func (k lineKey) changes(e *RangeInfo) bool {
	return e != nil && (k.kind >= anyPort && len(e.Ports) > 0 ||
		slices.ContainsFunc(e.Prefixes, func(p netip.Prefix) bool { _, ok := k.span(p); return ok }))
}

// uses reports whether e, a range that may be draining, has s.
func (r *rangeSet) uses(e *RangeInfo, s subject) bool {
	return e != nil && !e.Reserved && slices.ContainsFunc(e.Prefixes, func(p netip.Prefix) bool {
		_, in := s.span(p)
		sp, ok := r.set[0].usable(p)
		return in && ok && sp.Has(s.x)
	})
}

// stranded returns a held address that old makes usable and that no range would make
// usable if e, nil for none, replaced old. The result more reports whether there are more
// such addresses.
func (r *rangeSet) stranded(old, e *RangeInfo) (first subject, some, more bool) {
	if old == nil || old.Reserved {
		return first, false, false
	}
	others := append(slices.DeleteFunc(slices.Clone(r.entries), func(o *RangeInfo) bool { return o == old }), e)
	for _, p := range old.Prefixes {
		l := r.line(subjectOf(p.Addr()).lineKey)
		sp, ok := r.set[0].usable(p)
		for x, is := l.Bits.NextSet(sp.Lo); ok && is && x <= sp.Hi; x, is = l.Bits.NextSet(x + 1) {
			s := subject{l.lineKey, x}
			if !slices.ContainsFunc(others, func(o *RangeInfo) bool { return r.uses(o, s) }) {
				if some && s != first {
					return first, true, true
				}
				first, some = s, true
			}
			if x == sp.Hi {
				break
			}
		}
	}
	return first, some, false
}

// takeable returns nil if s can be taken now, or else an error without the holder. It
// takes O(log n). For a number that is never allocated, it also looks at the ranges one
// by one.
func (r *rangeSet) takeable(s subject) *ipalloc.Error {
	l := r.line(s.lineKey)
	switch {
	case l == nil || l.BandOf(s.x) == closed:
		return r.closedTo(s)
	case l.Bits.Test(s.x):
		return &ipalloc.Error{Err: ipalloc.ErrOccupied, Name: r.portText(s), Addr: s.addr(), Port: s.port().Number}
	}
	return nil
}

// usable reports whether s may be held: a range has it, draining or not, and it is not
// reserved.
func (r *rangeSet) usable(s subject) bool {
	e := r.takeable(s)
	return e == nil || e.Err == ipalloc.ErrOccupied || e.Err == ipalloc.ErrInUse
}

// portText returns the Name in an error about a port: the range of ports. It returns ""
// for an address.
func (r *rangeSet) portText(s subject) string {
	if s.kind < anyPort || len(r.ports.Ports) == 0 {
		return ""
	}
	return r.ports.Ports[0].String()
}

// closedTo returns an error that says why s is in no band.
func (r *rangeSet) closedTo(s subject) *ipalloc.Error {
	err := &ipalloc.Error{Name: r.portText(s), Err: ipalloc.ErrOutOfRange}
	if s.kind < anyPort {
		err.Reason = "not a usable address of any range"
	} else if err.Name == "" {
		err.Reason = "there are no ports"
	}
	for _, e := range r.entries {
		for _, p := range e.Prefixes {
			sp, in := s.span(p)
			switch {
			case !in || !sp.Has(s.x) || err.Err == ipalloc.ErrReserved:
			case e.Reserved:
				err = &ipalloc.Error{Name: e.Name, Pool: p, Err: ipalloc.ErrReserved}
			case r.uses(e, s):
				err = &ipalloc.Error{Name: e.Name, Pool: p, Err: ipalloc.ErrInUse, Reason: "only in ranges that are draining"}
			}
		}
		for _, p := range e.Ports {
			if s.kind >= anyPort && err.Name != "" && (span{Lo: uint64(p.First), Hi: uint64(p.Last)}).Has(s.x) {
				err = &ipalloc.Error{Name: e.Name, Err: ipalloc.ErrReserved}
			}
		}
	}
	err.Addr, err.Port = s.addr(), s.port().Number
	return err
}

// pick returns a free number of the lines of one kind: the number whose rank follows from
// u, each with the same probability. It picks from the dynamic band if that has a free
// number, else from the static band. b is closed if there is no free number.
func (r *rangeSet) pick(k lineKind, u uint64) (s subject, b bands.ID) {
	set := r.set[0]
	if k >= anyPort {
		set = r.set[1]
	}
	for b := dynamic; b > closed && (b == dynamic || !set.neverSpill); b-- {
		var total addr.U128
		for _, l := range r.lines {
			if l.kind == k {
				total = total.Add(addr.U128{Lo: l.Band(b).Free()})
			}
		}
		rank := scaleWide(u, total)
		for _, l := range r.lines {
			if free := (addr.U128{Lo: l.Band(b).Free()}); l.kind == k && rank.Cmp(free) < 0 {
				return subject{l.lineKey, l.FreeAt(l.Band(b), rank.Lo)}, b
			} else if l.kind == k {
				rank = rank.Sub(free)
			}
		}
	}
	return s, closed
}

// stats returns the counts of the lines of the kinds from lo to hi.
func (r *rangeSet) stats(lo, hi lineKind) (sum Stats) {
	for _, l := range r.lines {
		if lo <= l.kind && l.kind <= hi {
			sum = sum.add(statsOf(&l.Space))
		}
	}
	for s := range r.strays {
		if lo <= s.kind && s.kind <= hi {
			sum.Closed++
		}
	}
	return sum
}

// check compares the lines with the zones that the entries make on them.
func (r *rangeSet) check() error {
	for _, e := range r.entries {
		for _, p := range e.Prefixes {
			if !e.Reserved && r.line(subjectOf(p.Addr()).lineKey) == nil {
				return corrupt(ipalloc.Error{Name: e.Name, Pool: p}, "a range without a line")
			}
		}
	}
	for _, l := range r.lines {
		if err := l.Check(r.zones(l.lineKey)); err != nil {
			return corrupt(ipalloc.Error{Addr: subject{lineKey: l.lineKey}.addr(), Name: r.portText(subject{lineKey: l.lineKey})}, err.Error())
		}
	}
	return nil
}

func (r *rangeSet) write(w *wire.Coder) {
	n := len(r.entries)
	w.Count(&n, minRange)
	for _, e := range r.entries {
		e.code(w)
	}
}

const minRange = 4 // the fewest bytes that a range takes

func (e *RangeInfo) code(c *wire.Coder) {
	wire.String(c, &e.Name)
	wire.Bool(c, &e.Draining)
	wire.Bool(c, &e.Reserved)
	wire.List(c, &e.Prefixes, 2, wire.AnyPrefix)
	wire.List(c, &e.Ports, 3, codePortRange)
}

func (r *rangeSet) read(d *wire.Coder) {
	before, total, n := "", 0, 0
	d.Count(&n, minRange)
	for i := 0; i < n && d.Err == nil; i++ {
		e := &RangeInfo{}
		e.code(d)
		if total += len(e.Prefixes) + len(e.Ports); total > maxPrefixes || i > 0 && e.Name <= before {
			d.Fail("the range %q", e.Name)
		}
		if _, why := e.refuse(); d.Err == nil && why != "" {
			d.Fail("the range %q: %s", e.Name, why)
		}
		if d.Err == nil {
			r.update(nil, e)
		}
		before = e.Name
	}
	r.refresh()
}
