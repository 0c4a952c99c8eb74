package nodeipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Occupy gives the owner the prefixes that the caller names, prefixes[i] in slot
// i, all of them or none. There may be fewer than slots. Again for what the owner
// holds already it does nothing.
//
// It fails with an [*Error] that names the first prefix in the way and matches
// [ErrBadOwner], [ErrBadPrefix], [ErrTooMany], [ErrFamily], [ErrOutOfRange],
// [ErrMisaligned], [ErrReserved], [ErrDuplicate], whose Other holds it, or
// [ErrHolds] if the owner holds others; nothing has changed then. A draining pool
// refuses nothing. O(log n) for a prefix. Safe for concurrent use.
//
// Occupy decides. To record what a node has, whoever decided that, use
// [Allocator.Observe] or [Allocator.Load], which refuse nothing.
func (a *Allocator) Occupy(name string, prefixes ...netip.Prefix) error {
	a.mu.Lock()
	changed, err := a.occupy(name, prefixes)
	if !changed || a.events == nil {
		a.mu.Unlock()
		return err
	}
	a.events.add(Change{Op: OpOccupy, Nodes: []Node{{Name: name, Prefixes: clone(prefixes)}}})
	a.mu.Unlock()
	a.deliver()
	return nil
}

func (a *Allocator) occupy(name string, prefixes []netip.Prefix) (changed bool, err error) {
	if name == "" {
		return false, &Error{Op: "occupy", Slot: -1, Err: ErrBadOwner}
	}
	if len(prefixes) == 0 {
		return false, &Error{Op: "occupy", Owner: name, Slot: -1, Err: fmt.Errorf("%w: none is named", ErrBadPrefix)}
	}
	for i, p := range prefixes {
		if err := addr.Check(p); err != nil {
			return false, &Error{Op: "occupy", Owner: name, Slot: i, Prefix: p, Err: fmt.Errorf("%w: %w", ErrBadPrefix, err)}
		}
	}
	number := int32(absent)
	if o := a.owner(name); o != nil {
		if slices.Equal(o.prefixes, prefixes) {
			return false, nil
		}
		number = a.numbers[name]
	}
	for i, p := range prefixes {
		j := judge{a: a, op: "occupy", name: name, number: number}
		if j.prefix(i, p); len(j.problems) > 0 {
			return false, j.problems[0]
		}
	}
	if number != absent {
		return false, &Error{Op: "occupy", Owner: name, Slot: 0, Prefix: prefixes[0], Err: ErrHolds}
	}
	o, number := a.newOwner(name)
	o.prefixes = append(o.prefixes, prefixes...)
	for _, p := range prefixes {
		a.claim(p, number)
	}
	return true, nil
}

// Observe records that the node has the prefixes that n says, instead of those it
// held before, and reports whether that changed anything. What a node has is a
// fact, so nothing is refused: a prefix out of every pool, one that another owner
// holds as well or one that overlaps a reservation is recorded like any other, is
// out of circulation until the last of its owners is released, and is listed among
// the problems. A node without prefixes keeps what it holds here: it may be about
// to be told. Slots do not matter to what is recorded.
//
// The problems are those of [Allocator.Load]. O(log n) for a prefix. Safe for
// concurrent use.
func (a *Allocator) Observe(n Node) (changed bool, problems []*Error) {
	a.mu.Lock()
	j := judge{a: a, op: "observe"}
	changed = a.observe(&j, &n, false)
	if !changed || a.events == nil {
		a.mu.Unlock()
		return changed, j.problems
	}
	a.events.add(Change{Op: OpOccupy, Nodes: []Node{a.record(n.Name)}})
	a.mu.Unlock()
	a.deliver()
	return changed, j.problems
}

// Load does for all nodes what [Allocator.Observe] does for one, under one lock
// and as one change. It is how an allocator starts: with the full list, before
// anything is allocated. It never fails; what is wrong with the records is
// returned, an error for each, in the order of the list:
//
//   - [ErrBadPrefix]: not a prefix, or one with host bits or in 4-in-6 form, which
//     is recorded as what it means;
//   - [ErrTooMany]: there is no slot for it;
//   - [ErrFamily], [ErrOutOfRange], [ErrMisaligned]: not what its slot hands out;
//   - [ErrReserved], [ErrDuplicate]: it overlaps a reservation, or what another
//     owner, named in Other, holds;
//   - [ErrListedTwice]: an earlier record has the same name; the node holds the
//     prefixes of both;
//   - [ErrBadOwner]: the record has no name; its prefixes are held all the same.
//
// Owners that are not in the list are left alone. O(n log n). Safe for concurrent
// use; the allocator is locked meanwhile.
func (a *Allocator) Load(nodes []Node) []*Error {
	a.mu.Lock()
	a.loads++
	if len(a.numbers) == 0 {
		a.numbers = make(map[string]int32, len(nodes))
		a.owners = slices.Grow(a.owners, len(nodes))
		// A prefix and the branch above it take a node each.
		a.claims.nodes = slices.Grow(a.claims.nodes, 2*len(nodes)*len(a.slots))
	}
	j := judge{a: a, op: "load"}
	var changed []Node
	for i := range nodes {
		if a.observe(&j, &nodes[i], true) && a.events != nil {
			changed = append(changed, a.record(nodes[i].Name))
		}
	}
	if len(changed) > 0 {
		a.events.add(Change{Op: OpOccupy, Nodes: changed})
	}
	a.mu.Unlock()
	a.deliver()
	return j.problems
}

// record returns what is known of the owner, for a change.
func (a *Allocator) record(name string) Node {
	n := Node{Name: name}
	if o := a.owner(name); o != nil {
		n.Prefixes, n.Terminating = clone(o.prefixes), o.terminating
	} else {
		n.Prefixes = []netip.Prefix{{}} // what it had is no prefix: holds nothing
	}
	return n
}

// observe records n. In a list, a node that was in it before keeps what that said.
func (a *Allocator) observe(j *judge, n *Node, list bool) (changed bool) {
	number, known := a.numbers[n.Name]
	if !known {
		number = absent
	}
	j.name, j.number = n.Name, number
	if n.Name == "" {
		j.add(-1, netip.Prefix{}, ErrBadOwner)
	}
	want := a.scratch[:0]
	if known && list && a.owners[number].load == a.loads {
		j.add(-1, netip.Prefix{}, ErrListedTwice)
		want = append(want, a.owners[number].prefixes...)
	}
	for i, p := range n.Prefixes {
		q, err := usable(p)
		if err != nil {
			j.unusable(i, p, n.Texts, err)
		}
		if q.IsValid() && !slices.Contains(want, q) {
			want = append(want, q)
		}
	}
	a.scratch = want
	switch {
	case known && len(n.Prefixes) > 0:
		if changed = a.replace(number, want); len(want) == 0 {
			a.release(number)
			j.number = absent
		}
	case !known && len(want) > 0:
		var o *owner
		o, j.number = a.newOwner(n.Name)
		o.prefixes = append(o.prefixes, want...)
		changed = true
	}
	j.claims(n, changed)
	if j.number != absent {
		o := &a.owners[j.number]
		changed = changed || o.terminating != n.Terminating
		a.setTerminating(o, n.Terminating)
		if list {
			o.load = a.loads
		}
	}
	return changed
}

// replace takes back what the owner holds and is not in want, and records want,
// which the caller claims.
func (a *Allocator) replace(number int32, want []netip.Prefix) (changed bool) {
	o := &a.owners[number]
	if slices.Equal(o.prefixes, want) {
		return false
	}
	for _, p := range o.prefixes {
		a.disclaim(p, number)
	}
	o.prefixes = append(o.prefixes[:0], want...)
	return true
}

// judge collects what is wrong with the prefixes of one owner after another.
type judge struct {
	a        *Allocator
	op       string
	name     string
	number   int32 // of the owner, absent if it holds nothing yet
	problems []*Error
}

func (j *judge) add(slot int, p netip.Prefix, err error) *Error {
	e := &Error{Op: j.op, Owner: j.name, Slot: slot, Prefix: p, Err: err}
	j.problems = append(j.problems, e)
	return e
}

func (j *judge) unusable(i int, p netip.Prefix, texts []string, err error) {
	e := j.add(i, p, fmt.Errorf("%w: %w", ErrBadPrefix, err))
	if i < len(texts) {
		e.Text = texts[i]
	}
}

// claims claims, if they are new, the prefixes that the owner was just given, and
// judges those that n says it has.
func (j *judge) claims(n *Node, fresh bool) {
	a := j.a
	if fresh && j.number != absent {
		for _, p := range a.owners[j.number].prefixes {
			if !a.claim(p, j.number) {
				fresh = false
			}
		}
	}
	for i, p := range n.Prefixes {
		q, _ := usable(p)
		if !q.IsValid() {
			continue
		}
		// A child that was free before is nobody else's and not reserved.
		if _, err := a.fits(i, q); fresh && err == nil {
			continue
		}
		j.prefix(i, q)
	}
}

// prefix judges prefix i of the owner.
func (j *judge) prefix(i int, p netip.Prefix) {
	pool, err := j.a.fits(i, p)
	if err != nil {
		j.add(i, p, err).Pool = pool
	}
	if j.a.reserved.overlaps(p) {
		j.add(i, p, ErrReserved)
	}
	if other, ok := j.a.rival(p, j.number); ok {
		j.add(i, p, ErrDuplicate).Other = other
	}
}

// fits returns why p is not what slot i hands out, and the pool in question.
func (a *Allocator) fits(i int, p netip.Prefix) (netip.Prefix, error) {
	if i >= len(a.slots) {
		return netip.Prefix{}, ErrTooMany
	}
	s := a.slots[i]
	if p.Addr().Is4() != s.v4 {
		return netip.Prefix{}, ErrFamily
	}
	at := a.poolIndex.cover(p)
	if at == absent || a.pools[at].slot != i {
		return netip.Prefix{}, ErrOutOfRange
	}
	if p.Bits() != s.bits {
		return a.pools[at].codec.Pool(), fmt.Errorf("%w: children are /%d", ErrMisaligned, s.bits)
	}
	return netip.Prefix{}, nil
}

// rival returns an owner other than the given one that holds a prefix overlapping
// p: of the first such prefix, the shortest of those around p before the lowest of
// those inside it, the owner that comes first by name.
func (a *Allocator) rival(p netip.Prefix, number int32) (name string, found bool) {
	look := func(q netip.Prefix, first int32) bool {
		consider := func(i int32) {
			if i != number && (!found || a.owners[i].name < name) {
				name, found = a.owners[i].name, true
			}
		}
		consider(first)
		if len(a.others) > 0 {
			for _, i := range a.others[q] {
				consider(i)
			}
		}
		return !found
	}
	a.claims.covering(p, look)
	if !found {
		a.claims.within(p, look)
	}
	return name, found
}
