package servicealloc

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

const maxRequestPorts = 1 << 10

// wellFormed refuses a request that no registry could answer.
func wellFormed(owner string, req Request) error {
	bad := func(e ipalloc.Error) error {
		e.Package, e.Op, e.Owner, e.Err = "servicealloc", "allocate", owner, ipalloc.ErrInvalid
		return &e
	}
	for i, ip := range req.Addrs {
		if err := addr.CheckAddr(ip); err != nil {
			return bad(ipalloc.Error{Field: "Addrs", Addr: ip, Reason: err.Error()})
		}
		if slices.ContainsFunc(req.Addrs[:i], func(o netip.Addr) bool { return o.Is4() == ip.Is4() }) {
			return bad(ipalloc.Error{Field: "Addrs", Addr: ip, Reason: "two addresses of one family"})
		}
	}
	if len(req.Ports) > maxRequestPorts {
		return bad(ipalloc.Error{Field: "Ports", Reason: "more than 1024 ports"})
	}
	for i, p := range req.Ports {
		if p.Protocol != "" && !slices.Contains(protocols[:], p.Protocol) {
			return bad(ipalloc.Error{Field: "Ports", Text: string(p.Protocol), Reason: "no protocol that has ports"})
		}
		for _, o := range req.Ports[:i] {
			if p.Number != 0 && o.Number == p.Number && (o.Protocol == p.Protocol || o.Protocol == "" || p.Protocol == "") {
				return bad(ipalloc.Error{Field: "Ports", Port: p.Number, Reason: "named twice"})
			}
		}
	}
	return nil
}

// The values of a picker that a request uses: two for each family, then one for each
// port in its turn.
const (
	whichOf = 2 // times the family: the range
	startOf = 1 // beyond that: where in it
	portsOf = 4 // the first port
)

// take claims for rec what req asks for beyond old and returns the grant. What it
// claimed is in undo, of which the caller disposes if there is an error. The random
// value is replaced if it was used and all went well, and req is no dry run.
func (r *Registry) take(rec *record, old *Grant, req Request) (g Grant, undo []subject, err error) {
	if err := wellFormed(rec.Owner, req); err != nil {
		return Grant{}, nil, err
	}
	g = Grant{Owner: rec.Owner, Generation: r.last + 1, Spilled: old.Spilled}
	keptAddrs := keep(old.Addrs, req.Addrs, func(have, want netip.Addr) bool { return want.IsUnspecified() && have.Is4() == want.Is4() })
	keptPorts := keep(old.Ports, req.Ports, func(have, want Port) bool { return want.Number == 0 && have.Protocol == want.Protocol })
	g.Addrs, g.Ports = slices.Clone(req.Addrs), slices.Clone(req.Ports)
	fail := func(e *ipalloc.Error) (Grant, []subject, error) {
		e.Package, e.Op, e.Owner = "servicealloc", "allocate", rec.Owner
		return Grant{}, undo, e
	}
	claim := func(s subject) {
		r.claim(s, rec)
		undo = append(undo, s)
	}
	drawn := false
	for i, ip := range req.Addrs {
		if have, ok := keptAddrs[i]; ok {
			g.Addrs[i] = have
			continue
		}
		if ip.IsUnspecified() {
			f := slot(ip)
			n, x, b := r.ranges.pick(f, r.pick.at(uint64(whichOf*f)), r.pick.at(uint64(whichOf*f+startOf)))
			if b == closed {
				return fail(&ipalloc.Error{Reason: "no free " + [...]string{"IPv4", "IPv6"}[f] + " address", Err: ipalloc.ErrFull})
			}
			g.Addrs[i], g.Spilled, drawn = n.addr(x), g.Spilled || b == static, true
		} else if _, _, err := r.ranges.takeable(ip); err != nil {
			err.Addr, err.Holder = ip, r.holderName(subject{addr: ip})
			return fail(err)
		}
		claim(subject{addr: g.Addrs[i]})
	}
	for i, p := range req.Ports { // named ones first: the engine must not choose them
		if have, ok := keptPorts[i]; ok {
			g.Ports[i] = have
		} else if p.Number != 0 {
			if err := r.takePort(rec, p, claim); err != nil {
				return fail(err)
			}
		}
	}
	for i, p := range g.Ports {
		if p.Number != 0 {
			continue
		}
		if r.ports == nil {
			return fail(&ipalloc.Error{Field: "Ports", Reason: "there are no ports", Err: ipalloc.ErrOutOfRange})
		}
		x, b := r.ports.peek(r.ports.of(p.Protocol), r.pick.at(uint64(portsOf+i)))
		if b == closed {
			return fail(&ipalloc.Error{Name: r.ports.String(), Reason: "no free port", Err: ipalloc.ErrFull})
		}
		g.Ports[i].Number = r.ports.First + uint16(x)
		g.Spilled, drawn = g.Spilled || b == static, true
		for _, s := range r.keys(g.Ports[i]) {
			claim(s)
		}
	}
	if len(g.Addrs)+len(g.Ports) == 0 {
		g.Generation, g.Spilled = 0, false
	}
	if !req.DryRun {
		if drawn {
			r.pick.draw()
		}
		r.last = max(r.last, g.Generation)
	}
	return g, undo, nil
}

// takePort claims a named port. The same number may stand in a request twice, for two
// protocols; without PerProtocol it is held once.
func (r *Registry) takePort(rec *record, p Port, claim func(subject)) *ipalloc.Error {
	if r.ports == nil {
		return &ipalloc.Error{Field: "Ports", Port: p.Number, Reason: "there are no ports", Err: ipalloc.ErrOutOfRange}
	}
	for _, s := range r.keys(p) {
		if r.holders[s] == rec {
			continue
		}
		if _, _, err := r.ports.takeable(s.port()); err != nil {
			e := portError("", r.ports, s.port(), err).(*ipalloc.Error)
			e.Holder = r.holderName(s)
			return e
		}
		claim(s)
	}
	return nil
}

func (r *Registry) holderName(s subject) string {
	if rec := r.holders[s]; rec != nil {
		return rec.Owner
	}
	return ""
}

// undo gives back what take has claimed.
func (r *Registry) undo(rec *record, claimed []subject) {
	for _, s := range claimed {
		r.unclaim(s, rec)
	}
}

// keep says, by its place in want, what of it is met by what an owner has: first what
// is named, then what is left open.
func keep[T comparable](have, want []T, open func(have, want T) bool) map[int]T {
	if len(have) == 0 {
		return nil
	}
	kept := map[int]T{}
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
	return kept
}
