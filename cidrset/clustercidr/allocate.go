package clustercidr

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Allocate gives the node one free child of each family of an entry: the best one
// that matches the node and has room in all its families. All of them are from that
// one entry; or there is none at all. A child is free if nothing that any node
// holds, and no reservation, overlaps it. Of an entry it takes the first free child
// at or after the entry's cursor, wrapping, and moves the cursor just behind it.
//
// A node that holds something already gets that, whatever its labels say now.
//
// It fails with an [*Error] that matches [ErrNoMatch] or [ErrFull], which say when
// to ask again, or [ErrBadName]; nothing has changed then, cursors included. It
// takes the match of every entry and O(log n) for the rest. Safe for concurrent use.
func (a *Allocator) Allocate(n Node) (Assignment, error) {
	if n.Name == "" {
		return Assignment{}, &Error{Op: "allocate", Err: ErrBadName}
	}
	a.mu.Lock()
	if o := a.owners[n.Name]; o != nil {
		defer a.mu.Unlock()
		return o.assignment(), nil
	}
	var room [2]addr.U128
	candidates := a.rank(&n)
	for _, c := range candidates {
		if !a.room(c.entry, &room) {
			continue
		}
		o := &owner{name: n.Name}
		a.hold(o, c.spec.Name, a.take(c.entry, &room))
		as := o.assignment()
		a.tell(Change{Op: OpAllocate, Nodes: a.records(o)})
		a.mu.Unlock()
		a.deliver()
		return as, nil
	}
	err := a.refusal(&n, candidates)
	a.mu.Unlock()
	return Assignment{}, err
}

// room finds a free child in each family of e and reports whether there is one. It
// changes nothing.
func (a *Allocator) room(e *entry, room *[2]addr.U128) bool {
	for i := range e.pools {
		pl := &e.pools[i]
		if !pl.prefix.IsValid() {
			continue
		}
		from := pl.cursor
		if a.lowest {
			from = pl.block.key
		}
		key, ok := a.spaces[i].next(pl.block, pl.size, from)
		if !ok && from != pl.block.key {
			key, ok = a.spaces[i].next(pl.block, pl.size, pl.block.key)
		}
		if !ok {
			return false
		}
		room[i] = key
	}
	return true
}

// take moves the cursors of e behind what room found and returns that as prefixes.
func (a *Allocator) take(e *entry, room *[2]addr.U128) []netip.Prefix {
	prefixes := make([]netip.Prefix, 0, len(e.pools))
	for _, f := range a.order {
		if !e.has(f) {
			continue
		}
		pl := &e.pools[f-1]
		b := block{room[f-1], pl.size}
		prefixes = append(prefixes, b.prefix(f))
		if !a.lowest {
			pl.moveBehind(b)
		}
	}
	return prefixes
}

// moveBehind moves the cursor behind a child, to the base behind the last one.
func (pl *pool) moveBehind(b block) {
	if pl.cursor = pl.block.key; b.last() != pl.block.last() {
		pl.cursor = b.last().Add(addr.U128{Lo: 1})
	}
}

// refusal says why none of the candidates serves n.
func (a *Allocator) refusal(n *Node, candidates []*candidate) error {
	if len(candidates) == 0 {
		return &Error{Op: "allocate", Node: n.Name, Err: ErrNoMatch, Changed: waiter(&a.added)}
	}
	e := &Error{Op: "allocate", Node: n.Name, Err: ErrFull, Changed: waiter(&a.freed)}
	for _, c := range candidates {
		e.Tried = append(e.Tried, c.spec.Name)
	}
	return e
}

// Release gives back what the node holds and returns that; ok is false if it held
// nothing. Only what no other node holds and no reservation covers, whole or in
// part, becomes free. A terminating entry whose last node this was is gone.
// O(log n). Safe for concurrent use.
//
// A node is to be released when it is gone, not before: while it terminates its
// workloads still use the addresses.
func (a *Allocator) Release(name string) (as Assignment, ok bool) {
	a.mu.Lock()
	o := a.owners[name]
	if o == nil {
		a.mu.Unlock()
		return Assignment{}, false
	}
	as = Assignment{o.entry, o.prefixes}
	a.drop(o)
	gone := a.sweep(as.Entry)
	if a.events != nil {
		n := Node{Name: name, Entry: as.Entry, Prefixes: slices.Clone(as.Prefixes)}
		a.tell(Change{Op: OpRelease, Nodes: []Node{n}, Gone: goneList(as.Entry, gone)})
	}
	a.mu.Unlock()
	a.deliver()
	return as, true
}

// records returns the record of o for a change, nil if nobody listens.
func (a *Allocator) records(o *owner) []Node {
	if a.events == nil {
		return nil
	}
	return []Node{o.record()}
}
