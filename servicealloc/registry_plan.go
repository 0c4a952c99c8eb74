package servicealloc

import (
	"net/netip"
	"slices"
)

// feasible reports why owner can't have req, nil if it can: after that, apply does not
// fail.
func (r *Registry) feasible(owner string, req Request) error {
	if err := wellFormed(owner, req); err != nil {
		return err
	}
	return r.available(owner, req)
}

// wellFormed refuses a request that no registry could answer.
func wellFormed(owner string, req Request) error {
	bad := func(e Error) error {
		e.Op, e.Owner = "allocate", owner
		return &e
	}
	if owner == "" {
		return bad(Error{Err: ErrBadRequest, Detail: "no owner"})
	}
	var families [2]bool
	for _, ip := range req.Addrs {
		if !ip.IsValid() || ip.Is4In6() || ip.Zone() != "" {
			return bad(Error{Addr: ip, Err: ErrOutOfRange, Detail: "not an IPv4 or IPv6 address without zone"})
		}
		f := familyOf(ip)
		if families[f.slot()] {
			return bad(Error{Err: ErrBadRequest, Detail: "two addresses of " + f.String()})
		}
		families[f.slot()] = true
	}
	if len(req.Ports) > maxRequestPorts {
		return bad(Error{Err: ErrBadRequest, Detail: "more than 1024 ports"})
	}
	for i, p := range req.Ports {
		if !p.Protocol.valid() {
			return bad(Error{Port: p, Err: ErrBadPort})
		}
		if p.Number != 0 && slices.Contains(req.Ports[:i], p) {
			return bad(Error{Port: p, Err: ErrBadRequest, Detail: "named twice"})
		}
	}
	return nil
}

// available reports why a well-formed request can't be met now.
func (r *Registry) available(owner string, req Request) error {
	fail := func(e Error) error {
		e.Op, e.Owner = "allocate", owner
		return &e
	}
	for _, ip := range req.Addrs {
		if f := familyOf(ip); ip.IsUnspecified() {
			if a, _ := r.ranges.choose(f); a == nil {
				return fail(Error{Err: ErrFull, Detail: f.String()})
			}
			continue
		}
		if _, _, err := r.ranges.takeable(ip); err != nil {
			return fail(Error{Addr: ip, Err: err, Holder: holder(r.byAddr[ip])})
		}
	}
	for _, p := range req.Ports {
		if r.ports == nil {
			return fail(Error{Port: p, Err: ErrOutOfRange, Detail: "there are no ports"})
		}
		if p.Number == 0 {
			continue
		}
		if _, err := r.ports.takeable(p); err != nil {
			return fail(Error{Port: p, Err: err, Holder: holder(r.byPort[p])})
		}
	}
	for proto := TCP; proto <= SCTP; proto++ {
		if !r.roomFor(proto, req.Ports) {
			return fail(Error{Err: ErrFull, Detail: proto.String()})
		}
	}
	return nil
}

func holder(g *Grant) string {
	if g == nil {
		return ""
	}
	return g.Owner
}

// roomFor reports whether the engine can choose the ports of proto that are left open,
// after the named ones, which are free, are taken.
func (r *Registry) roomFor(proto Protocol, ports []Port) bool {
	if r.ports == nil {
		return true
	}
	s := &r.ports.space[proto-1]
	free := [3]uint64{Static: s.band(Static).free().Lo, Dynamic: s.band(Dynamic).free().Lo}
	var open uint64
	for _, p := range ports {
		switch {
		case p.Protocol != proto:
		case p.Number == 0:
			open++
		default:
			free[s.bandOf(uint64(p.Number-r.ports.r.First))]--
		}
	}
	if r.ports.set.neverSpill {
		free[Static] = 0
	}
	return open <= free[Static]+free[Dynamic]
}

// apply takes what req asks for, which is feasible, and enters it in g.
func (r *Registry) apply(g *Grant, req Request) {
	g.Addrs = slices.Clone(req.Addrs)
	for i, ip := range req.Addrs {
		if !ip.IsUnspecified() {
			a, ord, _ := r.ranges.takeable(ip)
			a.take(ord)
			continue
		}
		f := familyOf(ip)
		a, b := r.ranges.choose(f)
		at := a.pick(b, &r.ranges.pick[f.slot()].start)
		g.Addrs[i] = a.addr(at.idx, at.x)
		g.Spilled = g.Spilled || b == Static
	}
	g.Ports = slices.Clone(req.Ports)
	var open [protocols][]int
	for i, p := range req.Ports { // named ones first: the engine must not choose them
		if p.Number == 0 {
			open[p.Protocol-1] = append(open[p.Protocol-1], i)
			continue
		}
		s, x, _ := r.ports.locate(p)
		s.take(x)
	}
	for i, places := range open {
		numbers := make([]uint16, len(places))
		if len(numbers) == 0 {
			continue
		}
		spilled, _ := r.ports.fill(Protocol(i+1), numbers)
		g.Spilled = g.Spilled || spilled > 0
		for j, at := range places {
			g.Ports[at].Number = numbers[j]
		}
	}
}

// draw replaces the random values that apply has used for req, always in one order.
func (r *Registry) draw(req Request) {
	for i := range r.ranges.pick {
		if slices.ContainsFunc(req.Addrs, func(ip netip.Addr) bool { return ip.IsUnspecified() && familyOf(ip).slot() == i }) {
			r.ranges.pick[i].draw()
		}
	}
	for proto := TCP; proto <= SCTP; proto++ {
		if slices.Contains(req.Ports, Port{Protocol: proto}) {
			r.ports.pick[proto-1].draw()
		}
	}
}

// windows returns a function that makes picks come from the windows that they come
// from now.
func (c *rangeCore) windows() (back func()) {
	var cur []uint64
	for _, a := range c.wides() {
		cur = append(cur, a.cur)
	}
	return func() {
		for i, a := range c.wides() {
			a.cur = cur[i]
		}
	}
}

// wides returns the areas that have windows.
func (c *rangeCore) wides() (out []*area) {
	for _, roots := range c.roots {
		for _, r := range roots {
			if r.wide != nil {
				out = append(out, r.area)
			}
		}
	}
	return out
}

// A parting of a request says what of it the owner keeps, by its place in the request,
// and what has to be taken. Places that are not kept are filled from fresh, in order.
type parting struct {
	keepAddrs map[int]netip.Addr
	keepPorts map[int]Port
	fresh     Request
}

// split parts req over what old holds: first what it names, then what it leaves open.
func split(old *Grant, req Request) parting {
	s := parting{keepAddrs: map[int]netip.Addr{}, keepPorts: map[int]Port{}}
	keep(s.keepAddrs, old.Addrs, req.Addrs, func(have, want netip.Addr) bool {
		return want.IsUnspecified() && familyOf(have) == familyOf(want)
	})
	keep(s.keepPorts, old.Ports, req.Ports, func(have, want Port) bool {
		return want.Number == 0 && have.Protocol == want.Protocol
	})
	for i, ip := range req.Addrs {
		if _, ok := s.keepAddrs[i]; !ok {
			s.fresh.Addrs = append(s.fresh.Addrs, ip)
		}
	}
	for i, p := range req.Ports {
		if _, ok := s.keepPorts[i]; !ok {
			s.fresh.Ports = append(s.fresh.Ports, p)
		}
	}
	return s
}

func keep[T comparable](kept map[int]T, have, want []T, open func(have, want T) bool) {
	used := make([]bool, len(have))
	for _, match := range []func(h, w T) bool{func(h, w T) bool { return h == w }, open} {
		for i, w := range want {
			if _, ok := kept[i]; ok {
				continue
			}
			for j, h := range have {
				if !used[j] && match(h, w) {
					kept[i], used[j] = h, true
					break
				}
			}
		}
	}
}

// weave puts the fresh ones into the places of want that none is kept for.
func weave[T any](want []T, kept map[int]T, fresh []T) []T {
	out := make([]T, 0, len(want))
	for i := range want {
		if h, ok := kept[i]; ok {
			out = append(out, h)
			continue
		}
		out, fresh = append(out, fresh[0]), fresh[1:]
	}
	return out
}

// without returns what of a is not in b.
func without[T comparable](a, b []T) []T {
	return slices.DeleteFunc(slices.Clone(a), func(x T) bool { return slices.Contains(b, x) })
}
