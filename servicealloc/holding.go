package servicealloc

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
)

// A record is an owner with its holding and its open transaction, if any.
type record struct {
	owner string
	holding
	tx *pending
}

// A holding is a [Grant] in the form that the registry keeps.
type holding struct {
	generation uint64
	spilled    bool
	addrs      ordered[netip.Addr]
	ports      ordered[Port]
}

func holdingOf(g *Grant) holding {
	return holding{g.Generation, g.Spilled, orderedOf(g.Addrs), orderedOf(g.Ports)}
}

// grant returns h in the form that callers see.
func (h *holding) grant(owner string) Grant {
	return Grant{Owner: owner, Generation: h.generation, Addrs: h.addrs.list(), Ports: h.ports.list(), Spilled: h.spilled}
}

func (h *holding) empty() bool { return h.addrs.len()+h.ports.len() == 0 }

// add adds the addresses and ports of g and reports whether h lacked any of them.
func (h *holding) add(g *Grant) (some bool) {
	for _, ip := range g.Addrs {
		some = h.addrs.add(ip) || some
	}
	for _, p := range g.Ports {
		some = h.ports.add(p) || some
	}
	return some
}

// drop removes the entry that covers s. If a port entry covers several protocols, drop
// adds entries for the remaining ones.
func (r *Registry) drop(h *holding, s subject) {
	if s.kind < anyPort {
		h.addrs.remove(s.addr())
		return
	}
	p, n := s.port(), uint16(s.x)
	whole := h.ports.remove(Port{Number: n})
	for _, q := range protocols {
		switch {
		case p.Protocol == "" || p.Protocol == q:
			h.ports.remove(Port{q, n})
		case whole:
			h.ports.add(Port{q, n})
		}
	}
}

// covers reports whether h has s.
func (r *Registry) covers(h *holding, s subject) bool {
	if s.kind < anyPort {
		return h.addrs.has(s.addr())
	}
	n := uint16(s.x)
	return h.ports.has(Port{Number: n}) || h.ports.has(s.port()) ||
		s.kind == anyPort && slices.ContainsFunc(protocols[:], func(q Protocol) bool { return h.ports.has(Port{q, n}) })
}

// empty reports whether g lists nothing.
func (g *Grant) empty() bool { return len(g.Addrs)+len(g.Ports) == 0 }

func (g *Grant) equal(o *Grant) bool {
	return g.Generation == o.Generation && g.Spilled == o.Spilled && slices.Equal(g.Addrs, o.Addrs) && slices.Equal(g.Ports, o.Ports)
}

func (g *Grant) clone() Grant {
	c := *g
	c.Addrs, c.Ports = slices.Clone(g.Addrs), slices.Clone(g.Ports)
	return c
}

// union returns all that an owner holds, an open transaction included, as one grant.
func (rec *record) union() Grant {
	u := rec.grant(rec.owner)
	if rec.tx == nil {
		return u
	}
	all, g := holdingOf(&u), rec.tx.next.grant(rec.owner)
	all.add(&g)
	all.generation, all.spilled = max(u.Generation, g.Generation), u.Spilled || g.Spilled
	return all.grant(rec.owner)
}

// subjects returns the subjects of g, each once.
func (r *Registry) subjects(g *Grant) []subject {
	out := make([]subject, 0, len(g.Addrs)+len(g.Ports))
	for _, ip := range g.Addrs {
		out = append(out, subjectOf(ip))
	}
	for _, p := range g.Ports {
		out = append(out, r.keys(p)...)
	}
	if len(out) <= 16 {
		for i := len(out) - 1; i > 0; i-- {
			if slices.Contains(out[:i], out[i]) {
				out = slices.Delete(out, i, i+1)
			}
		}
		return out
	}
	seen := make(map[subject]bool, len(out))
	return slices.DeleteFunc(out, func(s subject) bool {
		twice := seen[s]
		seen[s] = true
		return twice
	})
}

// keys returns the subjects of a port.
func (r *Registry) keys(p Port) (out []subject) {
	x := uint64(p.Number)
	if !r.Ports().PerProtocol {
		return []subject{{lineKey{kind: anyPort}, x}}
	}
	for i, q := range protocols {
		if p.Protocol == "" || p.Protocol == q {
			out = append(out, subject{lineKey{kind: onePort + lineKind(i)}, x})
		}
	}
	return out
}

// find returns the record of an owner, or a new record that is not entered yet. It fails
// if the registry is closed, if a transaction is open, or if generation is neither 0 nor
// the grant's generation.
func (r *Registry) find(op, owner string, generation uint64) (*record, error) {
	if r.closed {
		return nil, ownerError(op, owner, "", ipalloc.ErrClosed)
	}
	rec := r.record(owner)
	switch {
	case rec.tx != nil:
		return nil, ownerError(op, owner, "the owner has an open transaction", ipalloc.ErrInUse)
	case generation != 0 && rec.generation == 0:
		return nil, ownerError(op, owner, "", ipalloc.ErrNotHeld)
	case generation != 0 && rec.generation != generation:
		return nil, ownerError(op, owner, "the owner's grant is of another generation", ipalloc.ErrMismatch)
	}
	return rec, nil
}

// record returns the record of an owner, or a new record that is not entered yet. It ends
// a transaction that the program dropped.
func (r *Registry) record(owner string) *record {
	rec := r.owners[owner]
	if rec == nil {
		return &record{owner: owner}
	}
	r.adopt(rec)
	return rec
}

func ownerError(op, owner, why string, err error) error {
	return &ipalloc.Error{Package: "servicealloc", Op: op, Owner: owner, Reason: why, Err: err}
}

// become completes a change of an owner as a whole: h becomes its holding and p, nil for
// none, its open transaction. The caller has claimed the subjects of both. Subjects that
// are in neither of them any more are released.
func (r *Registry) become(rec *record, h holding, p *pending) {
	had := rec.union()
	rec.holding, rec.tx = h, p
	r.became(rec, had)
}

// became is become for a record that has already changed; had is its union before. The
// receiver of changes sees the owner if its union has changed.
func (r *Registry) became(rec *record, had Grant) {
	has := rec.union()
	r.giveBack(rec, r.subjects(&had), r.subjects(&has))
	r.enter(rec)
	switch {
	case r.changes == nil || had.equal(&has):
	case has.Generation == 0:
		r.changes.Add(Change{Op: OpRelease, Grant: had})
	case had.Generation == 0:
		r.changes.Add(Change{Op: OpAllocate, Grant: has})
	default:
		r.changes.Add(Change{Op: OpReplace, Grant: has})
	}
}

// enter keeps the record of an owner that holds something or has a transaction.
func (r *Registry) enter(rec *record) {
	if rec.tx == nil && rec.generation == 0 {
		delete(r.owners, rec.owner)
	} else {
		r.owners[rec.owner] = rec
	}
}

// giveBack ends rec's claims to the subjects in have that are not in keep.
func (r *Registry) giveBack(rec *record, have, keep []subject) {
	if len(have) == 0 {
		return
	}
	kept := make(map[subject]bool, len(keep))
	for _, s := range keep {
		kept[s] = true
	}
	for _, s := range have {
		if !kept[s] {
			r.unclaim(s, rec)
		}
	}
}
