package nodeipam

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/claims"
)

// Allocate gives n one free child for each slot, or of each family of one entry, and
// returns them: all of them or none. A child is free if no held prefix and no reservation
// overlaps it. A node that already holds prefixes gets the same ones, even if its labels
// have changed. Allocate returns after the receiver of [OnChange] has seen the change
// that gave the node its prefixes, even if an earlier call made that change.
//
// By slots, the first pool of the slot that has a free child and is not draining serves
// the node. By labels, the best matching entry with room in all its families does; see
// the package comment for the order. In a pool, Allocate takes the first free child at or
// after the cursor, wrapping, and moves the cursor behind it.
//
// It fails with an [*ipalloc.Error] that matches [ipalloc.ErrFull] if no child is
// free, with Field naming the slot; [ipalloc.ErrNotFound] if no entry matches n;
// [ipalloc.ErrInvalid] for an empty name. Nothing has changed then, cursors included,
// except that a node of the same name and another UID has been released. The error
// for a full pool is shared and costs no allocation.
//
// O(log n) in what is held, plus the match of every entry. The returned prefixes are
// the only allocation in steady state.
func (a *Allocator) Allocate(n Node) (Assignment, error) {
	if n.Name == "" {
		return Assignment{}, opError("allocate", invalid("Name", "empty"))
	}
	a.mu.Lock()
	defer a.unlock()
	o := a.ownerOf(&n)
	if o != nil {
		if o.uid == "" && n.UID != "" {
			o.uid = n.UID
			a.record(OpOccupy, o)
		}
		return o.assignment(), nil
	}
	ps, entry, err := a.policy.choose(n, a.want[:0])
	a.want = ps
	if err != nil {
		return Assignment{}, err
	}
	for _, p := range ps {
		a.policy.advance(entry, p)
	}
	o = a.newOwner(n.Name)
	o.uid = n.UID
	a.hold(o, entry, ps)
	a.record(OpAllocate, o)
	return o.assignment(), nil
}

// record queues a change of one owner for the receiver.
func (a *Allocator) record(op Op, o *owner) {
	if a.changes != nil {
		a.changes.Add(Change{Op: op, Nodes: []Node{o.node()}})
	}
}

// Occupy gives n the prefixes that the caller names, Prefixes[i] for slot i or all of
// entry n.Entry: all of them or none. There may be fewer prefixes than slots. Occupy
// does nothing if n already holds exactly these.
//
// It fails with an [*ipalloc.Error] for the first prefix in the way, as
// [Allocator.Load] reports it; [ipalloc.ErrMismatch] if n holds other prefixes;
// [ipalloc.ErrInUse] if the entry terminates; [ipalloc.ErrInvalid] for an empty name,
// no prefix at all, or a prefix that is invalid or unmasked. Nothing has changed then,
// except as for Allocate. Occupy also takes from a draining pool. O(log n) for a
// prefix.
//
// Use [Allocator.Observe] or [Allocator.Load] to record what nodes already have; they
// refuse nothing.
func (a *Allocator) Occupy(n Node) error {
	switch {
	case n.Name == "":
		return opError("occupy", invalid("Name", "empty"))
	case len(n.Prefixes) == 0:
		return opError("occupy", &ipalloc.Error{Owner: n.Name, Field: "Prefixes", Err: ipalloc.ErrInvalid, Reason: "none"})
	}
	a.mu.Lock()
	defer a.unlock()
	index := indexOf(len(n.Prefixes))
	for i, p := range n.Prefixes {
		reason := "listed twice"
		if err := addr.Check(p); err != nil {
			reason = err.Error()
		} else if index(n.Prefixes[:i], p) < 0 {
			continue
		}
		return opError("occupy", &ipalloc.Error{Owner: n.Name, Field: field(i), Prefix: p, Err: ipalloc.ErrInvalid, Reason: reason})
	}
	o := a.ownerOf(&n)
	if o != nil && slices.Equal(o.prefixes, n.Prefixes) && (n.Entry == "" || n.Entry == o.entry) {
		return nil
	}
	r := recording{a: a, op: "occupy", name: n.Name, entry: n.Entry, owner: o, strict: true}
	a.found = a.found[:0]
	for i, p := range n.Prefixes {
		a.found = append(a.found, place{i, p})
	}
	r.entry = a.policy.origin(&r, n.Prefixes)
	a.policy.judge(&r, a.found)
	if o != nil {
		r.add(&ipalloc.Error{Field: field(0), Prefix: n.Prefixes[0], Err: ipalloc.ErrMismatch, Reason: "the node holds other prefixes"})
	}
	if len(r.problems) > 0 {
		return r.problems[0]
	}
	o = a.newOwner(n.Name)
	o.uid = n.UID
	a.hold(o, r.entry, n.Prefixes)
	a.record(OpOccupy, o)
	return nil
}

// Release gives back what the node holds and returns it; ok is false if it held
// nothing. A prefix becomes free unless another node holds, or a reservation covers,
// a part of it. A terminating entry is removed with its last node. Cursors stay, so a
// released prefix is used again as late as possible. O(log n) for a prefix, however many
// nodes were recorded with it.
//
// Release a node when it is gone, not before: a terminating node still uses its
// addresses.
func (a *Allocator) Release(name string) (as Assignment, ok bool) {
	a.mu.Lock()
	defer a.unlock()
	o := a.owners[name]
	if o != nil {
		as, ok = o.assignment(), true
		a.release(o)
	}
	return as, ok
}

// Terminate marks the node as being deleted. The node keeps its prefixes until
// [Allocator.Release]. Terminate reports whether the node holds any; otherwise it does
// nothing.
func (a *Allocator) Terminate(name string) bool {
	a.mu.Lock()
	defer a.unlock()
	o := a.owners[name]
	if o != nil && !o.terminating {
		a.setTerminating(o, true)
		a.record(OpTerminate, o)
	}
	return o != nil
}

// Lookup returns what the node holds; ok is false if it holds nothing.
func (a *Allocator) Lookup(name string) (as Assignment, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := a.owners[name]; o != nil {
		return o.assignment(), true
	}
	return Assignment{}, false
}

// All returns the nodes that hold something, ascending by name, as they were when the
// loop began. [Allocator.Load] recreates the state from them. O(n log n). The lock is
// not held while the body runs.
func (a *Allocator) All() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		a.mu.Lock()
		nodes := make([]Node, 0, len(a.owners))
		for _, o := range a.sorted() {
			nodes = append(nodes, o.node())
		}
		a.mu.Unlock()
		slices.Values(nodes)(yield)
	}
}

// Reserve takes p out of circulation, in all pools, those added later included, until
// [Allocator.Unreserve]. Nodes that hold something inside keep it; [Allocator.Holders]
// lists them. Reservations may overlap; reserving p again does nothing. It fails with
// an [*ipalloc.Error] that matches [ipalloc.ErrInvalid] if p is invalid or unmasked.
// O(log n).
func (a *Allocator) Reserve(p netip.Prefix) error {
	return a.changeReserved(OpReserve, p, a.reserve)
}

// changeReserved is Reserve or Unreserve; f reports whether it changed anything.
func (a *Allocator) changeReserved(op Op, p netip.Prefix, f func(netip.Prefix) bool) error {
	return update(a, op, func(policy) (*Change, *ipalloc.Error) {
		if err := addr.Check(p); err != nil {
			return nil, invalidPrefix("prefix", p, err.Error())
		}
		switch {
		case f(p):
			return &Change{Prefix: p}, nil
		case op == OpUnreserve:
			return nil, &ipalloc.Error{Prefix: p, Err: ipalloc.ErrNotFound, Reason: "not reserved"}
		}
		return nil, nil
	})
}

// reserve adds a reservation and reports whether it was new.
func (a *Allocator) reserve(p netip.Prefix) bool {
	if a.spaceOf(p).Reservation(claims.BlockOf(p)) != nil {
		return false
	}
	a.reservations++
	a.spaceOf(p).Put(claims.BlockOf(p), &claim{})
	a.kept[familyOf(p)].Put(claims.BlockOf(p), &claim{})
	return true
}

// Unreserve removes the reservation of exactly p. The parts of p that no node holds and
// no other reservation covers become free. It fails with an [*ipalloc.Error] that
// matches [ipalloc.ErrNotFound] if p is not reserved, or [ipalloc.ErrInvalid] if p is
// invalid or unmasked. O(log n).
func (a *Allocator) Unreserve(p netip.Prefix) error {
	return a.changeReserved(OpUnreserve, p, a.unreserve)
}

func (a *Allocator) unreserve(p netip.Prefix) bool {
	c := a.spaceOf(p).Reservation(claims.BlockOf(p))
	if c != nil {
		a.spaceOf(p).Remove(claims.BlockOf(p), c)
		kept := &a.kept[familyOf(p)]
		kept.Remove(claims.BlockOf(p), kept.Reservation(claims.BlockOf(p)))
		a.reservations--
	}
	return c != nil
}

// Reserved returns the reservations, IPv4 first, ascending, a prefix before those
// inside it. O(n).
func (a *Allocator) Reserved() []netip.Prefix {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reserved()
}

func (a *Allocator) reserved() []netip.Prefix {
	ps := make([]netip.Prefix, 0, a.reservations)
	for i := range a.kept {
		a.kept[i].Overlapping(claims.Block{}, func(b claims.Block, _ *claim) bool {
			ps = append(ps, b.Prefix(i == 0))
			return true
		})
	}
	return ps
}

// Holders returns the nodes that hold a prefix overlapping p, one element for each such
// prefix. Larger prefixes that contain p come first, then those inside it, ascending;
// the nodes of one prefix are sorted by name. p may be a pool, a reservation or any
// prefix. An invalid p has no holders. O(log n) plus the claims inside p.
func (a *Allocator) Holders(p netip.Prefix) (nodes []Node) {
	if addr.Check(p) != nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spaceOf(p).Overlapping(claims.BlockOf(p), func(b claims.Block, c *claim) bool {
		at := len(nodes)
		for ; c != nil; c = c.Next() {
			if c.Owner != nil {
				n := Node{Name: c.Owner.name, UID: c.Owner.uid, Terminating: c.Owner.terminating, Entry: c.Owner.entry}
				n.Prefixes = []netip.Prefix{b.Prefix(p.Addr().Is4())}
				nodes = append(nodes, n)
			}
		}
		slices.SortFunc(nodes[at:], byName)
		return true
	})
	return nodes
}
