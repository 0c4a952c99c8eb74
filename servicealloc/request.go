package servicealloc

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

const maxRequestPorts = 1 << 10

// wellFormed returns an error for a request that no registry could answer.
func wellFormed(op, owner string, req Request) error {
	bad := func(e ipalloc.Error) error {
		e.Package, e.Op, e.Owner, e.Err = "servicealloc", op, owner, ipalloc.ErrInvalid
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
		if !p.Protocol.valid() {
			return bad(ipalloc.Error{Field: "Ports", Text: string(p.Protocol), Reason: "no protocol that has ports"})
		}
		if slices.ContainsFunc(req.Ports[:i], p.overlaps) {
			return bad(ipalloc.Error{Field: "Ports", Port: p.Number, Reason: "named twice"})
		}
	}
	return nil
}

// portsOf is the first of a picker's values that are used for the ports of a request, one
// value for each port. The values before it are for the two families.
const portsOf = 2

// A taking is the work on one request of an owner. If the request fails or is a dry run,
// all new claims are released.
type taking struct {
	r       *Registry
	rec     *record
	now     Grant // what the owner holds, without what another owner has
	g       Grant
	claimed []subject
	drawn   bool // the random value was used
}

// take claims for owner the parts of req that it does not hold, and returns its record
// and its new grant. Nothing is claimed if there is an error or req is a dry run.
// Otherwise the random value is replaced if it was used. Unless replace is set, req must
// name the generation of the grant that it changes.
func (r *Registry) take(owner string, req Request, replace bool) (*record, Grant, error) {
	op := "allocate"
	if replace {
		op = "begin"
	}
	if owner == "" {
		return nil, Grant{}, invalid(op, "owner", "no owner")
	}
	rec, err := r.find(op, owner, req.Generation)
	if err != nil {
		return nil, Grant{}, err
	}
	now := rec.grant(owner)
	foreign, lacks := r.lacks(rec, &now)
	switch answers := now.answers(req); {
	case answers && !lacks:
		return rec, now, nil
	case !replace && answers && req.Generation != now.Generation:
		return nil, Grant{}, &ipalloc.Error{Package: "servicealloc", Op: op, Owner: owner, Addr: foreign.addr(), Port: foreign.port().Number,
			Holder: r.holderName(foreign), Err: ipalloc.ErrOccupied}
	case !replace && req.Generation != now.Generation:
		return nil, Grant{}, ownerError(op, owner, "the owner holds something else; name the generation of its grant to replace it", ipalloc.ErrMismatch)
	}
	if err := wellFormed(op, owner, req); err != nil {
		return nil, Grant{}, err
	}
	if r.last == maxGeneration && len(req.Addrs)+len(req.Ports) > 0 {
		return nil, Grant{}, ownerError(op, owner, "the registry has counted to the last generation", ipalloc.ErrLimit)
	}
	k := taking{r: r, rec: rec, now: r.heldOf(rec, now), g: Grant{Owner: owner, Generation: r.next(), Spilled: now.Spilled,
		Addrs: slices.Clone(req.Addrs), Ports: slices.Clone(req.Ports)}}
	problem := k.work()
	if problem != nil || req.DryRun {
		r.giveBack(rec, k.claimed, nil)
	}
	if problem != nil {
		problem.Package, problem.Op, problem.Owner = "servicealloc", op, owner
		return nil, Grant{}, problem
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
	return rec, k.g, nil
}

// work takes the parts that are not kept, named ones first, because the engine must not
// choose those.
func (k *taking) work() *ipalloc.Error {
	keptAddrs := keep(k.now.Addrs, k.g.Addrs, addrMeets, func(have, want netip.Addr) bool { return have == want })
	keptPorts := keep(k.now.Ports, k.g.Ports, portMeets, Port.overlaps)
	for i, ip := range k.g.Addrs {
		if !keptAddrs[i] && !ip.IsUnspecified() {
			if err := k.named(subjectOf(ip)); err != nil {
				return err
			}
		}
	}
	for i, p := range k.g.Ports {
		if !keptPorts[i] && p.Number != 0 {
			if err := k.named(k.r.keys(p)...); err != nil {
				return err
			}
		}
	}
	for i, ip := range k.g.Addrs {
		if ip.IsUnspecified() {
			kind := kindOf(ip)
			s, ok := k.choose(kind, uint64(kind))
			if !ok {
				return &ipalloc.Error{Reason: "no free " + [...]string{"IPv4", "IPv6"}[kind] + " address", Err: ipalloc.ErrFull}
			}
			k.claim(s)
			k.g.Addrs[i] = s.addr()
		}
	}
	for i := range k.g.Ports {
		if p := &k.g.Ports[i]; p.Number == 0 {
			kind := anyPort
			if p.Protocol != "" && k.r.Ports().PerProtocol {
				kind = k.r.keys(*p)[0].kind
			}
			s, ok := k.choose(kind, uint64(portsOf+i))
			if !ok {
				if k.r.Ports() == (PortRange{}) {
					return k.r.ranges.closedTo(subject{lineKey: lineKey{kind: anyPort}})
				}
				return &ipalloc.Error{Name: k.r.Ports().String(), Reason: "no free port", Err: ipalloc.ErrFull}
			}
			p.Number = uint16(s.x)
			k.claim(k.r.keys(*p)...)
		}
	}
	return nil
}

func (k *taking) claim(all ...subject) {
	for _, s := range all {
		k.r.claim(s, k.rec)
		k.claimed = append(k.claimed, s)
	}
}

// named claims the named parts of a request. A request may have the same number twice,
// for two protocols; without PerProtocol it is held once.
func (k *taking) named(all ...subject) *ipalloc.Error {
	for _, s := range all {
		if k.r.holder(s) == k.rec {
			continue
		}
		if err := k.r.ranges.takeable(s); err != nil {
			err.Holder = k.r.holderName(s)
			return err
		}
		k.claim(s)
	}
	return nil
}

// choose returns the subject that the i-th random value of the request selects on the
// lines of a kind; ok is false if there is none.
func (k *taking) choose(kind lineKind, i uint64) (subject, bool) {
	s, b := k.r.ranges.pick(kind, k.r.pick.at(i))
	k.g.Spilled, k.drawn = k.g.Spilled || b == static, k.drawn || b != closed
	return s, b != closed
}

// lacks returns the first part of g that rec does not hold, because rec's owner was
// loaded with it after another one.
func (r *Registry) lacks(rec *record, g *Grant) (s subject, some bool) {
	if len(r.claims.waiting) == 0 {
		return s, false
	}
	all := r.subjects(g)
	i := slices.IndexFunc(all, func(s subject) bool { return r.holder(s) != rec })
	if i < 0 {
		return s, false
	}
	return all[i], true
}

// heldOf returns g without the addresses and ports that rec does not hold.
func (r *Registry) heldOf(rec *record, g Grant) Grant {
	other := func(s subject) bool { return r.holder(s) != rec }
	g.Addrs = slices.DeleteFunc(g.Addrs, func(ip netip.Addr) bool { return other(subjectOf(ip)) })
	g.Ports = slices.DeleteFunc(g.Ports, func(p Port) bool { return slices.ContainsFunc(r.keys(p), other) })
	return g
}

// keep fills in the parts of want that the owner's holding meets, first the named ones,
// then those left open. It returns which places these are. A part that overlaps a named
// place is not kept for an open one.
func keep[T comparable](have, want []T, meets, overlap func(have, want T) bool) []bool {
	kept := make([]bool, len(want))
	have = slices.Clone(have)
	spend := func(w T) { have = slices.DeleteFunc(have, func(h T) bool { return overlap(h, w) }) }
	for i, w := range want {
		kept[i] = slices.Contains(have, w)
		spend(w)
	}
	for i, w := range want {
		if kept[i] {
			continue
		}
		if j := slices.IndexFunc(have, func(h T) bool { return meets(h, w) }); j >= 0 {
			want[i], kept[i] = have[j], true
			spend(want[i])
		}
	}
	return kept
}

// answers reports whether g is an answer to req.
func (g *Grant) answers(req Request) bool {
	return slices.EqualFunc(g.Addrs, req.Addrs, addrMeets) && slices.EqualFunc(g.Ports, req.Ports, portMeets)
}

// addrMeets and portMeets report whether have meets want, which names a value or leaves
// it open.
func addrMeets(have, want netip.Addr) bool {
	return have == want || want.IsUnspecified() && have.Is4() == want.Is4()
}

func portMeets(have, want Port) bool {
	return have == want || want.Number == 0 && have.Protocol == want.Protocol
}
