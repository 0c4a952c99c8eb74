package nodeipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/claims"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// Observe records the prefixes in n's record as n's, instead of those it held before, and
// reports whether that changed anything. Observe refuses nothing, because the node uses
// its recorded prefixes already. A prefix that is outside every pool, is held by another
// node or overlaps a reservation is recorded like any other. It stays taken until the
// last of its nodes is released, and is listed among the problems.
//
// A record frees the node's prefixes only by naming others. A node without prefixes keeps
// those it holds, because its write may still be in flight. Where the record cannot be
// read, the node keeps the prefix it held at that position. A record with another UID
// belongs to another node; the prefixes of the former one are released first.
//
// By labels, a record without an entry is assigned the entry that has all its prefixes as
// children. If several such entries exist, Observe reports a problem and assigns the
// first of them by the rules that ignore labels.
//
// The problems are the errors that [Allocator.Load] returns. O(log n) for a prefix; a
// record without an entry is compared with every entry.
func (a *Allocator) Observe(n Node) (changed bool, problems []*ipalloc.Error) {
	a.mu.Lock()
	defer a.unlock()
	r := recording{a: a, op: "record"}
	changed = r.observe(&n)
	r.finish()
	return changed, r.problems
}

// Load is like [Allocator.Observe] for all nodes, under one lock and as one change. Start
// an allocator with it: pass the full list of nodes, after adding all entries,
// terminating ones included, and before any allocation or deletion. Load never fails as a
// whole. It returns one error for each problem with a record, in the order of the list,
// with Owner, Field and Prefix set. Each error matches a sentinel:
//
//   - [ipalloc.ErrInvalid]: the record has no name, a text that is no prefix, or a prefix
//     with host bits or in IPv4-mapped form, which is recorded in its proper form;
//   - [ipalloc.ErrExists]: the name is listed twice; the node holds the prefixes of both;
//   - [ipalloc.ErrLimit]: more prefixes than slots, or two prefixes of one family;
//   - [ipalloc.ErrMismatch]: the prefix is of the other family, or several entries fit;
//     Name is the recorded entry and Holder another;
//   - [ipalloc.ErrOutOfRange]: the slot or entry has no such child;
//   - [ipalloc.ErrNotFound]: the recorded entry, in Name, does not exist;
//   - [ipalloc.ErrNotHeld]: the node has prefixes, but none of a family that every node
//     needs; by slots, Field is the slot without a prefix;
//   - [ipalloc.ErrReserved], [ipalloc.ErrOccupied]: the prefix overlaps a reservation, or
//     a prefix of another node, which Holder names.
//
// Nodes that are not listed keep their prefixes. O(n log n). It holds the allocator's
// lock.
func (a *Allocator) Load(nodes []Node) []*ipalloc.Error {
	a.mu.Lock()
	defer a.unlock()
	a.loads++
	if len(a.owners) == 0 {
		a.grow(nodes)
	}
	r := recording{a: a, op: "record", load: a.loads}
	for i := range nodes {
		r.observe(&nodes[i])
	}
	r.finish()
	return r.problems
}

// grow allocates the space for the nodes at once.
func (a *Allocator) grow(nodes []Node) {
	holders, prefixes := 0, [2]int{}
	for i := range nodes {
		holders += min(len(nodes[i].Prefixes), 1)
		for _, p := range nodes[i].Prefixes {
			prefixes[familyOf(p)]++
		}
	}
	for f, n := range prefixes {
		a.spaces[f].Grow(n)
	}
	a.owners = make(map[string]*owner, holders)
	owners := make([]owner, max(holders-len(a.idle), 0))
	for i := range owners {
		a.idle = append(a.idle, &owners[i])
	}
}

// recording is one call of Load, Observe or Occupy.
type recording struct {
	a        *Allocator
	op       string
	load     uint64 // the number of this Load; 0 for the other calls
	strict   bool   // Occupy: an entry that terminates is refused
	problems []*ipalloc.Error
	changed  []Node   // for the receiver
	left     []string // entries that lost a node
	gone     []string // terminating entries that lost their last one

	// The current node.
	name, entry string
	owner       *owner // nil if it holds nothing
	alone       bool   // nothing overlaps its prefixes
}

// place is a prefix and its position in a record; -1 if the record does not show it.
type place struct {
	at     int
	prefix netip.Prefix
}

func field(i int) string { return fmt.Sprintf("Prefixes[%d]", i) }

func byName(x, y Node) int { return strings.Compare(x.Name, y.Name) }

func (r *recording) add(e *ipalloc.Error) {
	e.Package, e.Op, e.Owner = "nodeipam", r.op, r.name
	r.problems = append(r.problems, e)
}

// bad adds a problem with the prefix at a place.
func (r *recording) bad(pl place, err error, reason string) *ipalloc.Error {
	e := &ipalloc.Error{Prefix: pl.prefix, Name: r.entry, Err: err, Reason: reason}
	if pl.at >= 0 {
		e.Field = field(pl.at)
	}
	r.add(e)
	return e
}

// lacks adds the problem that the node has no prefix of a family that every node needs.
func (r *recording) lacks(f Family) *ipalloc.Error {
	e := &ipalloc.Error{Name: r.entry, Err: ipalloc.ErrNotHeld, Reason: "no " + string(f) + " prefix, which every node needs"}
	r.add(e)
	return e
}

// sweep removes the terminating entries that lost their last node.
func (r *recording) sweep() {
	for _, entry := range r.left {
		r.gone = append(r.gone, r.a.policy.sweep(entry)...)
	}
	r.left = nil
}

// finish queues all changes as one change. Entries are removed only at the end of a Load,
// because a later record may be for another of their nodes.
func (r *recording) finish() {
	r.sweep()
	if len(r.changed)+len(r.gone) > 0 {
		slices.Sort(r.gone)
		r.a.changes.Add(Change{Op: OpOccupy, Nodes: r.changed, Gone: r.gone})
	}
}

// observe records n.
func (r *recording) observe(n *Node) (changed bool) {
	a := r.a
	r.name, r.entry, r.alone = n.Name, n.Entry, false
	if n.Name == "" {
		r.add(&ipalloc.Error{Field: "Name", Err: ipalloc.ErrInvalid, Reason: "empty"})
	}
	o := a.owners[n.Name]
	again := o != nil && r.load != 0 && o.load == r.load
	switch {
	case again:
		r.add(&ipalloc.Error{Err: ipalloc.ErrExists, Reason: "listed twice"})
	case o.isOther(n.UID):
		a.record(OpRelease, o)
		r.left = append(r.left, a.drop(o))
		o, changed = nil, true
	}
	r.owner = o
	want := r.read(n, o, again)
	if len(want) == 0 {
		return o != nil && r.note(o, n, false) || changed
	}
	if r.entry == "" && again {
		r.entry = o.entry
	}
	r.entry = a.policy.origin(r, want)
	fresh := o == nil || o.entry != r.entry || !slices.Equal(o.prefixes, want)
	if fresh {
		before := ""
		if o == nil {
			o = a.newOwner(n.Name)
		} else {
			before = o.entry
		}
		r.alone = a.hold(o, r.entry, want)
		r.owner = o
		if before != r.entry {
			r.left = append(r.left, before)
		}
	}
	changed = r.note(o, n, fresh) || changed
	if r.load == 0 {
		r.sweep()
	}
	a.policy.judge(r, a.found)
	return changed
}

// note records the other fields of n and reports whether anything changed, the prefixes
// included.
func (r *recording) note(o *owner, n *Node, changed bool) bool {
	if o.terminating != n.Terminating || n.UID != "" && o.uid != n.UID {
		changed = true
	}
	r.a.setTerminating(o, n.Terminating)
	if n.UID != "" {
		o.uid = n.UID
	}
	o.load = r.load
	if changed && r.a.changes != nil {
		r.changed = append(r.changed, o.node())
	}
	return changed
}

// read returns the prefixes that o is to hold after the record n, each once, in the
// allocator's scratch. o is nil if the node holds nothing. It fills a.found with the
// prefixes in the record.
func (r *recording) read(n *Node, o *owner, again bool) (want []netip.Prefix) {
	a := r.a
	want, a.found = a.want[:0], a.found[:0]
	var held []netip.Prefix
	if o != nil {
		held = o.prefixes
	}
	index := indexOf(max(len(held), len(n.Prefixes)))
	keep := func(p netip.Prefix) {
		if index(want, p) < 0 {
			want = append(want, p)
			a.found = append(a.found, place{-1, p})
		}
	}
	if again {
		for _, p := range held {
			keep(p)
		}
	}
	unread := false
	for i, p := range n.Prefixes {
		q, err := usable(p)
		if err != nil {
			e := r.bad(place{i, p}, ipalloc.ErrInvalid, err.Error())
			if e.Prefix = p; i < len(n.Texts) {
				e.Prefix, e.Text = netip.Prefix{}, n.Texts[i]
			}
		}
		switch {
		case !q.IsValid():
			if unread = true; len(held) == len(n.Prefixes) {
				keep(held[i])
			}
			continue
		case index(want, q) < 0:
			want = append(want, q)
		case again && a.found[index(want, q)].at < 0:
			a.found[index(want, q)].at = i
			continue
		}
		a.found = append(a.found, place{i, q})
	}
	if unread && len(held) != len(n.Prefixes) { // no place says which it is
		for _, p := range held {
			keep(p)
		}
	}
	a.want = want
	return want
}

// indexOf returns a function that returns the index of p in a growing list, -1 if p is
// not in it. For a node of many prefixes it keeps a map.
func indexOf(n int) func(list []netip.Prefix, p netip.Prefix) int {
	if n <= 16 {
		return func(list []netip.Prefix, p netip.Prefix) int {
			invariant.Step(len(list))
			return slices.Index(list, p)
		}
	}
	at, known := make(map[netip.Prefix]int, n), 0
	return func(list []netip.Prefix, p netip.Prefix) int {
		for ; known < len(list); known++ {
			at[list[known]] = known
		}
		if i, ok := at[p]; ok {
			return i
		}
		return -1
	}
}

// overlaps adds the reservation or node that the prefix at a place overlaps.
func (r *recording) overlaps(pl place) {
	if r.alone {
		return
	}
	rival, reserved := r.a.rival(pl.prefix, r.owner, 64) // more would take n^2 steps for n nodes of one prefix
	if reserved {
		r.bad(pl, ipalloc.ErrReserved, "overlaps a reservation")
	}
	if rival != nil {
		r.bad(pl, ipalloc.ErrOccupied, "overlaps another node's prefix").Holder = rival.name
	}
}

// rival returns an owner other than o whose prefix overlaps p. It takes the shortest
// prefix around p, or else the lowest prefix inside p. Among the latest limit claims of
// that prefix, it returns the owner whose name sorts first. It also reports whether a
// reservation overlaps p.
func (a *Allocator) rival(p netip.Prefix, o *owner, limit int) (found *owner, reserved bool) {
	b := claims.BlockOf(p)
	a.kept[familyOf(p)].Overlapping(b, func(claims.Block, *claim) bool {
		reserved = true
		return false
	})
	a.spaceOf(p).Overlapping(b, func(_ claims.Block, c *claim) bool {
		for n := 0; c != nil && n < limit; n++ {
			invariant.Step(1)
			if c.Owner != nil && c.Owner != o && (found == nil || c.Owner.name < found.name) {
				found = c.Owner
			}
			c = c.Next()
		}
		return found == nil
	})
	return found, reserved
}
