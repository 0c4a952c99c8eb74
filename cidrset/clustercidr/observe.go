package clustercidr

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Observe records that the node has the prefixes that n says, from the entry that n
// says, instead of those it held before, and reports whether that changed anything.
// What a node has is a fact, so nothing is refused: a prefix of no entry, one that
// another node holds as well or one that overlaps a reservation is recorded like any
// other, as long as it is and not as the child that it lies in. It is out of
// circulation until the last of its nodes is released, and is listed among the
// problems. A node without any prefix that can be read keeps what it holds here: it
// may be about to be told.
//
// If n names no entry, the entry that the node had for these prefixes stays; else it
// becomes the only entry whose children they all are. If several fit, which is a
// problem, it is the best by the rules that look at nothing but the entry.
//
// The problems are those of [Allocator.Load]. O(log n) for a prefix, but for
// records without an entry, which are compared with every entry. Safe for
// concurrent use.
func (a *Allocator) Observe(n Node) (changed bool, problems []*Error) {
	a.mu.Lock()
	l := loading{a: a, op: "observe"}
	changed = l.observe(&n, false)
	l.tell()
	a.mu.Unlock()
	a.deliver()
	return changed, l.problems
}

// Load does for all nodes what [Allocator.Observe] does for one, under one lock and
// as one change. It is how an allocator starts: with the full list, after all
// entries, those that are to be deleted included, and before anything is allocated
// or deleted. It never fails; what is wrong with the records is returned, an error
// for each, in the order of the list:
//
//   - [ErrBadPrefix]: not a prefix, or one with host bits or in 4-in-6 form, which
//     is recorded as what it means;
//   - [ErrNoEntry]: the recorded entry is not there;
//   - [ErrAmbiguous]: no entry is recorded and several fit; the node is now recorded
//     with Entry, and could be with Other;
//   - [ErrFamily], [ErrOutOfRange], [ErrMisaligned]: not what the entry hands out;
//     without an entry, not what any hands out;
//   - [ErrTooMany], [ErrMissing]: not one prefix of each family that nodes need;
//   - [ErrReserved], [ErrDuplicate]: it overlaps a reservation, or what another
//     node, named in Other, holds;
//   - [ErrListedTwice]: an earlier record has the same name; the node holds the
//     prefixes of both;
//   - [ErrBadName]: the record has no name; its prefixes are held all the same.
//
// Nodes that are not in the list are left alone. Safe for concurrent use; the
// allocator is locked meanwhile.
func (a *Allocator) Load(nodes []Node) []*Error {
	a.mu.Lock()
	l := a.load(nodes)
	l.tell()
	a.mu.Unlock()
	a.deliver()
	return l.problems
}

func (a *Allocator) load(nodes []Node) *loading {
	a.loads++
	if len(a.owners) == 0 {
		a.owners = make(map[string]*owner, len(nodes))
	}
	l := &loading{a: a, op: "load"}
	for i := range nodes {
		l.observe(&nodes[i], true)
	}
	return l
}

// loading is one call of Load or Observe.
type loading struct {
	a        *Allocator
	op       string
	problems []*Error
	changed  []Node   // if somebody listens
	gone     []string // terminating entries that lost their last node
}

func (l *loading) tell() {
	if len(l.changed) > 0 {
		slices.Sort(l.gone)
		l.a.tell(Change{Op: OpOccupy, Nodes: l.changed, Gone: l.gone})
	}
}

func (l *loading) add(e Error) {
	e.Op = l.op
	l.problems = append(l.problems, &e)
}

// observe records n. In a list, a node that was in it before keeps what that said.
func (l *loading) observe(n *Node, list bool) (changed bool) {
	a := l.a
	if n.Name == "" {
		l.add(Error{Entry: n.Entry, Err: ErrBadName})
	}
	o := a.owners[n.Name]
	want, entry := []netip.Prefix(nil), n.Entry
	if o != nil && list && o.load == a.loads {
		l.add(Error{Node: n.Name, Err: ErrListedTwice})
		want = append(want, o.prefixes...)
		if entry == "" {
			entry = o.entry
		}
	}
	for i, p := range n.Prefixes {
		q, err := usable(p)
		if err != nil {
			l.unusable(n, i, err)
		}
		if q.IsValid() && !slices.Contains(want, q) {
			want = append(want, q)
		}
	}
	if len(want) == 0 {
		return false
	}
	if entry == "" {
		entry = l.guess(n, o, want)
	}
	if o == nil || o.entry != entry || !slices.Equal(o.prefixes, want) {
		changed = true
		o = l.replace(n.Name, o, entry, want)
	}
	if list {
		o.load = a.loads
	}
	l.judge(o)
	return changed
}

func (l *loading) unusable(n *Node, i int, err error) {
	e := Error{Node: n.Name, Entry: n.Entry, Prefix: n.Prefixes[i], Err: fmt.Errorf("%w: %w", ErrBadPrefix, err)}
	if i < len(n.Texts) {
		e.Text = n.Texts[i]
	}
	l.add(e)
}

// usable returns the masked prefix of p's own family that covers what p means, and
// what was wrong with p. It returns the zero Prefix if p means nothing.
func usable(p netip.Prefix) (netip.Prefix, error) {
	err := addr.Check(p)
	switch {
	case err == nil:
		return p, nil
	case !p.IsValid():
		return netip.Prefix{}, err
	case p.Addr().Is4In6() && p.Bits() >= 96:
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), err
}

// guess returns the name of the entry that the prefixes are from, "" if it is none.
func (l *loading) guess(n *Node, o *owner, prefixes []netip.Prefix) string {
	if o != nil && slices.Equal(o.prefixes, prefixes) {
		return o.entry
	}
	best, other := l.a.fitting(prefixes)
	if best == nil {
		return ""
	}
	if other != nil {
		l.add(Error{Node: n.Name, Entry: best.spec.Name, Other: other.spec.Name, Err: ErrAmbiguous})
	}
	return best.spec.Name
}

// replace makes the node hold the prefixes instead of what it held.
func (l *loading) replace(name string, old *owner, entry string, prefixes []netip.Prefix) *owner {
	a := l.a
	o := &owner{name: name}
	if old != nil {
		a.drop(old)
	}
	a.hold(o, entry, prefixes)
	if old != nil && a.sweep(old.entry) {
		l.gone = append(l.gone, old.entry)
	}
	if a.events != nil {
		l.changed = append(l.changed, o.record())
	}
	return o
}

// judge lists what is wrong with what o holds.
func (l *loading) judge(o *owner) {
	a := l.a
	var e *entry
	if o.entry != "" {
		if e = a.lookup(o.entry); e == nil {
			l.add(Error{Node: o.name, Entry: o.entry, Err: ErrNoEntry})
		}
	}
	var seen [2]bool
	alone := 0
	for _, p := range o.prefixes {
		bad := Error{Node: o.name, Entry: o.entry, Prefix: p}
		f := familyOf(p)
		if seen[f-1] {
			bad.Err = ErrTooMany
			l.add(bad)
		}
		seen[f-1] = true
		switch {
		case e != nil:
			if bad.Err = e.fits(p); bad.Err != nil {
				l.add(bad)
			}
		case o.entry == "":
			if best, _ := a.fitting([]netip.Prefix{p}); best != nil {
				alone++
				break
			}
			bad.Err = fmt.Errorf("%w of any entry", ErrOutOfRange)
			l.add(bad)
		}
		l.overlaps(o, p)
	}
	if alone == len(o.prefixes) && alone > 0 {
		l.add(Error{Node: o.name, Err: fmt.Errorf("%w of any one entry, only of several", ErrOutOfRange)})
	}
	for _, f := range a.families {
		if !seen[f-1] {
			l.add(Error{Node: o.name, Entry: o.entry, Err: fmt.Errorf("%w: %v", ErrMissing, f)})
		}
	}
}

// overlaps lists what p of o overlaps.
func (l *loading) overlaps(o *owner, p netip.Prefix) {
	for i := range l.a.reserved {
		if l.a.reserved[i].prefix.Overlaps(p) {
			l.add(Error{Node: o.name, Entry: o.entry, Prefix: p, Err: ErrReserved})
			break
		}
	}
	if r := l.a.spaces[familyOf(p)-1].rival(blockOf(p), o); r != nil {
		l.add(Error{Node: o.name, Entry: o.entry, Prefix: p, Other: r.name, Err: ErrDuplicate})
	}
}
