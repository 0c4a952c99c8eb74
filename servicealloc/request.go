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

// A taking is what one request takes for an owner. If it fails, or is a dry run, what was
// claimed is given back.
type taking struct {
	r       *Registry
	rec     *record
	g       Grant
	claimed []subject
	drawn   bool // the random value was used
}

func (k *taking) claim(s subject) {
	k.r.claim(s, k.rec)
	k.claimed = append(k.claimed, s)
}

// take claims for rec what req asks for beyond old and returns the grant, with nothing
// claimed if there is an error or req is a dry run. Otherwise the random value is
// replaced if it was used.
func (r *Registry) take(rec *record, old *Grant, req Request) (Grant, error) {
	if err := wellFormed(rec.Owner, req); err != nil {
		return Grant{}, err
	}
	k := taking{r: r, rec: rec, g: Grant{Owner: rec.Owner, Generation: r.last + 1, Spilled: old.Spilled,
		Addrs: slices.Clone(req.Addrs), Ports: slices.Clone(req.Ports)}}
	err := k.addrs(keep(old.Addrs, req.Addrs, addrMeets))
	if err == nil {
		err = k.ports(keep(old.Ports, req.Ports, portMeets))
	}
	if err != nil || req.DryRun {
		for _, s := range k.claimed {
			r.unclaim(s, rec)
		}
	}
	if err != nil {
		err.Package, err.Op, err.Owner = "servicealloc", "allocate", rec.Owner
		return Grant{}, err
	}
	if k.g.empty() {
		k.g.Generation, k.g.Spilled = 0, false
	}
	if !req.DryRun {
		if k.drawn {
			r.pick.draw()
		}
		r.last = max(r.last, k.g.Generation)
	}
	return k.g, nil
}

// addrs takes the addresses of the request that are not kept.
func (k *taking) addrs(kept map[int]netip.Addr) *ipalloc.Error {
	r := k.r
	for i, ip := range k.g.Addrs {
		if have, ok := kept[i]; ok {
			k.g.Addrs[i] = have
			continue
		}
		if ip.IsUnspecified() {
			f := slot(ip)
			n, x, b := r.ranges.pick(f, r.pick.at(uint64(whichOf*f)), r.pick.at(uint64(whichOf*f+startOf)))
			if b == closed {
				return &ipalloc.Error{Reason: "no free " + [...]string{"IPv4", "IPv6"}[f] + " address", Err: ipalloc.ErrFull}
			}
			k.g.Addrs[i], k.g.Spilled, k.drawn = n.addr(x), k.g.Spilled || b == static, true
		} else if err := r.ranges.takeable(ip); err != nil {
			err.Addr, err.Holder = ip, r.holderName(subject{addr: ip})
			return err
		}
		k.claim(subject{addr: k.g.Addrs[i]})
	}
	return nil
}

// ports takes the ports of the request that are not kept: named ones first, because the
// engine must not choose them.
func (k *taking) ports(kept map[int]Port) *ipalloc.Error {
	r := k.r
	if len(r.ports.spaces) == 0 && len(k.g.Ports) > 0 {
		return &ipalloc.Error{Field: "Ports", Port: k.g.Ports[0].Number, Reason: "there are no ports", Err: ipalloc.ErrOutOfRange}
	}
	for i, p := range k.g.Ports {
		if have, ok := kept[i]; ok {
			k.g.Ports[i] = have
		} else if p.Number != 0 {
			if err := k.port(p); err != nil {
				return err
			}
		}
	}
	for i, p := range k.g.Ports {
		if p.Number != 0 {
			continue
		}
		x, b := r.ports.set.peek(r.ports.of(p.Protocol), r.pick.at(uint64(portsOf+i)))
		if b == closed {
			return &ipalloc.Error{Name: r.ports.String(), Reason: "no free port", Err: ipalloc.ErrFull}
		}
		k.g.Ports[i].Number = r.ports.First + uint16(x)
		k.g.Spilled, k.drawn = k.g.Spilled || b == static, true
		for _, s := range r.keys(k.g.Ports[i]) {
			k.claim(s)
		}
	}
	return nil
}

// port claims a named port. The same number may stand in a request twice, for two
// protocols; without PerProtocol it is held once.
func (k *taking) port(p Port) *ipalloc.Error {
	for _, s := range k.r.keys(p) {
		if k.r.holders[s] == k.rec {
			continue
		}
		if _, _, err := k.r.ports.takeable(s.port()); err != nil {
			e := portError("", k.r.ports, s.port(), err)
			e.Holder = k.r.holderName(s)
			return e
		}
		k.claim(s)
	}
	return nil
}

func (r *Registry) holderName(s subject) string {
	if rec := r.holders[s]; rec != nil {
		return rec.Owner
	}
	return ""
}

// keep says, by its place in want, what of it is met by what an owner has: first what
// is named, then what is left open.
func keep[T comparable](have, want []T, open func(have, want T) bool) map[int]T {
	if len(have) == 0 {
		return nil
	}
	kept := map[int]T{}
	have = slices.Clone(have)
	for _, match := range []func(h, w T) bool{func(h, w T) bool { return h == w }, open} {
		for i, w := range want {
			if _, ok := kept[i]; ok {
				continue
			}
			if j := slices.IndexFunc(have, func(h T) bool { return match(h, w) }); j >= 0 {
				kept[i] = have[j]
				have = slices.Delete(have, j, j+1)
			}
		}
	}
	return kept
}
