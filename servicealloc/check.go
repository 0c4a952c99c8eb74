package servicealloc

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Check recomputes everything that the range derives, the bands, the counts and the
// order of what it holds, and says what differs. It is for tests and for a program that
// doubts; nothing needs it. Cost: linear in the memory of the range.
func (r *Range) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first, last, ok := r.set.usable(r.p); ok == r.area.none || ok && (first != r.area.first || last.Sub(first) != r.area.last) {
		return fmt.Errorf("servicealloc: range %v: usable addresses", r.p)
	}
	if err := r.area.check(merge(r.set.within(r.area.v4, r.set.zonesOf(r.p)))); err != nil {
		return fmt.Errorf("servicealloc: range %v: %w", r.p, err)
	}
	return nil
}

// check recomputes a from zones, in addresses.
func (a *area) check(zones []zone) error {
	if a.none {
		return nil
	}
	want := newArea(a.v4, a.order, a.first, a.first.Add(a.last), false, zones)
	if !slices.Equal(a.zones, want.zones) || a.size != want.size || (a.one == nil) != (want.one == nil) {
		return errors.New("bands")
	}
	if a.one != nil {
		return a.one.check(a.zones, addr.U128{})
	}
	var used [3]addr.U128
	for i, w := range a.rows {
		if i > 0 && a.rows[i-1].idx >= w.idx {
			return fmt.Errorf("window %d: out of order", w.idx)
		}
		if w.idx != a.cur && w.bits.Empty() {
			return fmt.Errorf("window %d: holds nothing", w.idx)
		}
		if err := w.check(a.zones, a.base(w.idx)); err != nil {
			return fmt.Errorf("window %d: %w", w.idx, err)
		}
		for b := range used {
			used[b] = used[b].Add(w.bands[b].used)
		}
	}
	if used != a.used {
		return fmt.Errorf("taken %v, counted %v", used, a.used)
	}
	return nil
}

func (s *space) check(zones []zone, base addr.U128) error {
	if err := s.bits.Check(); err != nil {
		return err
	}
	last, _ := s.bits.Last()
	want := &space{bits: s.bits}
	want.cut(last, zones, base)
	if want.simple != s.simple || want.simple && want.split != s.split {
		return errors.New("shape of the bands")
	}
	for b := range want.bands {
		w, h := &want.bands[b], &s.bands[b]
		if !slices.Equal(w.spans, h.spans) || !slices.Equal(w.before, h.before) || w.size != h.size {
			return fmt.Errorf("%v band", Band(b))
		}
		if w.used != h.used {
			return fmt.Errorf("%v band: %v taken, counted %v", Band(b), h.used, w.used)
		}
	}
	return nil
}

// Check is [Range.Check] for ports.
func (p *Ports) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.check()
}

func (p *portCore) check() error {
	want, err := newPortCore(p.r, config{settings: p.set})
	if err != nil {
		return err
	}
	for i, s := range p.space {
		if err := s.check(want.space[i].zones(), addr.U128{}); err != nil {
			return fmt.Errorf("servicealloc: ports %v/%v: %w", p.r, Protocol(i+1), err)
		}
	}
	return nil
}

// zones returns the bands as zones, the inverse of cut.
func (s *space) zones() (zones []zone) {
	for _, b := range []Band{Static, Dynamic} {
		for _, sp := range s.bands[b].spans {
			zones = append(zones, zone{addr.U128{Lo: sp.lo}, addr.U128{Lo: sp.hi}, b})
		}
	}
	slices.SortFunc(zones, func(x, y zone) int { return x.lo.Cmp(y.lo) })
	return zones
}

// Check is [Range.Check] for several ranges. It also says if an address is held that no
// range has usable.
func (r *Ranges) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.check()
}

func (c *rangeCore) check() error {
	again := &rangeCore{order: c.order, set: c.set, entries: c.entries}
	again.rebuild()
	for i := range c.roots {
		if !slices.EqualFunc(c.roots[i], again.roots[i], func(x, y *root) bool { return x.prefix == y.prefix }) {
			return errors.New("servicealloc: the largest prefixes")
		}
		for j, root := range c.roots[i] {
			zones := slices.Clone(again.roots[i][j].zones)
			for k := range zones {
				zones[k].lo, zones[k].hi = zones[k].lo.Add(root.first), zones[k].hi.Add(root.first)
			}
			if err := root.check(zones); err != nil {
				return fmt.Errorf("servicealloc: ranges in %v: %w", root.prefix, err)
			}
		}
	}
	return c.strays()
}

// strays says if something is held that no range, draining or not, has usable. Cost:
// O(log n) for each zone.
func (c *rangeCore) strays() error {
	for _, roots := range c.roots {
		for _, r := range roots {
			var zones []zone
			for _, e := range c.entries {
				for _, p := range e.Prefixes {
					if first, last, ok := c.set.usable(p); ok && r.prefix.Overlaps(p) {
						zones = append(zones, zone{first, last, Dynamic})
					}
				}
			}
			if r.holdsOutside(merge(zones)) {
				return fmt.Errorf("servicealloc: an address of %v is held that no range has", r.prefix)
			}
		}
	}
	return nil
}

// holdsOutside reports whether something is held outside zones, which are in addresses.
func (a *area) holdsOutside(zones []zone) bool {
	for i := range zones {
		zones[i].lo, zones[i].hi = zones[i].lo.Sub(a.first), zones[i].hi.Sub(a.first)
	}
	outside := func(s *space, base addr.U128) bool {
		last, _ := s.bits.Last()
		t := &space{bits: s.bits}
		t.cut(last, zones, base)
		return t.bands[Closed].used != addr.U128{}
	}
	if a.one != nil {
		return outside(a.one, addr.U128{})
	}
	return slices.ContainsFunc(a.rows, func(w window) bool { return outside(w.space, a.base(w.idx)) })
}

// Check is [Ranges.Check] for what the registry hands out. It also says if its indexes
// and what its owners hold differ from what is taken.
func (r *Registry) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ranges.check(); err != nil {
		return err
	}
	addrs, ports := 0, 0
	for name, g := range r.owners {
		if g.Owner != name || g.Generation == 0 || g.Generation > r.last {
			return fmt.Errorf("servicealloc: owner %q: its grant is %q, generation %d of %d", name, g.Owner, g.Generation, r.last)
		}
		if err := r.checkGrant(g); err != nil {
			return fmt.Errorf("servicealloc: owner %q: %w", name, err)
		}
		addrs, ports = addrs+len(g.Addrs), ports+len(g.Ports)
	}
	if len(r.byAddr) != addrs || len(r.byPort) != ports {
		return errors.New("servicealloc: an index has more than the owners")
	}
	return r.checkTaken(addrs, ports)
}

func (r *Registry) checkGrant(g *Grant) error {
	for _, ip := range g.Addrs {
		if a, ord, ok := r.ranges.locate(ip); !ok || !a.has(ord) || r.byAddr[ip] != g {
			return fmt.Errorf("%v is not taken for it", ip)
		}
	}
	for _, p := range g.Ports {
		if r.ports == nil || r.byPort[p] != g {
			return fmt.Errorf("%v is not taken for it", p)
		}
		if s, x, err := r.ports.locate(p); err != nil || !s.bits.Test(x) {
			return fmt.Errorf("%v is not taken", p)
		}
	}
	return nil
}

// checkTaken compares how much is taken with how much the owners hold.
func (r *Registry) checkTaken(addrs, ports int) error {
	taken := 0
	for _, p := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		for range r.ranges.heldIn(p) {
			taken++
		}
	}
	if taken != addrs {
		return fmt.Errorf("servicealloc: %d addresses taken, %d owned", taken, addrs)
	}
	if r.ports == nil {
		return nil
	}
	if err := r.ports.check(); err != nil {
		return err
	}
	for _, s := range r.ports.space {
		ports -= int(s.bits.Count())
	}
	if ports != 0 {
		return errors.New("servicealloc: ports taken and owned differ")
	}
	return nil
}
