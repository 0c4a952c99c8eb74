package servicealloc

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Move releases from.Addrs and from.Ports of from.Owner, and assigns to.Addrs and
// to.Ports to to.Owner, in one step. Both grants must name the generation of the owner's
// present grant, 0 if it holds nothing. Either grant may list nothing: its owner then
// keeps its grant. A zero Grant names no owner. Both grants may list the same addresses
// and ports: to.Owner then gets them, even if Load also recorded them for other owners.
// Everything else in to must be free. Move returns the new generations of both grants. A
// generation is 0 if the owner holds nothing or its grant lists nothing. It takes O(log
// n) for each address and port, however much the owners hold.
//
// It fails with [ipalloc.ErrMismatch] if a generation differs, and with
// [ipalloc.ErrInUse] if a transaction of either owner is open. It fails with
// [ipalloc.ErrNotHeld] if from lists an address or port that its owner does not hold. It
// fails with [ipalloc.ErrOccupied], [ipalloc.ErrReserved] or [ipalloc.ErrOutOfRange] for
// an address or port that to.Owner cannot get. On error nothing changes.
func (r *Registry) Move(from, to Grant) (left, got uint64, err error) {
	r.lock()
	defer r.unlock()
	a, gone, err := r.party("from", &from)
	if err != nil {
		return 0, 0, err
	}
	b, come, err := r.party("to", &to)
	if err != nil {
		return 0, 0, err
	}
	fail := func(owner string, e *ipalloc.Error, s subject) (uint64, uint64, error) {
		e.Package, e.Op, e.Owner, e.Addr, e.Port, e.Holder = "servicealloc", "move", owner, s.addr(), s.port().Number, r.holderName(s)
		return 0, 0, e
	}
	goes := make(map[subject]bool, len(gone))
	for _, s := range gone {
		if goes[s] = true; r.holder(s) != a {
			return fail(from.Owner, &ipalloc.Error{Err: ipalloc.ErrNotHeld}, s)
		}
	}
	for _, s := range come {
		if h := r.holder(s); h != nil && !goes[s] {
			return fail(to.Owner, &ipalloc.Error{Err: ipalloc.ErrOccupied}, s)
		} else if h == nil && !r.ranges.usable(s) {
			return fail(to.Owner, r.ranges.takeable(s), s)
		}
	}
	if a == nil && b == nil {
		return 0, 0, nil
	}
	r.transfer(a, b, gone, come, &to)
	for _, rec := range []*record{a, b} {
		if rec != nil && rec.generation != 0 {
			r.last = r.next()
			rec.generation = r.last
		}
	}
	c := Change{Op: OpMove}
	if a != nil {
		left = a.generation
		c.From = Grant{Owner: a.owner, Generation: left, Addrs: slices.Clone(from.Addrs), Ports: slices.Clone(from.Ports), Spilled: a.spilled}
	}
	if b != nil {
		got = b.generation
		c.Grant = Grant{Owner: b.owner, Generation: got, Addrs: slices.Clone(to.Addrs), Ports: slices.Clone(to.Ports), Spilled: b.spilled}
	}
	if r.changes != nil {
		r.changes.Add(c)
	}
	return left, got, nil
}

// party returns the record of an owner in a call of Move, and the subjects that g lists.
// The record is nil if g lists nothing, but a named owner must have the generation all
// the same. The record of an owner that holds nothing is entered when it gains something.
func (r *Registry) party(name string, g *Grant) (*record, []subject, error) {
	if g.empty() && g.Owner == "" {
		return nil, nil, nil
	}
	if !g.wellFormed() {
		return nil, nil, g.refused("move", name, "lists what is no address or port")
	}
	rec, err := r.find("move", g.Owner, 0)
	if err == nil && rec.generation != g.Generation {
		err = ownerError("move", g.Owner, "the owner's grant is of another generation", ipalloc.ErrMismatch)
	}
	if g.empty() {
		rec = nil
	}
	return rec, r.subjects(g), err
}

// refused returns the error of an impossible grant in an argument.
func (g *Grant) refused(op, field, why string) error {
	return &ipalloc.Error{Package: "servicealloc", Op: op, Field: field, Owner: g.Owner, Reason: why, Err: ipalloc.ErrInvalid}
}

// wellFormed reports whether g lists addresses and ports that can be held.
func (g *Grant) wellFormed() bool {
	return !slices.ContainsFunc(g.Addrs, func(ip netip.Addr) bool { return addr.CheckAddr(ip) != nil }) &&
		!slices.ContainsFunc(g.Ports, func(p Port) bool { return p.Number == 0 || !p.Protocol.valid() })
}

// transfer takes gone from a and gives come, the subjects of to, to b; either record may
// be nil. A subject in both lists is never free in between, and does not go to an owner
// that waits for it. A record that gains something has a generation other than 0
// afterwards.
func (r *Registry) transfer(a, b *record, gone, come []subject, to *Grant) {
	comes := make(map[subject]bool, len(come))
	for _, s := range come {
		comes[s] = true
	}
	for _, s := range gone {
		if comes[s] {
			r.pass(s, a, b)
		} else {
			r.unclaim(s, a)
		}
		r.drop(&a.holding, s)
	}
	if a != nil {
		if a.empty() {
			a.holding = holding{}
		}
		r.enter(a)
	}
	if b == nil {
		return
	}
	for _, s := range come {
		r.claim(s, b)
	}
	for _, ip := range to.Addrs { // which come last, also if the owner waited for them
		b.addrs.remove(ip)
	}
	for _, p := range to.Ports {
		b.ports.remove(p)
	}
	b.add(to)
	b.generation = max(b.generation, 1)
	r.enter(b)
}
