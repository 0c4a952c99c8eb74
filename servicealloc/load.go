package servicealloc

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Load takes over what is recorded of owners: after a start, before anything is handed
// out. It never fails as a whole. It returns what is wrong with the records, and keeps
// all that they name out of circulation, whatever is wrong with it:
//
//   - [ipalloc.ErrDuplicate]: another owner, the Holder, has it already, or the owner is
//     listed twice. When the holder gives it back it goes to this owner.
//   - [ipalloc.ErrOutOfRange], [ipalloc.ErrReserved]: no range has it usable. It stays
//     with the owner when a range that has it is added.
//   - [ipalloc.ErrInvalid]: an address is zoned or 4-in-6. Its plain form is held.
//
// The owner "" stands for an unknown one, as package rangealloc returns it. A grant of an
// owner that holds nothing keeps its generation, if it has one; any other gets a new one.
// An owner that holds something already keeps that too. Loading what is held changes
// nothing. It takes O(log n) for each address and port.
func (r *Registry) Load(grants []Grant) (problems []*ipalloc.Error) {
	r.lock()
	defer r.unlock()
	if r.closed {
		return []*ipalloc.Error{{Package: "servicealloc", Op: "load", Reason: "the registry is closed", Err: ipalloc.ErrClosed}}
	}
	listed := make(map[string]bool, len(grants))
	if len(r.owners) == 0 {
		r.owners = make(map[string]*record, len(grants))
		r.claims = make(map[subject][]*record, 2*len(grants))
	}
	for i := range grants {
		g := &grants[i]
		note := func(e ipalloc.Error) {
			e.Package, e.Op, e.Owner = "servicealloc", "load", g.Owner
			problems = append(problems, &e)
		}
		if g.Owner != "" && listed[g.Owner] {
			note(ipalloc.Error{Reason: "the owner is listed twice", Err: ipalloc.ErrDuplicate})
		}
		listed[g.Owner] = true
		r.load(g, note)
	}
	return problems
}

// load takes over one grant.
func (r *Registry) load(g *Grant, note func(ipalloc.Error)) {
	rec := r.owners[g.Owner]
	if rec == nil {
		rec = &record{Grant: Grant{Owner: g.Owner}}
	}
	r.adopt(rec)
	now, added := rec.clone(), Grant{}
	for _, ip := range g.Addrs {
		if err := addr.CheckAddr(ip); err != nil {
			note(ipalloc.Error{Addr: ip, Reason: err.Error(), Err: ipalloc.ErrInvalid})
			if ip = plain(ip); !ip.IsValid() {
				continue
			}
		}
		if s := subjectOf(ip); r.loadOne(rec, s, note) || rec.tx != nil && !slices.Contains(now.Addrs, ip) {
			now.Addrs, added.Addrs = append(now.Addrs, ip), append(added.Addrs, ip)
		}
	}
	for _, p := range g.Ports {
		if p.Number == 0 || !p.Protocol.valid() {
			note(ipalloc.Error{Port: p.Number, Text: string(p.Protocol), Reason: "not a port", Err: ipalloc.ErrInvalid})
			continue
		}
		for _, s := range r.keys(p) {
			r.loadOne(rec, s, note)
		}
		if !slices.Contains(now.Ports, p) {
			now.Ports, added.Ports = append(now.Ports, p), append(added.Ports, p)
		}
	}
	if added.empty() {
		return
	}
	now.Spilled = now.Spilled || g.Spilled
	had, p := rec.union(), rec.tx
	if p == nil && now.Generation == 0 && g.Generation != 0 {
		now.Generation = g.Generation
		r.last = max(r.last, g.Generation)
	} else {
		now = r.numbered(now)
	}
	if p != nil {
		// A record names what was added: neither outcome of the transaction gives it back.
		had := len(p.grant.Addrs) + len(p.grant.Ports)
		if p.grant.add(added.Addrs, added.Ports); len(p.grant.Addrs)+len(p.grant.Ports) > had {
			p.grant = r.numbered(p.grant)
		}
	}
	rec.Grant = now
	r.changed(rec, had)
}

// loadOne claims s for rec, says what is wrong with that, and reports whether rec had
// not claimed it before.
func (r *Registry) loadOne(rec *record, s subject, note func(ipalloc.Error)) bool {
	if slices.Contains(r.claims[s], rec) {
		return false
	}
	if h := r.holder(s); h != nil {
		note(ipalloc.Error{Addr: s.addr(), Port: s.port().Number, Holder: h.Owner, Err: ipalloc.ErrDuplicate})
	} else if err := r.ranges.takeable(s); err != nil && err.Err != ipalloc.ErrInUse {
		note(*err)
	}
	r.claim(s, rec)
	return true
}

// plain returns the form of ip in which the registry holds it.
func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// Move takes what from lists from its owner and gives what to lists to its owner, in one
// step: both name an owner, the generation of its grant, 0 if it holds nothing, and what
// is to go or to come. Either may list nothing. What from lists may be listed by to;
// anything else there must be free. Move returns what the two owners hold afterwards,
// under a new generation.
//
// It fails with [ipalloc.ErrMismatch] if a generation is another one, with
// [ipalloc.ErrInUse] if a transaction of one of the owners is open, with
// [ipalloc.ErrNotHeld] if from lists what its owner does not hold, and with
// [ipalloc.ErrOccupied], [ipalloc.ErrReserved] or [ipalloc.ErrOutOfRange] for what to
// lists. Nothing is changed then.
func (r *Registry) Move(from, to Grant) (left, got Grant, err error) {
	r.lock()
	defer r.unlock()
	a, gone, err := r.party(&from)
	if err != nil {
		return left, got, err
	}
	b, come, err := r.party(&to)
	if err != nil {
		return left, got, err
	}
	fail := func(owner string, e *ipalloc.Error, s subject) (Grant, Grant, error) {
		e.Package, e.Op, e.Owner, e.Addr, e.Port, e.Holder = "servicealloc", "move", owner, s.addr(), s.port().Number, r.holderName(s)
		return Grant{}, Grant{}, e
	}
	for _, s := range gone {
		if r.holder(s) != a {
			return fail(from.Owner, &ipalloc.Error{Err: ipalloc.ErrNotHeld}, s)
		}
	}
	for _, s := range come {
		if h := r.holder(s); h != nil && !slices.Contains(gone, s) {
			return fail(to.Owner, &ipalloc.Error{Err: ipalloc.ErrOccupied}, s)
		} else if h == nil && !r.ranges.usable(s) {
			return fail(to.Owner, r.ranges.takeable(s), s)
		}
	}
	if len(gone) > 0 {
		left = r.numbered(r.without(a.clone(), gone))
		r.become(a, left, nil)
	}
	if len(come) > 0 {
		for _, s := range come {
			r.claim(s, b)
		}
		got = b.clone()
		got.add(to.Addrs, to.Ports)
		got = r.numbered(got)
		r.become(b, got, nil)
	}
	return left.clone(), got.clone(), nil
}

// party returns the record of an owner that Move is about, and what it is about. The
// record of an owner that holds nothing is entered if it gets something.
func (r *Registry) party(g *Grant) (*record, []subject, error) {
	if g.empty() {
		return nil, nil, nil
	}
	if slices.ContainsFunc(g.Addrs, func(ip netip.Addr) bool { return addr.CheckAddr(ip) != nil }) ||
		slices.ContainsFunc(g.Ports, func(p Port) bool { return p.Number == 0 || !p.Protocol.valid() }) {
		return nil, nil, ownerError("move", g.Owner, "not an address or a port", ipalloc.ErrInvalid)
	}
	rec, err := r.find("move", g.Owner, g.Generation)
	if err == nil && rec.Generation != g.Generation {
		err = ownerError("move", g.Owner, "the owner's grant is of another generation", ipalloc.ErrMismatch)
	}
	return rec, r.subjects(g), err
}

// numbered returns g with a new generation, 0 if it is empty.
func (r *Registry) numbered(g Grant) Grant {
	if g.empty() {
		return Grant{Owner: g.Owner}
	}
	r.last++
	g.Generation = r.last
	return g
}

// without returns g less what is gone. A port entry of several protocols leaves those
// that stay.
func (r *Registry) without(g Grant, gone []subject) Grant {
	g.Addrs = slices.DeleteFunc(g.Addrs, func(ip netip.Addr) bool { return slices.Contains(gone, subjectOf(ip)) })
	var ports []Port
	for _, p := range g.Ports {
		keys := r.keys(p)
		stay := slices.DeleteFunc(slices.Clone(keys), func(s subject) bool { return slices.Contains(gone, s) })
		if len(stay) == len(keys) {
			ports = append(ports, p)
			continue
		}
		for _, s := range stay {
			ports = append(ports, s.port())
		}
	}
	g.Ports = ports
	return g
}
