package nodeipam

import (
	"fmt"
	"iter"
	"slices"

	"github.com/ipalloc/ipalloc"
)

// EntryState is an entry and its state.
type EntryState struct {
	Entry
	Terminating bool // deleted, and waiting for its last node
	Nodes       int  // recorded with it
}

// AddEntry adds an entry. Prefixes of its pools that nodes or reservations have taken
// stay taken. A node that was recorded without an entry is assigned to this one if all
// its prefixes are children of it. Adding an entry equal to an existing one does nothing.
//
// It fails with an [*ipalloc.Error] that names the entry and the field. It matches
// [ipalloc.ErrInvalid] for an impossible entry, or an entry without a family that every
// node needs. It matches [ipalloc.ErrExists], with the Field, if another entry has the
// name, and [ipalloc.ErrInUse] if the entry of that name is terminating. It matches
// [ipalloc.ErrMismatch] if the allocator has slots. On error nothing changes. O(entries),
// or O(nodes) if some nodes have no entry.
func (a *Allocator) AddEntry(c Entry) error {
	e, err := newEntry(c)
	if err != nil {
		return opError(OpAddEntry.String(), err)
	}
	return update(a, OpAddEntry, func(l *labels) (*Change, *ipalloc.Error) {
		if err := l.lacks(e); err != nil {
			return nil, err
		}
		i, found := l.search(c.Name)
		if found {
			old := l.entries[i]
			switch field := old.differs(e); {
			case old.terminating:
				return nil, &ipalloc.Error{Name: c.Name, Err: ipalloc.ErrInUse, Reason: "the entry is terminating"}
			case field != "":
				return nil, &ipalloc.Error{Name: c.Name, Field: field, Err: ipalloc.ErrExists, Reason: fmt.Sprintf("exists as %v for %q and cannot be changed", old, old.selector)}
			}
			return nil, nil
		}
		l.entries = slices.Insert(l.entries, i, e)
		return &Change{Entry: c.Name, Added: e.spec.clone(), Nodes: l.adopt(e)}, nil
	})
}

// adopt records the nodes without an entry with e if their prefixes fit, and returns
// them.
func (l *labels) adopt(e *entry) (nodes []Node) {
	if l.nodes[""] == 0 {
		return nil
	}
	for _, o := range l.a.sorted() {
		if o.entry == "" && e.fit(o.prefixes...) {
			l.count("", -1)
			o.entry = e.spec.Name
			l.count(o.entry, 1)
			nodes = append(nodes, o.node())
		}
	}
	return nodes
}

// DeleteEntry deletes an entry and reports whether it is removed already. While nodes
// hold prefixes of the entry, it is terminating instead: it serves no further node and is
// removed with its last node. It fails with [ipalloc.ErrNotFound] if no entry has that
// name, or with [ipalloc.ErrMismatch] if the allocator has slots. O(entries).
func (a *Allocator) DeleteEntry(name string) (gone bool, err error) {
	err = update(a, OpDeleteEntry, func(l *labels) (*Change, *ipalloc.Error) {
		e := l.lookup(name)
		switch {
		case e == nil:
			return nil, &ipalloc.Error{Name: name, Err: ipalloc.ErrNotFound, Reason: "no such entry"}
		case e.terminating:
			return nil, nil
		}
		e.terminating = true
		c := &Change{Entry: name, Gone: l.sweep(name)}
		gone = len(c.Gone) > 0
		return c, nil
	})
	return gone, err
}

// apply makes a change of entries.
func (l *labels) apply(c *Change) *ipalloc.Error {
	switch c.Op {
	case OpAddEntry:
		e, err := newEntry(c.Added)
		if err == nil {
			err = l.lacks(e)
		}
		if err != nil {
			return err
		}
		i, found := l.search(c.Added.Name)
		if !found {
			l.entries = slices.Insert(l.entries, i, e)
		}
		l.entries[i] = e // as it was when it was added; later changes follow
	case OpDeleteEntry:
		if e := l.lookup(c.Entry); e != nil {
			e.terminating = true
		}
	default:
		return l.foreign()
	}
	return nil
}

// foreign returns the error of a call about pools.
func (*labels) foreign() *ipalloc.Error {
	return &ipalloc.Error{Err: ipalloc.ErrMismatch, Reason: "the allocator chooses by labels and has no pools"}
}

// Entries returns the entries, ascending by name, as they were when the loop began; none
// if the allocator has slots. It does not hold the lock while the body of the loop runs.
func (a *Allocator) Entries() iter.Seq[EntryState] {
	return func(yield func(EntryState) bool) {
		var list []EntryState
		a.mu.Lock()
		if l, ok := a.policy.(*labels); ok {
			for _, e := range l.entries {
				list = append(list, EntryState{e.spec.clone(), e.terminating, l.nodes[e.spec.Name]})
			}
		}
		a.mu.Unlock()
		slices.Values(list)(yield)
	}
}
