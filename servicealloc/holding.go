package servicealloc

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
)

// A record is an owner: its grant and its open transaction, if it has one.
type record struct {
	Grant
	tx *pending
}

// empty reports whether g has nothing.
func (g *Grant) empty() bool { return len(g.Addrs)+len(g.Ports) == 0 }

// add appends what g does not have.
func (g *Grant) add(addrs []netip.Addr, ports []Port) {
	for _, ip := range addrs {
		if !slices.Contains(g.Addrs, ip) {
			g.Addrs = append(g.Addrs, ip)
		}
	}
	for _, p := range ports {
		if !slices.Contains(g.Ports, p) {
			g.Ports = append(g.Ports, p)
		}
	}
}

func (g *Grant) equal(o *Grant) bool {
	return g.Generation == o.Generation && g.Spilled == o.Spilled && slices.Equal(g.Addrs, o.Addrs) && slices.Equal(g.Ports, o.Ports)
}

func (g *Grant) clone() Grant {
	c := *g
	c.Addrs, c.Ports = slices.Clone(g.Addrs), slices.Clone(g.Ports)
	return c
}

// union returns all that an owner holds, with an open transaction, as one grant.
func (rec *record) union() Grant {
	u := rec.clone()
	if rec.tx == nil {
		return u
	}
	g := &rec.tx.grant
	u.Generation, u.Spilled = max(u.Generation, g.Generation), u.Spilled || g.Spilled
	u.add(g.Addrs, g.Ports)
	return u
}

// subjects returns what g is made of, each once.
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

// claim makes rec the holder of s, or a further claimant if another one holds it.
func (r *Registry) claim(s subject, rec *record) {
	all := r.claims[s]
	if slices.Contains(all, rec) {
		return
	}
	r.claims[s] = append(all, rec)
	if len(all) == 0 {
		r.ranges.mark(s, true)
	}
}

// unclaim ends what rec has of s. What another one claims too goes to that one.
func (r *Registry) unclaim(s subject, rec *record) {
	all := slices.DeleteFunc(r.claims[s], func(o *record) bool { return o == rec })
	if len(all) > 0 {
		r.claims[s] = all
		return
	}
	delete(r.claims, s)
	r.ranges.mark(s, false)
}

// holder returns the record that holds s, nil if there is none.
func (r *Registry) holder(s subject) *record {
	for _, rec := range r.claims[s] {
		return rec
	}
	return nil
}

func (r *Registry) holderName(s subject) string {
	if rec := r.holder(s); rec != nil {
		return rec.Owner
	}
	return ""
}

// find returns the record of an owner, or makes one that is not entered yet. It fails if
// the registry is closed, if a transaction is open, or if generation, which is 0 for any, is not that of the grant.
func (r *Registry) find(op, owner string, generation uint64) (*record, error) {
	if r.closed {
		return nil, ownerError(op, owner, "", ipalloc.ErrClosed)
	}
	rec := r.owners[owner]
	if rec == nil {
		rec = &record{Grant: Grant{Owner: owner}}
	}
	r.adopt(rec)
	switch {
	case rec.tx != nil:
		return nil, ownerError(op, owner, "the owner has an open transaction", ipalloc.ErrInUse)
	case generation != 0 && rec.Generation == 0:
		return nil, ownerError(op, owner, "", ipalloc.ErrNotHeld)
	case generation != 0 && rec.Generation != generation:
		return nil, ownerError(op, owner, "the owner's grant is of another generation", ipalloc.ErrMismatch)
	}
	return rec, nil
}

func ownerError(op, owner, why string, err error) error {
	return &ipalloc.Error{Package: "servicealloc", Op: op, Owner: owner, Reason: why, Err: err}
}

// become ends every change of an owner: g becomes its grant and p, nil for none, its open
// transaction. The caller has claimed what they list. What neither of them lists any more
// is given back. The receiver of changes sees the owner if all that it holds, the
// transaction included, differs from before.
func (r *Registry) become(rec *record, g Grant, p *pending) {
	had := rec.union()
	rec.Grant, rec.tx = g, p
	r.changed(rec, had)
}

// changed is become for a record that is changed already; had is its union before.
func (r *Registry) changed(rec *record, had Grant) {
	has := rec.union()
	if r.giveBack(rec, r.subjects(&had), r.subjects(&has)); rec.tx == nil && has.Generation == 0 {
		delete(r.owners, rec.Owner)
	} else {
		r.owners[rec.Owner] = rec
	}
	switch {
	case r.changes == nil || had.equal(&has):
	case has.Generation == 0:
		r.changes.Add(Change{Kind: Released, Grant: had})
	case had.Generation == 0:
		r.changes.Add(Change{Kind: Allocated, Grant: has})
	default:
		r.changes.Add(Change{Kind: Replaced, Grant: has})
	}
}

// giveBack ends what rec has of have and not of keep.
func (r *Registry) giveBack(rec *record, have, keep []subject) {
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
