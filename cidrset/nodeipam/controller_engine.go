package nodeipam

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
)

// Engine is what chooses prefixes for a [Controller] and remembers who holds them:
// an [Allocator], or one that looks at labels. Its methods are called by many
// goroutines, by one at a time for any node but for Load, which comes first.
type Engine interface {
	// Load records what all nodes have and returns what is wrong with that.
	Load(nodes []Node) []Problem
	// Observe records what one node has, instead of what it held before, and
	// returns what is wrong with that.
	Observe(n Node) []Problem
	// Allocate chooses for a node that holds nothing, and returns what it holds for
	// one that does. It remembers that until Release, whatever becomes of it.
	Allocate(n Node) (Assignment, error)
	// Holds returns what a node holds.
	Holds(name string) (as Assignment, ok bool)
	// Terminate notes that a node is about to go; it keeps what it holds.
	Terminate(name string)
	// Release takes back what a node holds and reports whether there was anything.
	Release(name string) bool
	// Names returns the nodes that hold something.
	Names() []string
}

// Problem is something wrong with the record of a node.
type Problem struct {
	Node string
	Err  error
}

// Engine returns the allocator in the form that a [Controller] takes. The owners
// are the names of the nodes; labels do not matter.
func (a *Allocator) Engine() Engine { return engine{a} }

type engine struct{ a *Allocator }

func (e engine) Load(nodes []Node) []Problem { return problems(e.a.Load(nodes)) }

func (e engine) Observe(n Node) []Problem {
	_, errs := e.a.Observe(n)
	return problems(errs)
}

func problems(errs []*ipalloc.Error) (ps []Problem) {
	for _, err := range errs {
		ps = append(ps, Problem{err.Owner, err})
	}
	return ps
}

func (e engine) Allocate(n Node) (Assignment, error) { return e.a.Allocate(n) }

func (e engine) Holds(name string) (Assignment, bool) { return e.a.Lookup(name) }

func (e engine) Terminate(name string) { e.a.Terminate(name) }

func (e engine) Release(name string) bool {
	_, ok := e.a.Release(name)
	return ok
}

func (e engine) Names() (names []string) {
	for n := range e.a.All() {
		names = append(names, n.Name)
	}
	return names
}

// has returns what n's record says it has, as an engine keeps it.
func (n *Node) has() (ps []netip.Prefix) {
	for _, p := range n.Prefixes {
		if q, _ := usable(p); q.IsValid() && !slices.Contains(ps, q) {
			ps = append(ps, q)
		}
	}
	return ps
}

// shows reports whether n's record has exactly the assignment.
func (n *Node) shows(as Assignment) bool {
	return len(n.Prefixes) > 0 && slices.Equal(n.has(), as.Prefixes)
}
