package servicealloc

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/snap"
)

const registryMagic = "svcreg"

// MarshalBinary returns a snapshot for [Restore], like [Pool.MarshalBinary]: the
// ranges, the owners with what they hold, and the last generation. For an open
// transaction it records that the owner holds both the old and the new.
func (r *Registry) MarshalBinary() ([]byte, error) {
	return r.save(r.what(), r.write)
}

// what returns what a snapshot must be of.
func (r *Registry) what() string { return fmt.Sprint("ports ", r.Ports(), " ", r.Ports().PerProtocol) }

func (r *Registry) write(w *snap.Writer) {
	r.ranges.write(w)
	w.Uvarint(r.last)
	names := slices.Sorted(maps.Keys(r.owners))
	names = slices.DeleteFunc(names, func(name string) bool { u := r.owners[name].union(); return u.Generation == 0 })
	w.Count(len(names))
	rank := r.claims.ranks()
	for _, name := range names {
		u := r.owners[name].union()
		u.write(w)
		for _, s := range r.subjects(&u) {
			w.Count(rank(s, r.owners[name])) // 0: it is the holder
		}
	}
}

func (g *Grant) write(w *snap.Writer) {
	w.String(g.Owner)
	w.Uvarint(g.Generation)
	w.Bool(g.Spilled)
	snap.WriteList(w, g.Addrs, w.Addr)
	snap.WriteList(w, g.Ports, func(p Port) {
		w.Byte(byte(slices.Index(protocols[:], p.Protocol) + 1))
		w.Uvarint(uint64(p.Number))
	})
}

func readGrant(d *snap.Reader) (g Grant) {
	g = Grant{Owner: d.String(), Generation: d.Uvarint(), Spilled: d.Bool()}
	g.Addrs = snap.ReadList(d, 5, d.Addr)
	if slices.ContainsFunc(g.Addrs, func(ip netip.Addr) bool { return addr.CheckAddr(ip) != nil }) {
		d.Fail("an address of %q", g.Owner)
	}
	g.Ports = snap.ReadList(d, 2, func() (p Port) {
		if i := d.Upto(uint64(len(protocols))); i > 0 {
			p.Protocol = protocols[i-1]
		}
		if p.Number = uint16(d.Upto(1<<16 - 1)); p.Number == 0 {
			d.Fail("a port of %q", g.Owner)
		}
		return p
	})
	return g
}

func (r *Registry) read(d *snap.Reader) {
	r.ranges.read(d)
	r.readOwners(d)
}

// readOwners reads the owners, and takes what they hold or claim in the order in which
// they came.
func (r *Registry) readOwners(d *snap.Reader) {
	type turn struct {
		s   subject
		rec *record
		n   uint64 // how many came before
	}
	var turns []turn
	r.last = d.Upto(maxGeneration)
	before := ""
	for n, i := d.Count(6), 0; i < n && d.Err() == nil; i++ {
		g := readGrant(d)
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
	if d.Err() != nil {
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
// ranges and ports, and who holds what. It also reports a [Tx] that was dropped before
// it ended, which is a bug in the program. It is linear in what is held and in the
// ranges.
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

// checkHeld compares what is marked with what is held.
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
