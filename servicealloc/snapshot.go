package servicealloc

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/wire"
)

const (
	registryMagic = "svcreg"

	minGrant = 6 // the fewest bytes that a grant takes
)

// MarshalBinary returns a snapshot for [Restore], like [Pool.MarshalBinary]: the ranges,
// the owners with their grants, and the last generation. For an open transaction it
// records that the owner holds both the old and the new grant.
func (r *Registry) MarshalBinary() ([]byte, error) {
	return r.save(r.what(), r.write)
}

// what returns the identity that a snapshot must have to be restored.
func (r *Registry) what() string { return fmt.Sprint("ports ", r.Ports(), " ", r.Ports().PerProtocol) }

func (r *Registry) write(w *wire.Coder) {
	r.ranges.write(w)
	wire.Uint(w, &r.last)
	names := slices.Sorted(maps.Keys(r.owners))
	names = slices.DeleteFunc(names, func(name string) bool { u := r.owners[name].union(); return u.Generation == 0 })
	n := len(names)
	w.Count(&n, minGrant)
	rank := r.claims.ranks()
	for _, name := range names {
		u := r.owners[name].union()
		u.code(w)
		for _, s := range r.subjects(&u) {
			n = rank(s, r.owners[name]) // 0: it is the holder
			wire.Uint(w, &n)
		}
	}
}

func (g *Grant) code(c *wire.Coder) {
	wire.String(c, &g.Owner)
	wire.Uint(c, &g.Generation)
	wire.Bool(c, &g.Spilled)
	wire.List(c, &g.Addrs, 5, wire.AnyAddr)
	wire.List(c, &g.Ports, 2, codePort)
	if !c.Writes && slices.ContainsFunc(g.Addrs, func(ip netip.Addr) bool { return addr.CheckAddr(ip) != nil }) {
		c.Fail("an address of %q", g.Owner)
	}
}

// codePort encodes or decodes a port; a port without protocol is of all protocols.
func codePort(c *wire.Coder, p *Port) {
	protocol := slices.Index(protocols[:], p.Protocol) + 1
	wire.Upto(c, &protocol, uint64(len(protocols)))
	if wire.Upto(c, &p.Number, math.MaxUint16); c.Writes {
		return
	}
	if protocol > 0 {
		p.Protocol = protocols[protocol-1]
	}
	if p.Number == 0 {
		c.Fail("port 0")
	}
}

func (r *Registry) read(d *wire.Coder) {
	r.ranges.read(d)
	r.readOwners(d)
}

// readOwners reads the owners, and claims their addresses and ports in the recorded
// order.
func (r *Registry) readOwners(d *wire.Coder) {
	type turn struct {
		s   subject
		rec *record
		n   uint64 // how many came before
	}
	var turns []turn
	wire.Upto(d, &r.last, maxGeneration)
	before, n := "", 0
	d.Count(&n, minGrant)
	for i := 0; i < n && d.Err == nil; i++ {
		var g Grant
		g.code(d)
		rec := &record{owner: g.Owner, holding: holdingOf(&g)}
		all := r.subjects(&g)
		if i > 0 && g.Owner <= before || g.Generation == 0 || g.Generation > r.last || g.empty() ||
			rec.addrs.len() < len(g.Addrs) || rec.ports.len() < len(g.Ports) {
			d.Fail("the owner %q, of generation %d", g.Owner, g.Generation)
		}
		before, r.owners[g.Owner] = g.Owner, rec
		for _, s := range all {
			turns = append(turns, turn{s, rec, d.Uvarint()})
		}
	}
	if d.Err != nil {
		return
	}
	slices.SortStableFunc(turns, func(x, y turn) int { return cmp.Compare(x.n, y.n) })
	for _, t := range turns {
		if uint64(r.claims.count(t.s)) != t.n {
			d.Fail("a claim of %q", t.rec.owner)
			return
		}
		r.claim(t.s, t.rec)
	}
}

// Check recomputes everything that the registry derives: the bands and counts of its
// ranges and ports, and the holder of each address and port. It also reports a [Tx] that
// was dropped before it ended, which is a bug in the program. It is linear in the held
// addresses and ports and in the ranges.
func (r *Registry) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ranges.refresh()
	if err := r.ranges.check(); err != nil {
		return err
	}
	claims := len(r.claims.holders)
	for s, w := range r.claims.waiting {
		if claims += w.len(); r.claims.holders[s] == nil || w.len() == 0 || w.has(r.claims.holders[s]) {
			return corrupt(ipalloc.Error{Addr: s.addr(), Port: s.port().Number}, "who waits for it")
		}
	}
	for name, rec := range r.owners {
		u := rec.union()
		why := ""
		switch {
		case rec.tx != nil && rec.tx.dropped.Load():
			why = "its transaction was dropped without Commit or Rollback"
		case rec.owner != name || u.Generation > r.last || rec.tx == nil && u.Generation == 0:
			why = "the generation of its grant"
		}
		for _, s := range r.subjects(&u) {
			if !r.claims.has(s, rec) {
				why = "the index lacks what it holds"
			}
			claims--
		}
		if why != "" {
			return corrupt(ipalloc.Error{Owner: name}, why)
		}
	}
	if claims != 0 {
		return corrupt(ipalloc.Error{}, "the index has more than the owners")
	}
	return r.ranges.checkHeld(r.claims.holders)
}

// checkHeld compares the marked numbers with the claims.
func (r *rangeSet) checkHeld(claims map[subject]*record) error {
	marked, held := uint64(len(r.strays)), uint64(len(claims))
	for _, l := range r.lines {
		marked += l.Bits.Count()
	}
	each := map[subject]bool{} // the numbers that are held for some protocol are marked once more
	for s := range claims {
		if l := r.line(s.lineKey); l != nil && !l.Bits.Test(s.x) || (l == nil) != r.strays[s] {
			return corrupt(ipalloc.Error{Addr: s.addr(), Port: s.port().Number}, "held and not marked")
		}
		if s.kind >= onePort {
			each[subject{lineKey{kind: anyPort}, s.x}] = true
		}
	}
	for s := range each {
		if !r.line(s.lineKey).Bits.Test(s.x) {
			return corrupt(ipalloc.Error{Port: s.port().Number}, "held for a protocol and not for any")
		}
	}
	if marked != held+uint64(len(each)) {
		return corrupt(ipalloc.Error{}, "what is marked and what is held differ")
	}
	return nil
}
