package nodeipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/selector"
)

// labels is the policy of entries that are chosen by the labels of a node: one child
// of each family of one entry.
type labels struct {
	a        *Allocator
	families []Family       // that every node needs
	order    []int          // positions of both families, in the order in which prefixes are listed
	entries  []*entry       // ascending by name
	nodes    map[string]int // by entry; by "" those recorded with none

	full, noMatch *ipalloc.Error // answer Allocate
	scratch       struct {
		found []candidate
		order []*candidate
	}
}

// newLabels returns the policy without entries.
func newLabels(a *Allocator, need []Family) (*labels, *ipalloc.Error) {
	l := &labels{a: a, families: slices.Clone(need), nodes: map[string]int{}}
	for i, f := range need {
		at := slices.Index(families[:], f)
		if at < 0 || slices.Contains(l.order, at) {
			return nil, invalid(fmt.Sprintf("Families[%d]", i), fmt.Sprintf("%q is unknown or repeated", f))
		}
		l.order = append(l.order, at)
	}
	for i := range families {
		if !slices.Contains(l.order, i) {
			l.order = append(l.order, i)
		}
	}
	l.full = &ipalloc.Error{Package: "nodeipam", Op: "allocate", Err: ipalloc.ErrFull, Reason: "no entry that matches has a free child in each of its families"}
	l.noMatch = &ipalloc.Error{Package: "nodeipam", Op: "allocate", Err: ipalloc.ErrNotFound, Reason: "no entry matches"}
	return l, nil
}

// search returns the index of the entry of that name, or else the index to insert it at.
func (l *labels) search(name string) (int, bool) {
	return slices.BinarySearchFunc(l.entries, name, func(e *entry, name string) int { return strings.Compare(e.spec.Name, name) })
}

// lookup returns the entry of that name, nil if there is none.
func (l *labels) lookup(name string) *entry {
	if i, found := l.search(name); found {
		return l.entries[i]
	}
	return nil
}

func (l *labels) choose(n Node, dst []netip.Prefix) ([]netip.Prefix, string, error) {
	candidates := l.rank(&n)
	for _, c := range candidates {
		if ps, full := l.room(c.entry, dst); full == nil {
			return ps, c.spec.Name, nil
		}
	}
	if len(candidates) == 0 {
		return dst, "", l.noMatch
	}
	return dst, "", l.full
}

// room appends a free child of each family of e, up to the first pool without one, which
// it returns; nil if all pools have one.
func (l *labels) room(e *entry, dst []netip.Prefix) ([]netip.Prefix, *pool) {
	for _, f := range l.order {
		if e.has(f) {
			p, ok := l.a.next(&e.pools[f])
			if !ok {
				return dst, &e.pools[f]
			}
			dst = append(dst, p)
		}
	}
	return dst, nil
}

func (l *labels) advance(name string, p netip.Prefix) {
	if e := l.lookup(name); e != nil {
		l.a.moveBehind(&e.pools[familyOf(p)], p)
	}
}

func (l *labels) origin(r *recording, want []netip.Prefix) string {
	if r.entry != "" {
		return r.entry
	}
	if r.owner != nil && slices.Equal(r.owner.prefixes, want) {
		return r.owner.entry
	}
	best, other := l.fitting(want...)
	if best == nil {
		return ""
	}
	if other != nil {
		r.add(&ipalloc.Error{Name: best.spec.Name, Err: ipalloc.ErrMismatch,
			Reason: fmt.Sprintf("no entry is recorded, and %q fits as well", other.spec.Name)})
	}
	return best.spec.Name
}

func (l *labels) judge(r *recording, places []place) {
	var e *entry
	if r.entry != "" {
		e = l.lookup(r.entry)
		switch {
		case e == nil:
			r.add(&ipalloc.Error{Name: r.entry, Err: ipalloc.ErrNotFound, Reason: "no such entry"})
		case e.terminating && r.strict:
			r.add(&ipalloc.Error{Name: r.entry, Err: ipalloc.ErrInUse, Reason: "the entry is terminating"})
		}
	}
	var seen [2]bool
	single := r.entry == ""
	for _, pl := range places {
		f := familyOf(pl.prefix)
		if seen[f] {
			r.bad(pl, ipalloc.ErrLimit, "more than one "+string(families[f])+" prefix")
		}
		seen[f] = true
		switch {
		case e != nil:
			l.fits(r, pl, &e.pools[f])
		case r.entry == "":
			if best, _ := l.fitting(pl.prefix); best == nil {
				single = false
				r.bad(pl, ipalloc.ErrOutOfRange, "no child of any entry")
			}
		}
		r.overlaps(pl)
	}
	if single {
		r.add(&ipalloc.Error{Err: ipalloc.ErrOutOfRange, Reason: "children of several entries, not of one"})
	}
	for _, f := range l.families {
		if !seen[slices.Index(families[:], f)] {
			r.lacks(f)
		}
	}
}

// fits reports a prefix that is not a child of the pool of its entry.
func (l *labels) fits(r *recording, at place, pl *pool) {
	switch {
	case !pl.prefix.IsValid():
		r.bad(at, ipalloc.ErrMismatch, "of a family that the entry lacks")
	case !pl.contains(at.prefix):
		r.bad(at, ipalloc.ErrOutOfRange, "").Pool = pl.prefix
	case !pl.has(at.prefix):
		r.bad(at, ipalloc.ErrOutOfRange, fmt.Sprintf("not a /%d", pl.size)).Pool = pl.prefix
	}
}

func (l *labels) count(entry string, delta int) {
	if l.nodes[entry] += delta; l.nodes[entry] == 0 {
		delete(l.nodes, entry)
	}
}

func (l *labels) sweep(name string) []string {
	e := l.lookup(name)
	if e == nil || !e.terminating || l.nodes[name] > 0 {
		return nil
	}
	l.forget([]string{name})
	return []string{name}
}

func (l *labels) forget(names []string) {
	for _, name := range names {
		if i, found := l.search(name); found {
			invariant.Step(len(l.entries) - i)
			l.entries = slices.Delete(l.entries, i, i+1)
		}
	}
}

func (l *labels) stats(st *Stats) {
	st.Foreign, st.Entries = l.nodes[""], len(l.entries)
	for _, e := range l.entries {
		if e.terminating {
			st.Leaving++
		}
		for i := range e.pools {
			if e.has(i) {
				ps := l.a.poolStats(&e.pools[i])
				ps.Entry, ps.Draining = e.spec.Name, e.terminating
				st.Pools = append(st.Pools, ps)
			}
		}
	}
}

func (l *labels) check() error {
	for i, e := range l.entries {
		name := e.spec.Name
		if i > 0 && l.entries[i-1].spec.Name >= name {
			return fmt.Errorf("entry %q out of order", name)
		}
		again, err := newEntry(e.spec)
		if err == nil {
			err = l.lacks(e)
		}
		switch {
		case err != nil:
			return err
		case again.spec.Name != e.spec.Name || again.differs(e) != "" || again.capacity != e.capacity:
			return fmt.Errorf("entry %q changed", name)
		case e.terminating && l.nodes[name] == 0:
			return fmt.Errorf("entry %q is terminating without nodes", name)
		}
		for f := range e.pools {
			x, y := e.pools[f], again.pools[f]
			y.cursor = x.cursor
			if x != y || e.has(f) && !x.block.Starts(x.cursor, x.size) {
				return fmt.Errorf("pool %v of entry %q changed", x.prefix, name)
			}
		}
	}
	nodes := map[string]int{}
	for _, o := range l.a.owners {
		nodes[o.entry]++
	}
	if !maps.Equal(nodes, l.nodes) {
		return fmt.Errorf("nodes by entry are %v, counted %v", nodes, l.nodes)
	}
	return nil
}

// lacks returns an error if e lacks a family that every node needs.
func (l *labels) lacks(e *entry) *ipalloc.Error {
	for i, f := range families {
		if slices.Contains(l.families, f) && !e.has(i) {
			err := invalid(string(f), "missing; every node needs this family")
			err.Name = e.spec.Name
			return err
		}
	}
	return nil
}

func (l *labels) save(w *wire.Coder) {
	w.Literal(string(rune(byLabels)))
	wire.List(w, &l.families, 1, codeFamily)
	n := len(l.entries)
	w.Count(&n, minEntry)
	for _, e := range l.entries {
		codeEntry(w, &e.spec, &e.terminating)
		e.codeCursors(w)
	}
}

func codeFamily(c *wire.Coder, f *Family) { wire.String(c, (*string)(f)) }

// codeEntry codes an entry and whether it is terminating.
func codeEntry(c *wire.Coder, spec *Entry, terminating *bool) {
	wire.String(c, &spec.Name)
	wire.List(c, (*[]selector.Term)(&spec.Selector), 2, func(c *wire.Coder, t *selector.Term) {
		wire.List(c, &t.Labels, 3, codeRequirement)
		wire.List(c, &t.Fields, 3, codeRequirement)
	})
	wire.AnyPrefix(c, &spec.IPv4)
	wire.AnyPrefix(c, &spec.IPv6)
	for _, bits := range []*int{&spec.HostBits, &spec.MaskIPv4, &spec.MaskIPv6} {
		wire.Upto(c, bits, 128)
	}
	wire.Bool(c, terminating)
}

func codeRequirement(c *wire.Coder, q *selector.Requirement) {
	wire.String(c, &q.Key)
	wire.String(c, (*string)(&q.Op))
	wire.List(c, &q.Values, 1, wire.String)
}

func (e *entry) codeCursors(c *wire.Coder) {
	for i := range e.pools {
		if e.has(i) {
			e.pools[i].codeCursor(c)
		}
	}
}

// restoreLabels reads what save wrote after its first byte.
func restoreLabels(a *Allocator, r *wire.Coder) *labels {
	var need []Family
	wire.List(r, &need, 1, codeFamily)
	l, err := newLabels(a, need)
	if err != nil {
		r.Fail("%v", err)
		return l
	}
	n := 0
	for r.Count(&n, minEntry); n > 0; n-- {
		e := restoreEntry(r)
		if e == nil {
			break
		}
		if err := l.lacks(e); err != nil {
			r.Fail("%v", err)
		}
		if n := len(l.entries); n > 0 && l.entries[n-1].spec.Name >= e.spec.Name {
			r.Fail("entries out of order")
		}
		l.entries = append(l.entries, e)
	}
	return l
}

// restoreEntry reads an entry; it returns nil after an error.
func restoreEntry(r *wire.Coder) *entry {
	var spec Entry
	terminating := false
	codeEntry(r, &spec, &terminating)
	e, err := newEntry(spec)
	if err != nil {
		r.Fail("%v", err)
	}
	if r.Err != nil {
		return nil
	}
	e.terminating = terminating
	e.codeCursors(r)
	return e
}
