package occ

import (
	"iter"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// Cell is the cached state of one record.
type Cell struct {
	Key string
	Rev uint64 // at which the record was read or written; 0 means that it did not exist

	// The transactions that last relied upon the cell, changed it and read it.
	guarded, changed, read uint64
	kept                   uint64     // the savepoint since which a copy of content that changes in place is kept
	writes                 int        // how many records the transaction writes by the cell, as last counted
	wrote                  store.Kind // what the commit does with the record
}

// Base returns the cell.
func (c *Cell) Base() *Cell { return c }

// Settle does nothing.
func (c *Cell) Settle() {}

// Entry is a cell with its content: a struct that embeds [Cell] or [Var].
type Entry interface {
	Base() *Cell
	// Write adds the operations of the changed cell to a commit. For its own record it calls [Ops.Put], [Ops.Delete] or
	// [Ops.Guard].
	Write(*Ops)
	// Settle is called when the commit has been made. The revision of the cell is the new one then.
	Settle()
}

// Keeper is an entry whose content is changed in place, after [Txn.Change].
type Keeper interface {
	Entry
	// Keep copies the content and returns a function that restores the copy.
	Keep() (restore func())
}

type restoring func()

func (r restoring) restore() { r() }

// Var is a cell with content that is replaced as a whole. A struct that embeds it adds the method Write. [Set] replaces the
// content.
type Var[V any] struct {
	Cell
	now, before V
	saved       uint64 // the savepoint since which before is the former content
}

// NewVar returns a variable with the content of a record.
func NewVar[V any](r store.Record, v V) Var[V] {
	return Var[V]{Cell: Cell{Key: r.Key, Rev: r.Rev}, now: v}
}

// Get returns the content. It does not guard the cell.
func (x *Var[V]) Get() V { return x.now }

// Complete replaces the content by another form of the same, when its commit has been made.
func (x *Var[V]) Complete(v V) { x.now = v }

func (x *Var[V]) variable() *Var[V] { return x }

func (x *Var[V]) restore() { x.now = x.before }

type restorer interface{ restore() }

// undo is the state of a cell before a plan changed it.
type undo struct {
	restorer
	e      Entry
	writes int
}

// Set replaces the content of a variable and makes the commit write its record.
func Set[V any](t *Txn, e interface {
	Entry
	variable() *Var[V]
}, v V) {
	x := e.variable()
	t.Change(e)
	if x.saved != t.save {
		x.saved, x.before = t.save, x.now
		t.undo = append(t.undo, undo{x, e, x.writes})
	}
	x.now = v
}

// entry is a pointer to a struct that is an [Entry].
type entry interface {
	comparable
	Entry
}

// Kind is the cells of one kind of record. [Cache] implements it.
type Kind interface {
	// Known returns the cell of a key, nil if none is cached.
	Known(key string) *Cell
	// See keeps a record that was read.
	See(r store.Record) (*Cell, error)
	// Forget drops the cell of a key.
	Forget(key string)
	// Age drops cells that have not been used for long; no transaction is under way.
	Age()
	// Reset drops everything.
	Reset()
}

// Recent keeps the values that were used last, by key, in two generations. A used value is or becomes young. When the young
// values are as many as the limit, they become old, and the old values that were not used meanwhile are forgotten. So it
// keeps the last limit values used, and about twice as many at most; the calls alone decide which. While all used values are
// young, nothing moves; the maps change places and keep their memory. [NewRecent] makes a Recent.
type Recent[K, V comparable] struct {
	limit      int
	young, old map[K]V
	// The young value that was used last: most calls ask for the same one several times.
	lastKey K
	last    V
}

// NewRecent returns an empty Recent for about limit values. Its maps are made when they are needed: most engines of many spaces keep
// little.
func NewRecent[K, V comparable](limit int) Recent[K, V] { return Recent[K, V]{limit: limit} }

// Get returns the value of k, or the zero V.
func (c *Recent[K, V]) Get(k K) V {
	var none V
	if c.last != none && c.lastKey == k {
		return c.last
	}
	v, ok := c.young[k]
	if !ok && len(c.old) > 0 {
		if v, ok = c.old[k]; ok {
			c.Put(k, v)
		}
	}
	if ok {
		c.lastKey, c.last = k, v
	}
	return v
}

// Put makes v the value of k.
func (c *Recent[K, V]) Put(k K, v V) {
	if delete(c.old, k); c.young == nil {
		c.young = make(map[K]V)
	}
	c.young[k] = v
	c.lastKey, c.last = k, v
}

// unlast forgets which value was used last.
func (c *Recent[K, V]) unlast() {
	var none V
	c.last = none
}

// Drop forgets k.
func (c *Recent[K, V]) Drop(k K) {
	c.unlast()
	delete(c.young, k)
	delete(c.old, k)
}

// Age begins a new generation if the present one is complete.
func (c *Recent[K, V]) Age() {
	if len(c.young) >= c.limit {
		c.unlast()
		clear(c.old)
		c.young, c.old = c.old, c.young
	}
}

// All yields the keys and values, the young ones last, each generation in no order.
func (c *Recent[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, m := range [...]map[K]V{c.old, c.young} {
			for k, v := range m {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}

// Reset forgets everything.
func (c *Recent[K, V]) Reset() { *c = NewRecent[K, V](c.limit) }

// Cache keeps the cells of one kind that were used last. K is the subject that a key names.
type Cache[K comparable, E entry] struct {
	Recent[K, E]
	parse  func(key string) (K, bool)
	decode func(K, store.Record) (E, error)
}

// NewCache returns an empty cache for about limit cells, or for the cells of one transaction if limit is 0. The function parse
// returns the subject of a key, and false for a key without one. The function decode makes the entry of a record, whose
// revision is 0 if it does not exist. It gets the zero K for a key without a subject and has to refuse it.
func NewCache[K comparable, E entry](limit int, parse func(key string) (K, bool), decode func(K, store.Record) (E, error)) Cache[K, E] {
	return Cache[K, E]{NewRecent[K, E](limit), parse, decode}
}

// Known implements [Kind].
func (c *Cache[K, E]) Known(key string) *Cell {
	if k, ok := c.parse(key); ok {
		var none E
		if e := c.Get(k); e != none {
			return e.Base()
		}
	}
	return nil
}

// See implements [Kind].
func (c *Cache[K, E]) See(r store.Record) (*Cell, error) {
	k, ok := c.parse(r.Key)
	if !ok {
		var none K
		k = none
	}
	e, err := c.decode(k, r)
	if err != nil {
		return nil, err
	}
	c.Put(k, e)
	return e.Base(), nil
}

// Forget implements [Kind].
func (c *Cache[K, E]) Forget(key string) {
	if k, ok := c.parse(key); ok {
		c.Drop(k)
	}
}

// Age implements [Kind].
func (c *Cache[K, E]) Age() {
	switch {
	case c.limit > 0:
		c.Recent.Age()
	case len(c.young) > 256:
		c.Reset() // a large map takes long to clear
	case len(c.young) > 0:
		c.unlast()
		clear(c.young)
	}
}
