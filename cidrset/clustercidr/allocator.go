package clustercidr

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Config says what every node needs.
type Config struct {
	// Families are the families of which every node needs a prefix, in the order in
	// which its prefixes are listed. An entry that lacks one is refused. If there are
	// none, an entry may have either family or both; IPv4 is listed first then.
	Families []Family
	// Reserved are prefixes that no node can take or free, whatever entries there are
	// or come later: service CIDRs, for example. They may overlap one another.
	Reserved []netip.Prefix
}

// Allocator gives each node one prefix of each family of one entry, which it
// chooses by the node's labels. Make one with [New] or [Restore]; the zero value is
// unusable. It is safe for concurrent use and must not be copied.
type Allocator struct {
	families []Family // needed, in the order of the configuration
	order    []Family // both, in the order in which prefixes are listed
	lowest   bool     // LowestFirst
	events   *events  // nil without OnChange

	mu       sync.Mutex
	entries  []*entry // ascending by name
	spaces   [2]space // IPv4, IPv6: every claim and reservation
	owners   map[string]*owner
	nodes    map[string]int // entry name -> owners recorded with it
	foreign  int            // owners recorded with no entry
	reserved []reservation  // ascending
	loads    uint32         // calls of Load
	added    chan struct{}  // closed when an entry is added; nil if nobody waits
	freed    chan struct{}  // closed when space may have become free; nil if nobody waits
	scratch  struct {
		found []candidate
		order []*candidate
	}
}

// owner is what is known of a node that holds something.
type owner struct {
	name     string
	entry    string // "" if from none; there may be no entry of that name
	prefixes []netip.Prefix
	claims   []claim // of the prefixes, in their order
	load     uint32  // the Load that last listed it
	two      [2]claim
}

// An Option changes how an [Allocator] works or whom it tells.
type Option func(*Allocator) error

// LowestFirst has every entry hand out its lowest free child instead of the next
// one after that handed out last. A prefix given back is then used again at once;
// in return what is handed out next depends on nothing but who holds what, so that
// an allocator that was rebuilt goes on exactly as the old one would have.
func LowestFirst() Option {
	return func(a *Allocator) error {
		a.lowest = true
		return nil
	}
}

// OnChange has f called with every change, in the order in which they happened,
// before the method that made the change returns and outside the allocator's
// lock. [Allocator.Load] is one change. f may read the allocator; it must not
// change it. One f is called at a time.
func OnChange(f func(Change)) Option {
	return func(a *Allocator) error {
		switch {
		case f == nil:
			return fmt.Errorf("%w: no function to call on a change", ErrBadOption)
		case a.events != nil:
			return fmt.Errorf("%w: two functions to call on a change", ErrBadOption)
		}
		a.events = &events{f: f}
		return nil
	}
}

// New returns an allocator without entries, in which nobody holds anything.
//
// It fails with an [*Error] that matches [ErrFamily] for a family that is not one
// or is named twice, [ErrBadPrefix] for a bad reservation, or [ErrBadOption].
func New(c Config, opts ...Option) (*Allocator, error) {
	a := &Allocator{owners: map[string]*owner{}, nodes: map[string]int{}}
	for _, opt := range opts {
		err := fmt.Errorf("%w: nil", ErrBadOption)
		if opt != nil {
			err = opt(a)
		}
		if err != nil {
			return nil, &Error{Op: "new", Err: err}
		}
	}
	for i, f := range c.Families {
		if f != IPv4 && f != IPv6 || slices.Contains(a.families, f) {
			return nil, &Error{Op: "new", Field: fmt.Sprintf("Families[%d]", i), Err: fmt.Errorf("%w: %d is none or repeated", ErrFamily, f)}
		}
		a.families = append(a.families, f)
	}
	a.order = slices.Clone(a.families)
	for _, f := range []Family{IPv4, IPv6} {
		if !slices.Contains(a.order, f) {
			a.order = append(a.order, f)
		}
	}
	for i, p := range c.Reserved {
		if err := addr.Check(p); err != nil {
			return nil, &Error{Op: "new", Field: fmt.Sprintf("Reserved[%d]", i), Prefix: p, Err: fmt.Errorf("%w: %w", ErrBadPrefix, err)}
		}
		a.reserve(p)
	}
	return a, nil
}

// Add adds an entry. What nodes and reservations have taken of its pools already
// stays taken; nodes without an entry, whose prefixes are all children of this one,
// are recorded with it from now on, as if they had been loaded after it. Adding what
// is there already, in whatever words, does nothing.
//
// It fails with an [*Error] that names entry and field and matches [ErrBadName],
// [ErrBadSelector], [ErrBadPool], [ErrBadBits], [ErrFamily] if it lacks a family
// that every node needs, [ErrExists] if the name is taken by another one, or
// [ErrTerminating] if the one of that name is still to go; nothing has changed
// then. O(entries), and the nodes if some have no entry. Safe for concurrent use.
func (a *Allocator) Add(c ClusterCIDR) error {
	e, err := newEntry(c)
	if err != nil {
		return err
	}
	for _, f := range a.families {
		if !e.has(f) {
			return &Error{Op: "add", Entry: c.Name, Field: f.String(), Err: fmt.Errorf("%w %v, which every node needs", ErrFamily, f)}
		}
	}
	a.mu.Lock()
	i, found := a.search(c.Name)
	if found {
		defer a.mu.Unlock()
		old := a.entries[i]
		switch {
		case old.terminating:
			return &Error{Op: "add", Entry: c.Name, Err: ErrTerminating}
		case !old.same(e):
			return &Error{Op: "add", Entry: c.Name, Err: fmt.Errorf("%w: it is %v for %q", ErrExists, old, old.selector)}
		}
		return nil
	}
	a.entries = slices.Insert(a.entries, i, e)
	adopted := a.adopt(e)
	wake(&a.added)
	wake(&a.freed)
	if a.events != nil {
		a.tell(Change{Op: OpAdd, Entry: c.Name, Added: e.spec.clone(), Nodes: adopted})
	}
	a.mu.Unlock()
	a.deliver()
	return nil
}

// adopt records the nodes without an entry with e if it fits, and returns them.
func (a *Allocator) adopt(e *entry) (nodes []Node) {
	if a.foreign == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(a.owners)) {
		o := a.owners[name]
		if o.entry != "" || slices.ContainsFunc(o.prefixes, func(p netip.Prefix) bool { return e.fits(p) != nil }) {
			continue
		}
		a.foreign--
		o.entry = e.spec.Name
		a.nodes[o.entry]++
		nodes = append(nodes, o.record())
	}
	return nodes
}

// Delete removes an entry, and reports whether it is gone. While nodes hold
// something from it, it is terminating instead: it serves nobody any more, and is
// gone with its last node. It fails with an [*Error] that matches [ErrNoEntry].
// O(entries). Safe for concurrent use.
func (a *Allocator) Delete(name string) (gone bool, err error) {
	a.mu.Lock()
	i, found := a.search(name)
	if !found {
		a.mu.Unlock()
		return false, &Error{Op: "delete", Entry: name, Err: ErrNoEntry}
	}
	e := a.entries[i]
	if e.terminating {
		a.mu.Unlock()
		return false, nil
	}
	e.terminating = true
	gone = a.sweep(name)
	a.tell(Change{Op: OpDelete, Entry: name, Gone: goneList(name, gone)})
	a.mu.Unlock()
	a.deliver()
	return gone, nil
}

// sweep takes a terminating entry without nodes out and reports whether it did.
func (a *Allocator) sweep(name string) bool {
	i, found := a.search(name)
	if !found || !a.entries[i].terminating || a.nodes[name] > 0 {
		return false
	}
	a.entries = slices.Delete(a.entries, i, i+1)
	return true
}

func goneList(name string, gone bool) []string {
	if !gone {
		return nil
	}
	return []string{name}
}

// search returns where the entry of that name is, or would be.
func (a *Allocator) search(name string) (int, bool) {
	return slices.BinarySearchFunc(a.entries, name, func(e *entry, name string) int { return strings.Compare(e.spec.Name, name) })
}

// lookup returns the entry of that name, nil if there is none.
func (a *Allocator) lookup(name string) *entry {
	if i, found := a.search(name); found {
		return a.entries[i]
	}
	return nil
}

// EntryState is an entry and how it is.
type EntryState struct {
	ClusterCIDR
	Terminating bool
	Nodes       int // nodes recorded with it
}

// Entries returns the entries, ascending by name, as they are when the loop begins.
// Safe for concurrent use; the lock is not held in the loop.
func (a *Allocator) Entries() iter.Seq[EntryState] {
	return func(yield func(EntryState) bool) {
		a.mu.Lock()
		list := make([]EntryState, len(a.entries))
		for i, e := range a.entries {
			list[i] = EntryState{e.spec.clone(), e.terminating, a.nodes[e.spec.Name]}
		}
		a.mu.Unlock()
		for _, e := range list {
			if !yield(e) {
				return
			}
		}
	}
}

// Lookup returns what the node holds; ok is false if it holds nothing. Safe for
// concurrent use.
func (a *Allocator) Lookup(name string) (as Assignment, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.owners[name]
	if o == nil {
		return Assignment{}, false
	}
	return o.assignment(), true
}

// All returns the nodes that hold something, with what they hold and the entry it
// is from, ascending by name, as they are when the loop begins: what [Allocator.Load]
// makes the same state from. O(n log n). Safe for concurrent use; the lock is not
// held in the loop.
func (a *Allocator) All() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		a.mu.Lock()
		list := make([]Node, 0, len(a.owners))
		for _, name := range slices.Sorted(maps.Keys(a.owners)) {
			list = append(list, a.owners[name].record())
		}
		a.mu.Unlock()
		for _, n := range list {
			if !yield(n) {
				return
			}
		}
	}
}

func (o *owner) assignment() Assignment {
	return Assignment{Entry: o.entry, Prefixes: slices.Clone(o.prefixes)}
}

func (o *owner) record() Node {
	return Node{Name: o.name, Entry: o.entry, Prefixes: slices.Clone(o.prefixes)}
}

// hold records that o, which holds nothing yet, holds the prefixes, which it keeps,
// from the entry of that name.
func (a *Allocator) hold(o *owner, entry string, prefixes []netip.Prefix) {
	o.entry, o.prefixes, o.claims = entry, prefixes, o.two[:0]
	if len(prefixes) > len(o.two) {
		o.claims = make([]claim, 0, len(prefixes))
	}
	for i, p := range prefixes {
		o.claims = append(o.claims, claim{owner: o})
		a.spaces[familyOf(p)-1].put(blockOf(p), &o.claims[i])
	}
	a.owners[o.name] = o
	if entry == "" {
		a.foreign++
	} else {
		a.nodes[entry]++
	}
}

// drop takes back everything that o holds.
func (a *Allocator) drop(o *owner) {
	for i, p := range o.prefixes {
		a.spaces[familyOf(p)-1].remove(blockOf(p), &o.claims[i])
	}
	delete(a.owners, o.name)
	if o.entry == "" {
		a.foreign--
	} else if a.nodes[o.entry]--; a.nodes[o.entry] == 0 {
		delete(a.nodes, o.entry)
	}
	o.prefixes, o.claims = nil, nil
	wake(&a.freed)
}

// waiter returns the channel that the next wake closes.
func waiter(c *chan struct{}) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
	}
	return *c
}

func wake(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}
