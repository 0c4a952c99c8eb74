package servicealloc

import (
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Load adds the recorded grants of owners. Call it after a start, before any allocation.
// It never fails as a whole. It returns the problems of the records. It takes all
// addresses and ports that they name, even where a record is wrong:
//
//   - [ipalloc.ErrOccupied]: another owner, the Holder, already holds it. When the Holder
//     releases it, this owner gets it. Until then a request for the recorded grant fails
//     with ErrOccupied. A request that names the grant's generation gets another address
//     or port, if it leaves the choice open.
//   - [ipalloc.ErrExists]: the owner is listed twice.
//   - [ipalloc.ErrOutOfRange], [ipalloc.ErrReserved]: it is usable in no range. The owner
//     holds it all the same, and keeps it after such a range is added.
//   - [ipalloc.ErrInvalid]: an address is zoned or 4-in-6; its plain form is held. Or the
//     generation is above 2^61 and far from the registry's own; the grant gets a new one.
//
// The owner "" stands for an unknown one, as package rangealloc returns it. A grant keeps
// its generation if its owner holds nothing. Otherwise, or if it has no generation, it
// gets a new one. An owner that already holds something keeps that too. Loading a grant
// that is held changes nothing. It takes O(log n) for each address and port.
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

// maxGeneration is the last generation. A snapshot with a later one is damaged, and a
// call that would need a later one is refused. A record or a change may name a generation
// up to half of it. Above that, it may only name one near the present, so counting on
// from there does not reach the limit.
const maxGeneration = 1 << 62

// far reports whether a registry cannot have counted to this generation.
func (r *Registry) far(generation uint64) bool {
	return generation > maxGeneration/2 && generation > min(r.last+1<<32, maxGeneration)
}

// next returns the generation after the last one. At the limit no grant is allocated any
// more, but a grant that is loaded or moved is a fact and gets the last generation.
func (r *Registry) next() uint64 { return min(r.last+1, maxGeneration) }

// load loads one grant.
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
		// The record names the additions, so neither outcome of the transaction releases
		// them.
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

// enlarge adds the addresses and ports of g to rec, notes problems, and returns the part
// that rec lacked.
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

// loadOne claims s for rec, if it does not claim it yet, and notes a problem with that.
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

// plain returns ip in the form that the registry holds.
func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }
