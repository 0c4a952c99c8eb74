package servicealloc

import (
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Load adds the recorded grants of owners. Call it after a start, before anything is
// handed out. It never fails as a whole. It returns what is wrong with the records, and
// keeps all that they name out of circulation, even where a record is wrong:
//
//   - [ipalloc.ErrOccupied]: another owner, the Holder, has it already. When the Holder
//     releases it, this owner gets it. Until then a request for the recorded grant fails
//     with ErrOccupied; one that names its generation gets another address or port where
//     it leaves the choice open.
//   - [ipalloc.ErrExists]: the owner is listed twice.
//   - [ipalloc.ErrOutOfRange], [ipalloc.ErrReserved]: it is usable in no range. The owner
//     holds it all the same, also after such a range is added.
//   - [ipalloc.ErrInvalid]: an address is zoned or 4-in-6; its plain form is held. Or the
//     generation is beyond 2^61 and far from what the registry has counted to; the grant
//     gets a new one.
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
		r.claims = newClaims(2 * len(grants))
	}
	for i := range grants {
		g := &grants[i]
		note := func(e ipalloc.Error) {
			e.Package, e.Op, e.Owner = "servicealloc", "load", g.Owner
			problems = append(problems, &e)
		}
		if g.Owner != "" && listed[g.Owner] {
			note(ipalloc.Error{Reason: "the owner is listed twice", Err: ipalloc.ErrExists})
		}
		listed[g.Owner] = true
		r.load(g, note)
	}
	return problems
}

// maxGeneration is the last generation: a snapshot with a later one is damaged, and what
// would need a later one is refused. A record or a change may name one up to half of it,
// and beyond that one near the present, so counting on from there does not get to it.
const maxGeneration = 1 << 62

// far reports whether a generation is none that a registry counts to.
func (r *Registry) far(generation uint64) bool {
	return generation > maxGeneration/2 && generation > min(r.last+1<<32, maxGeneration)
}

// next returns the generation after the last one. At the bound, where nothing is granted
// any more, what is loaded or moved has the last one: it is a fact.
func (r *Registry) next() uint64 { return min(r.last+1, maxGeneration) }

// load takes over one grant.
func (r *Registry) load(g *Grant, note func(ipalloc.Error)) {
	rec := r.record(g.Owner)
	generation, fresh, had := g.Generation, rec.generation == 0 && rec.tx == nil, Grant{}
	if r.far(generation) {
		note(ipalloc.Error{Field: "Generation", Reason: "far from what the registry has counted to", Err: ipalloc.ErrInvalid})
		generation = 0
	}
	if rec.tx != nil {
		had = rec.union()
	}
	added := r.enlarge(rec, g, note)
	if added.empty() {
		return
	}
	rec.spilled = rec.spilled || g.Spilled
	if rec.generation = generation; !fresh || generation == 0 {
		rec.generation = r.next()
	}
	r.last = max(r.last, rec.generation)
	if rec.tx != nil {
		// A record names what was added: neither outcome of the transaction gives it back.
		if rec.tx.next.add(&added) {
			r.last = r.next()
			rec.tx.next.generation = r.last
		}
		r.became(rec, had)
		return
	}
	r.enter(rec)
	added.Generation, added.Spilled = rec.generation, rec.spilled
	switch {
	case r.changes == nil:
	case fresh:
		r.changes.Add(Change{Op: OpAllocate, Grant: added})
	default:
		r.changes.Add(Change{Op: OpMove, Grant: added})
	}
}

// enlarge adds what g lists to what rec holds, says what is wrong with it, and returns what
// rec lacked.
func (r *Registry) enlarge(rec *record, g *Grant, note func(ipalloc.Error)) Grant {
	added := Grant{Owner: rec.owner}
	for _, ip := range g.Addrs {
		if err := addr.CheckAddr(ip); err != nil {
			note(ipalloc.Error{Addr: ip, Reason: err.Error(), Err: ipalloc.ErrInvalid})
			if ip = plain(ip); !ip.IsValid() {
				continue
			}
		}
		r.loadOne(rec, subjectOf(ip), note)
		if rec.addrs.add(ip) {
			added.Addrs = append(added.Addrs, ip)
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
		if rec.ports.add(p) {
			added.Ports = append(added.Ports, p)
		}
	}
	return added
}

// loadOne claims s for rec, if it does not yet, and says what is wrong with that.
func (r *Registry) loadOne(rec *record, s subject, note func(ipalloc.Error)) {
	if r.claims.has(s, rec) {
		return
	}
	if h := r.holder(s); h != nil {
		note(ipalloc.Error{Addr: s.addr(), Port: s.port().Number, Holder: h.owner, Err: ipalloc.ErrOccupied})
	} else if err := r.ranges.takeable(s); err != nil && err.Err != ipalloc.ErrInUse {
		note(*err)
	}
	r.claim(s, rec)
}

// plain returns the form of ip in which the registry holds it.
func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }
