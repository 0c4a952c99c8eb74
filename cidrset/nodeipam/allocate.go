package nodeipam

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/claims"
)

// Allocate assigns n one free child for each slot, or for each family of one entry, and
// returns them. It assigns all of them or none. A child is free if no held prefix and no
// reservation overlaps it. A node that already holds prefixes gets the same ones, even if
// its labels have changed. Allocate returns after the receiver of [OnChange] has seen the
// change that gave the node its prefixes, even if an earlier call made that change.
//
// By slots, the first pool of the slot that has a free child and is not draining serves
// the node. By labels, the best matching entry with room in all its families serves it;
// see the package comment for the order. In a pool, Allocate takes the first free child
// at or after the cursor, wrapping, and moves the cursor behind it.
//
// It fails with [ipalloc.ErrFull] if no child is free; Field then names the slot. It
// fails with [ipalloc.ErrNotFound] if no entry matches n, and with [ipalloc.ErrInvalid]
// for an empty name. On error nothing changes, cursors included, except that a node of
// the same name and another UID is released. The error for a full pool is shared and
// costs no allocation.
//
// O(log n) in the number of held prefixes, plus the match of every entry. The returned
// prefixes are the only allocation in steady state.
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

// Occupy assigns n the prefixes that the caller names, all of them or none. Prefixes[i]
// is for slot i, or all prefixes are from entry n.Entry. There may be fewer prefixes than
// slots. Occupy does nothing if n already holds exactly these prefixes.
//
// It fails for the first conflicting prefix with the error that [Allocator.Load] would
// report. It fails with [ipalloc.ErrMismatch] if n holds other prefixes, and with
// [ipalloc.ErrInUse] if the entry is terminating. It fails with [ipalloc.ErrInvalid] for
// an empty name, for no prefix at all, and for a prefix that is invalid or unmasked. On
// error nothing changes, with the exception described under [Allocator.Allocate]. Occupy
// also takes from a draining pool. O(log n) for a prefix.
//
// To record the prefixes that nodes already have, use [Allocator.Observe] or
// [Allocator.Load], which refuse nothing.
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

// Release frees the node's prefixes and returns them; ok is false if it held none. A
// prefix stays taken where another node holds, or a reservation covers, a part of it. A
// terminating entry is removed with its last node. Cursors do not move, so a released
// prefix is reused as late as possible. O(log n) for a prefix, however many nodes were
// recorded with it.
//
// Release a node only once it no longer exists: a terminating node still uses its
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

// Lookup returns the node's prefixes; ok is false if it holds none.
func (a *Allocator) Lookup(name string) (as Assignment, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := a.owners[name]; o != nil {
		return o.assignment(), true
	}
	return Assignment{}, false
}

// All returns the nodes that hold prefixes, ascending by name, as they were when the loop
// began. [Allocator.Load] recreates the state from them. O(n log n). It does not hold the
// lock while the body of the loop runs.
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

// Reserve excludes p from allocation until [Allocator.Unreserve], in all pools and in
// pools added later. Nodes that hold a prefix overlapping p keep it; [Allocator.Holders]
// lists them. Reservations may overlap; reserving p again does nothing. Reserve fails
// with [ipalloc.ErrInvalid] if p is invalid or unmasked. O(log n).
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
// no other reservation covers become free. It fails with [ipalloc.ErrNotFound] if p is
// not reserved, or with [ipalloc.ErrInvalid] if p is invalid or unmasked. O(log n).
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

// Reserved returns the reservations, IPv4 first, ascending; a prefix precedes those
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
// prefix. Larger prefixes that contain p come first, then the prefixes inside it,
// ascending. The nodes of one prefix are sorted by name. p may be a pool, a reservation
// or any other prefix. An invalid p has no holders. O(log n) plus the claims inside p.
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
