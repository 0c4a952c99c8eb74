package controller_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam/controller"
)

// table is a table of nodes: a Source and a Writer at once.
type table struct {
	mu      sync.Mutex
	nodes   map[string]nodeipam.Node
	changed func(name string)
	written chan string
}

func (t *table) Start(_ context.Context, changed func(string)) error {
	t.changed = changed
	return nil
}

func (t *table) List() []nodeipam.Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.nodes))
}

func (t *table) Get(name string) (nodeipam.Node, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.nodes[name]
	return n, ok
}

func (t *table) Write(_ context.Context, n nodeipam.Node, as nodeipam.Assignment) error {
	t.mu.Lock()
	n.Prefixes, n.Entry = as.Prefixes, as.Entry
	t.nodes[n.Name] = n
	t.mu.Unlock()
	t.changed(n.Name)
	t.written <- n.Name
	return nil
}

func (t *table) Read(_ context.Context, name string) (nodeipam.Node, error) {
	n, ok := t.Get(name)
	if !ok {
		return n, ipalloc.ErrNotFound
	}
	return n, nil
}

// A controller loads the nodes of the table, gives prefixes to those without, and
// reports what is wrong.
func Example() {
	t := &table{written: make(chan string, 1), nodes: map[string]nodeipam.Node{
		"a": nodeipam.ParseNode("a", "10.0.0.0/24"),
		"b": nodeipam.ParseNode("b", "172.16.0.0/24"),
		"c": {Name: "c"},
	}}
	a, err := nodeipam.New(nodeipam.Config{Slots: []nodeipam.Slot{
		{Bits: 24, Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := controller.New(controller.Config{Allocator: a, Source: t, Writer: t, Report: func(node string, err error) {
		fmt.Println(node+":", err)
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	n, _ := t.Get(<-t.written)
	stop()
	fmt.Println(<-ended)
	fmt.Println(n.Name, n.Prefixes)
	// Output:
	// b: nodeipam: record 172.16.0.0/24 for "b": Prefixes[0]: in no pool of its slot
	// context canceled
	// c [10.0.1.0/24]
}
