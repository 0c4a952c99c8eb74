package clustercidr

import "github.com/ipalloc/ipalloc/cidrset/nodeipam"

// Engine returns the allocator in the form that a [nodeipam.Controller] takes, which
// then runs it against an API server, or anything else that has nodes. Its writer
// has to record the entry of an assignment with the node, and its source to read it
// back. After [Allocator.Add] and [Allocator.Unreserve] call the controller's Retry.
func (a *Allocator) Engine() nodeipam.Engine { return engine{a} }

type engine struct{ a *Allocator }

func nodeOf(n nodeipam.Node) Node {
	return Node{Name: n.Name, Labels: n.Labels, Entry: n.Entry, Prefixes: n.Prefixes, Texts: n.Texts}
}

func problemsOf(errs []*Error) (ps []nodeipam.Problem) {
	for _, err := range errs {
		ps = append(ps, nodeipam.Problem{Node: err.Node, Err: err})
	}
	return ps
}

// Load is Load of all records.
func (e engine) Load(nodes []nodeipam.Node) []nodeipam.Problem {
	list := make([]Node, len(nodes))
	for i, n := range nodes {
		list[i] = nodeOf(n)
	}
	return problemsOf(e.a.Load(list))
}

// Observe is Observe.
func (e engine) Observe(n nodeipam.Node) []nodeipam.Problem {
	_, problems := e.a.Observe(nodeOf(n))
	return problemsOf(problems)
}

// Allocate is Allocate, by the node's labels.
func (e engine) Allocate(n nodeipam.Node) (nodeipam.Assignment, error) {
	as, err := e.a.Allocate(nodeOf(n))
	return nodeipam.Assignment{Prefixes: as.Prefixes, Entry: as.Entry}, err
}

// Holds is Lookup.
func (e engine) Holds(name string) (nodeipam.Assignment, bool) {
	as, ok := e.a.Lookup(name)
	return nodeipam.Assignment{Prefixes: as.Prefixes, Entry: as.Entry}, ok
}

// Terminate does nothing: a node keeps what it holds until it is released.
func (e engine) Terminate(string) {}

// Release is Release.
func (e engine) Release(name string) bool {
	_, ok := e.a.Release(name)
	return ok
}

// Names returns the names of the nodes that hold something, ascending.
func (e engine) Names() (names []string) {
	for n := range e.a.All() {
		names = append(names, n.Name)
	}
	return names
}
