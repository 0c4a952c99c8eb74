package servicealloc

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// rangeCore is Ranges without the lock.
//
// Prefixes nest or are disjoint, so those of all ranges form a forest, and its roots,
// the largest ones, part the addresses. Each root is an area of all its addresses,
// usable or not; what its ranges make of them is in the zones. What is held has no
// part in this: it is one bit, whatever ranges come and go above it.
type rangeCore struct {
	order   uint8 // windowBits, but for tests
	set     settings
	entries []*RangeInfo // by name
	roots   [2][]*root   // by family, ascending
	own     *rand.PCG    // the source, if the engine made it
	pick    [2]choice
}

// A choice is what the next pick of a family uses. Both values are drawn ahead.
type choice struct {
	which picker // which root
	start picker // where in it
}

func (c *choice) draw() {
	c.which.draw()
	c.start.draw()
}

type root struct {
	prefix netip.Prefix
	*area
}

func newRangeCore(c config) *rangeCore {
	const seed1, seed2 = 'r', 's' // any will do: the ranges are not known yet
	src, own := c.source(seed1, seed2)
	r := &rangeCore{order: windowBits, set: c.settings, own: own}
	for i := range r.pick {
		r.pick[i] = choice{newPicker(src), newPicker(src)}
	}
	return r
}

// slot returns where a family has its place in an array; f is a family.
func (f Family) slot() int {
	if f == IPv4 {
		return 0
	}
	return 1
}

func (f Family) valid() bool { return f == IPv4 || f == IPv6 }

func (c *rangeCore) of(f Family) []*root { return c.roots[f.slot()] }

// search returns where name is, or would be.
func (c *rangeCore) search(name string) (int, bool) {
	return slices.BinarySearchFunc(c.entries, name, func(e *RangeInfo, name string) int { return cmp.Compare(e.Name, name) })
}

func (c *rangeCore) entry(name string) *RangeInfo {
	if i, ok := c.search(name); ok {
		return c.entries[i]
	}
	return nil
}

func (c *rangeCore) add(name string, ps []netip.Prefix) error {
	i, ok := c.search(name)
	if ok {
		return &Error{Op: "add", Name: name, Err: ErrExists}
	}
	if len(ps) == 0 {
		return &Error{Op: "add", Name: name, Err: ErrBadPrefix, Detail: "none given"}
	}
	n := len(ps)
	for _, e := range c.entries {
		n += len(e.Prefixes)
	}
	if n > maxPrefixes {
		return &Error{Op: "add", Name: name, Err: ErrLimit, Detail: "prefixes"}
	}
	for _, p := range ps {
		if err := addr.Check(p); err != nil {
			return &Error{Op: "add", Name: name, Range: p, Err: ErrBadPrefix, Detail: err.Error()}
		}
	}
	c.entries = slices.Insert(c.entries, i, &RangeInfo{Name: name, Prefixes: slices.Clone(ps)})
	c.rebuild()
	return nil
}

func (c *rangeCore) drain(name string) (changed bool, err error) {
	e := c.entry(name)
	if e == nil {
		return false, &Error{Op: "drain", Name: name, Err: ErrNoRange}
	}
	if e.Draining {
		return false, nil
	}
	e.Draining = true
	c.rebuild()
	return true, nil
}

func (c *rangeCore) remove(name string) error {
	i, ok := c.search(name)
	if !ok {
		return &Error{Op: "remove", Name: name, Err: ErrNoRange}
	}
	for ip := range c.dependents(c.entries[i]) {
		return &Error{Op: "remove", Name: name, Addr: ip, Err: ErrInUse}
	}
	c.entries = slices.Delete(c.entries, i, i+1)
	c.rebuild()
	return nil
}

// dependents yields the held addresses that only e has usable. The roots must not
// change meanwhile.
func (c *rangeCore) dependents(e *RangeInfo) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, p := range maximal(ascending(slices.Clone(e.Prefixes))) {
			for ip := range c.heldIn(p) {
				if c.set.hasAny(e.Prefixes, ip) && !c.served(ip, e) && !yield(ip) {
					return
				}
			}
		}
	}
}

// served reports whether a range other than e has ip usable.
func (c *rangeCore) served(ip netip.Addr, e *RangeInfo) bool {
	return slices.ContainsFunc(c.entries, func(o *RangeInfo) bool { return o != e && c.set.hasAny(o.Prefixes, ip) })
}

func (s *settings) hasAny(ps []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return s.has(p, ip) })
}

// has reports whether p alone would have ip usable, reservations apart.
func (s *settings) has(p netip.Prefix, ip netip.Addr) bool {
	if !p.Contains(ip) || ip.Is4In6() {
		return false
	}
	first, last, ok := s.usable(p)
	u := addr.FromAddr(ip)
	return ok && first.Cmp(u) <= 0 && u.Cmp(last) <= 0
}

// heldIn yields the held addresses of p, ascending.
func (c *rangeCore) heldIn(p netip.Prefix) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		next, last := ends(p)
		for {
			a, from, word := c.held(familyOf(p.Addr()), next)
			if a == nil {
				return
			}
			more := true
			if !a.each(from, word, func(ip netip.Addr) bool {
				more = addr.FromAddr(ip).Cmp(last) <= 0
				return more && yield(ip)
			}) || !more {
				return
			}
			if next, more = a.beyond(from); !more || next.Cmp(last) > 0 {
				return
			}
		}
	}
}

// held returns a word of held addresses at or after next, with the area it is in.
func (c *rangeCore) held(f Family, next addr.U128) (a *area, from addr.U128, word uint64) {
	for _, r := range c.of(f) {
		if r.first.Add(r.last).Cmp(next) < 0 {
			continue
		}
		ord := addr.U128{}
		if next.Cmp(r.first) > 0 {
			ord = next.Sub(r.first)
		}
		if from, word, ok := r.held(ord); ok {
			return r.area, from, word
		}
	}
	return nil, addr.U128{}, 0
}

// beyond returns the address after the word that begins at ordinal from, or after the
// area if the word reaches beyond it; ok is false at the end of all addresses.
func (a *area) beyond(from addr.U128) (next addr.U128, ok bool) {
	end := minOf(from.Add(addr.U128{Lo: 63}), a.last)
	next = a.first.Add(end).Add(addr.U128{Lo: 1})
	return next, next.Cmp(a.first) > 0
}

// prefixes returns the prefixes of all ranges of the family, and those of the ranges
// that do not drain, each ascending and once.
func (c *rangeCore) prefixes(f Family) (all, ready []netip.Prefix) {
	for _, e := range c.entries {
		for _, p := range e.Prefixes {
			if familyOf(p.Addr()) != f {
				continue
			}
			all = append(all, p)
			if !e.Draining {
				ready = append(ready, p)
			}
		}
	}
	return ascending(all), ascending(ready)
}

func ascending(ps []netip.Prefix) []netip.Prefix {
	slices.SortFunc(ps, comparePrefix)
	return slices.Compact(ps)
}

// inside returns those of ps, ascending, that lie in p, which none of them contains.
func inside(ps []netip.Prefix, p netip.Prefix) []netip.Prefix {
	i, _ := slices.BinarySearchFunc(ps, p, comparePrefix)
	n := i
	for n < len(ps) && p.Overlaps(ps[n]) {
		n++
	}
	return ps[i:n]
}

// zonesOf returns what the ranges that do not drain, whose prefixes are ready, make of
// the addresses of the root p.
func (c *rangeCore) zonesOf(p netip.Prefix, ready []netip.Prefix) []zone {
	var zones []zone
	for _, q := range inside(ready, p) {
		zones = append(zones, c.set.zonesOf(q)...)
	}
	return merge(c.set.within(p.Addr().Is4(), zones))
}

// rebuild makes the roots anew from the entries and carries over what is held.
func (c *rangeCore) rebuild() {
	for i, f := range []Family{IPv4, IPv6} {
		all, ready := c.prefixes(f)
		old := c.roots[i]
		c.roots[i] = nil
		for _, p := range maximal(all) {
			first, last := ends(p)
			a := newArea(f == IPv4, c.order, first, last, false, c.zonesOf(p, ready))
			for len(old) > 0 && old[0].first.Add(old[0].last).Cmp(first) < 0 {
				old = old[1:] // its addresses end before p: it has gone
			}
			for _, o := range old {
				if !o.prefix.Overlaps(p) {
					break // it begins behind p
				}
				if o.prefix == p {
					a.adopt(o.area)
				} else {
					a.copyFrom(o.area)
				}
			}
			c.roots[i] = append(c.roots[i], &root{p, a})
		}
	}
}

// adopt takes over the windows of o, an area of the same addresses with other zones.
func (a *area) adopt(o *area) {
	if a.wide == nil {
		a.one.bits = o.one.bits
		a.one.recount()
		return
	}
	a.cur, a.rows = o.cur, o.rows
	for _, w := range a.rows {
		last, _ := w.bits.Last()
		w.cut(last, a.zones, a.base(w.idx))
		for b := range a.used {
			a.used[b] = a.used[b].Add(*w.used(Band(b)))
		}
	}
}

// copyFrom takes what is held in o and lies in a.
func (a *area) copyFrom(o *area) {
	ord := addr.U128{}
	if a.first.Cmp(o.first) > 0 {
		ord = a.first.Sub(o.first)
	}
	for more := true; more; {
		from, word, ok := o.held(ord)
		if !ok {
			return
		}
		o.each(from, word, func(ip netip.Addr) bool {
			ord, ok := a.locate(ip)
			if ok {
				a.take(ord)
			}
			return true
		})
		if o.first.Add(from).Cmp(a.first.Add(a.last)) > 0 {
			return
		}
		ord, more = o.past(from)
	}
}

func comparePrefix(p, q netip.Prefix) int {
	return cmp.Or(p.Addr().Compare(q.Addr()), cmp.Compare(p.Bits(), q.Bits()))
}

// maximal returns the prefixes of ps, ascending, that lie in no other.
func maximal(ps []netip.Prefix) (out []netip.Prefix) {
	for _, p := range ps { // what contains p sorts before it
		if n := len(out); n == 0 || !out[n-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// locate returns the area of ip and its ordinal there.
func (c *rangeCore) locate(ip netip.Addr) (*area, addr.U128, bool) {
	if !ip.IsValid() {
		return nil, addr.U128{}, false
	}
	roots := c.of(familyOf(ip))
	u := addr.FromAddr(ip)
	i, ok := slices.BinarySearchFunc(roots, u, func(r *root, u addr.U128) int { return r.first.Cmp(u) })
	if !ok {
		i--
	}
	if i < 0 {
		return nil, addr.U128{}, false
	}
	ord, ok := roots[i].locate(ip)
	return roots[i].area, ord, ok
}

// takeable returns where ip is if it may be taken now.
func (c *rangeCore) takeable(ip netip.Addr) (*area, addr.U128, error) {
	a, ord, ok := c.locate(ip)
	switch {
	case !ok:
		return nil, ord, ErrOutOfRange
	case a.bandOf(ord) != Closed:
		if a.has(ord) {
			return nil, ord, ErrOccupied
		}
		return a, ord, nil
	case c.set.isReserved(ip):
		return nil, ord, ErrReserved
	case c.served(ip, nil):
		return nil, ord, ErrDraining
	}
	return nil, ord, ErrOutOfRange
}

func (c *rangeCore) drop(ip netip.Addr) bool {
	a, ord, ok := c.locate(ip)
	return ok && a.drop(ord)
}

// free returns how many addresses of a band are free, over all roots.
func (c *rangeCore) free(f Family, b Band) (n addr.U128) {
	for _, r := range c.of(f) {
		n = n.Add(r.free(b))
	}
	return n
}

// choose returns the area and the band of the next pick, nil if there is none.
func (c *rangeCore) choose(f Family) (*area, Band) {
	for _, b := range []Band{Dynamic, Static} {
		if b == Static && c.set.neverSpill {
			break
		}
		if i := c.weigh(f, b); i >= 0 {
			return c.of(f)[i].area, b
		}
	}
	return nil, Closed
}

// weigh returns the root that the next pick from band b comes from, -1 if none has
// room: the one that has the k-th free address of the band, k uniform.
func (c *rangeCore) weigh(f Family, b Band) int {
	roots := c.of(f)
	total := c.free(f, b)
	if total.IsZero() {
		return -1
	}
	k := scaleWide(c.pick[f.slot()].which.next, total)
	i := 0
	for n := roots[0].free(b); k.Cmp(n) >= 0; n = roots[i].free(b) { // k is below the sum of all
		k = k.Sub(n)
		i++
	}
	return i
}

// fill fills dst from band b, which has room for all of it.
func (c *rangeCore) fill(f Family, b Band, dst []netip.Addr) {
	if len(dst) == 0 {
		return
	}
	roots := c.of(f)
	for i := c.weigh(f, b); len(dst) > 0; i = (i + 1) % len(roots) {
		n := len(dst)
		if free := roots[i].free(b); free.Hi == 0 && free.Lo < uint64(n) {
			n = int(free.Lo)
		}
		roots[i].pickRun(b, dst[:n], &c.pick[f.slot()].start)
		dst = dst[n:]
	}
}

func (c *rangeCore) stats(f Family) (s Stats) {
	var size, used [3]addr.U128
	for _, r := range c.of(f) {
		for b := range size {
			n, u := r.count(Band(b))
			size[b], used[b] = size[b].Add(n), used[b].Add(u)
		}
	}
	band := func(b Band) BandStats {
		return BandStats{saturate(size[b]), saturate(used[b]), saturate(size[b].Sub(used[b]))}
	}
	return Stats{Static: band(Static), Dynamic: band(Dynamic), Closed: saturate(used[Closed])}
}

// list returns copies of the entries that match.
func (c *rangeCore) list(match func(RangeInfo) bool) []RangeInfo {
	var out []RangeInfo
	for _, e := range c.entries {
		if match(*e) {
			i := *e
			i.Prefixes = slices.Clone(e.Prefixes)
			out = append(out, i)
		}
	}
	return out
}
