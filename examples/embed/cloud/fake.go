package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// world is the nodes of an API server and the machines of a cloud, in a file that outlives the
// process.
type world struct {
	mu      sync.Mutex
	file    string
	changed func(string)
	before  func(op, name string) error // called before the operation, which fails with its error

	Nodes    map[string]*row
	Machines map[string][]netip.Prefix
	Doubles  []string // ranges that a second machine was to get, and machines that were to change theirs
}

type row struct {
	UID    int
	Record []netip.Prefix
}

func newWorld(file string) *world {
	w := &world{file: file, Nodes: map[string]*row{}, Machines: map[string][]netip.Prefix{}, changed: func(string) {}, before: func(string, string) error { return nil }}
	if b, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(b, w); err != nil {
			panic(err)
		}
	}
	return w
}

func (w *world) save() {
	if w.file == "" {
		return
	}
	b, err := json.Marshal(w)
	if err == nil {
		err = os.WriteFile(w.file+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(w.file+".new", w.file)
	}
	if err != nil {
		panic(err)
	}
}

func (w *world) do(op, name string, f func() error) error {
	if err := w.before(op, name); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.save()
	return f()
}

func (w *world) add(name string) {
	w.do("add", name, func() error { w.Nodes[name], w.Machines[name] = &row{UID: len(w.Nodes)}, nil; return nil })
	w.changed(name)
}

func (w *world) Start(_ context.Context, changed func(string)) error { w.changed = changed; return nil }

func (w *world) node(name string) nodeipam.Node {
	r := w.Nodes[name]
	return nodeipam.Node{Name: name, UID: fmt.Sprint(r.UID), Prefixes: slices.Clone(r.Record)}
}

func (w *world) List() (nodes []nodeipam.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.Nodes {
		nodes = append(nodes, w.node(name))
	}
	return nodes
}

func (w *world) Get(name string) (n nodeipam.Node, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Nodes[name] == nil {
		return n, false
	}
	return w.node(name), true
}

func (w *world) Read(_ context.Context, name string) (nodeipam.Node, error) {
	n, ok := w.Get(name)
	if !ok {
		return n, ipalloc.ErrNotFound
	}
	return n, w.before("read", name)
}

func (w *world) Write(_ context.Context, n nodeipam.Node, as nodeipam.Assignment) error {
	err := w.do("write", n.Name, func() error {
		r := w.Nodes[n.Name]
		if r == nil || fmt.Sprint(r.UID) != n.UID {
			return ipalloc.ErrNotFound
		}
		if len(r.Record) > 0 && !slices.Equal(r.Record, as.Prefixes) {
			return ipalloc.ErrConflict
		}
		r.Record = slices.Clone(as.Prefixes)
		return nil
	})
	w.changed(n.Name)
	return err
}

// fakeCloud is the side of the machines.
type fakeCloud world

func (c *fakeCloud) Ranges(_ context.Context, machine string) ([]netip.Prefix, error) {
	w := (*world)(c)
	if err := w.before("ranges", machine); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ps, ok := w.Machines[machine]
	if !ok {
		return nil, ipalloc.ErrNotFound
	}
	return slices.Clone(ps), nil
}

func (c *fakeCloud) Assign(_ context.Context, machine string, ps []netip.Prefix) error {
	w := (*world)(c)
	return w.do("assign", machine, func() error {
		have, ok := w.Machines[machine]
		if !ok {
			return ipalloc.ErrNotFound
		}
		if slices.Equal(have, ps) {
			return nil
		}
		for other, theirs := range w.Machines {
			for _, p := range theirs {
				if other != machine && slices.ContainsFunc(ps, p.Overlaps) {
					w.Doubles = append(w.Doubles, fmt.Sprint(p, " of ", other, " for ", machine))
					return ipalloc.ErrConflict
				}
			}
		}
		if len(have) > 0 {
			w.Doubles = append(w.Doubles, fmt.Sprint(machine, " has ", have, ", gets ", ps))
		}
		w.Machines[machine] = slices.Clone(ps)
		return nil
	})
}
