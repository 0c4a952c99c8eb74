package servicealloc

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/bitmap"
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
	if (a.wide == nil) != (want.wide == nil) {
		return errors.New("number of windows")
	}
	zones = relative(zones, a.first)
	if a.wide == nil {
		return a.one.check(zones, addr.U128{})
	}
	if !slices.Equal(a.zones, zones) || a.size != want.size {
		return errors.New("bands")
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
			used[b] = used[b].Add(*w.used(Band(b)))
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
	for _, b := range []Band{Static, Dynamic} {
		w, h := want.band(b), s.band(b)
		if w.span != h.span || !slices.Equal(w.more, h.more) || w.size != h.size {
			return fmt.Errorf("%v band", b)
		}
	}
	for b := Closed; b <= Dynamic; b++ {
		if w, h := *want.used(b), *s.used(b); w != h {
			return fmt.Errorf("%v band: counted %v taken, there are %v", b, h, w)
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
	for i := range p.space {
		if err := p.space[i].check(want.space[i].zones(), addr.U128{}); err != nil {
			return fmt.Errorf("servicealloc: ports %v/%v: %w", p.r, Protocol(i+1), err)
		}
	}
	return nil
}

// zones returns the bands as zones, the inverse of cut.
func (s *space) zones() (zones []zone) {
	for _, b := range []Band{Static, Dynamic} {
		for _, sp := range s.band(b).spans() {
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
	for i, f := range []Family{IPv4, IPv6} {
		all, ready := c.prefixes(f)
		if !slices.EqualFunc(c.roots[i], maximal(all), func(r *root, p netip.Prefix) bool { return r.prefix == p }) {
			return errors.New("servicealloc: the largest prefixes")
		}
		for _, root := range c.roots[i] {
			if err := root.check(c.zonesOf(root.prefix, ready)); err != nil {
				return fmt.Errorf("servicealloc: ranges in %v: %w", root.prefix, err)
			}
		}
	}
	return c.strays()
}

// strays says if something is held that no range, draining or not, has usable. Cost:
// O(log n) for each zone.
func (c *rangeCore) strays() error {
	for i, f := range []Family{IPv4, IPv6} {
		all, _ := c.prefixes(f)
		for _, r := range c.roots[i] {
			var zones []zone
			for _, p := range inside(all, r.prefix) {
				if first, last, ok := c.set.usable(p); ok {
					zones = append(zones, zone{first, last, Dynamic})
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
	zones = relative(zones, a.first)
	outside := func(b *bitmap.Bitmap, base addr.U128) bool {
		last, _ := b.Last()
		s := &space{bits: b}
		s.cut(last, zones, base)
		return !s.closed.IsZero()
	}
	if a.wide == nil {
		return outside(a.one.bits, addr.U128{})
	}
	return slices.ContainsFunc(a.rows, func(w window) bool { return outside(w.bits, a.base(w.idx)) })
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
	for i := range r.ports.space {
		ports -= int(r.ports.space[i].bits.Count())
	}
	if ports != 0 {
		return errors.New("servicealloc: ports taken and owned differ")
	}
	return nil
}
