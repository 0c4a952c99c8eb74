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
// The owner "" stands for an unknown one; [Import] returns such a grant. A grant of an
// owner that holds nothing keeps its generation, if it has one; any other gets a new one.
// An owner that holds something already keeps that too. Loading what is held changes
// nothing. It takes O(log n) for each address and port.
func (r *Registry) Load(grants []Grant) (problems []*ipalloc.Error) {
	r.lock()
	defer r.unlock()
	listed := make(map[string]bool, len(grants))
	if len(r.owners) == 0 {
		r.owners = make(map[string]*record, len(grants))
		r.holders = make(map[subject]*record, 2*len(grants))
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
	had := rec.Grant
	for _, ip := range g.Addrs {
		if err := addr.CheckAddr(ip); err != nil {
			note(ipalloc.Error{Addr: ip, Reason: err.Error(), Err: ipalloc.ErrInvalid})
			if ip = plain(ip); !ip.IsValid() {
				continue
			}
		}
		s := subject{addr: ip}
		h := r.holders[s]
		switch {
		case h == rec || h != nil && slices.Contains(r.contested[s], rec):
			if rec.tx == nil || slices.Contains(rec.Addrs, ip) {
				continue
			}
		case h != nil:
			note(ipalloc.Error{Addr: ip, Holder: h.Owner, Err: ipalloc.ErrDuplicate})
		default:
			if err := r.ranges.takeable(ip); err != nil && err.Err != ipalloc.ErrInUse {
				err.Addr = ip
				note(*err)
			}
		}
		rec.Addrs = append(rec.Addrs, ip)
		r.claim(s, rec)
	}
	for _, p := range g.Ports {
		if p.Number == 0 || p.Protocol != "" && !slices.Contains(protocols[:], p.Protocol) {
			note(ipalloc.Error{Port: p.Number, Text: string(p.Protocol), Reason: "not a port", Err: ipalloc.ErrInvalid})
			continue
		}
		if !slices.Contains(rec.Ports, p) {
			rec.Ports = append(rec.Ports, p)
		}
		r.loadPort(rec, p, note)
	}
	if len(rec.Addrs)+len(rec.Ports) == len(had.Addrs)+len(had.Ports) {
		return
	}
	rec.Spilled = rec.Spilled || g.Spilled
	if rec.Generation == 0 && g.Generation != 0 {
		rec.Generation = g.Generation
	} else {
		rec.Generation = r.last + 1
	}
	r.last = max(r.last, rec.Generation)
	if rec.tx != nil {
		rec.tx.load(rec)
	}
	r.publish(rec, &had)
}

func (r *Registry) loadPort(rec *record, p Port, note func(ipalloc.Error)) {
	for _, s := range r.keys(p) {
		h := r.holders[s]
		switch {
		case h == rec:
			continue
		case h != nil:
			note(ipalloc.Error{Port: s.number, Holder: h.Owner, Err: ipalloc.ErrDuplicate})
		case len(r.ports.spaces) == 0:
			note(ipalloc.Error{Port: s.number, Reason: "there are no ports", Err: ipalloc.ErrOutOfRange})
		default:
			if _, _, err := r.ports.takeable(s.port()); err != nil {
				note(ipalloc.Error{Port: s.number, Name: r.ports.String(), Err: err})
			}
		}
		r.claim(s, rec)
	}
}

// usable reports whether s is one that may be held: in a range, draining or not, and
// not reserved.
func (r *Registry) usable(s subject) bool {
	if s.addr.IsValid() {
		if addr.CheckAddr(s.addr) != nil {
			return false
		}
		if n, x := r.ranges.locate(s.addr); n == nil {
			return false
		} else if n.bandOf(x) != closed {
			return true
		}
		return r.ranges.closedTo(s.addr).Err == ipalloc.ErrInUse
	}
	x, in, err := r.ports.locate(s.port())
	return err == nil && in[0].bandOf(x) != closed
}

// plain returns the form of ip in which the registry holds it.
func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }
