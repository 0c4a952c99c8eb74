// Command nodes is a controller that gives every node of a cluster an IPv4 and an IPv6 prefix.
// The API server is a table in memory here; cmd/node-ipam-controller does it for Kubernetes.
// The records of the nodes are all the state there is, so a restart loads them and goes on.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam/controller"
)

// api is the API server: a controller.Source and a controller.Writer.
type api struct {
	mu      sync.Mutex
	nodes   map[string]nodeipam.Node
	changed func(name string)
	written chan string
}

// put adds or changes a node, and delete removes one; both tell the controller.
func (a *api) put(n nodeipam.Node) {
	a.mu.Lock()
	a.nodes[n.Name] = n
	changed := a.changed
	a.mu.Unlock()
	if changed != nil {
		changed(n.Name)
	}
}

func (a *api) delete(name string) {
	a.mu.Lock()
	delete(a.nodes, name)
	a.mu.Unlock()
	a.changed(name)
}

func (a *api) Start(_ context.Context, changed func(string)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = changed
	return nil
}

func (a *api) List() []nodeipam.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.nodes))
}

func (a *api) Get(name string) (nodeipam.Node, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, ok := a.nodes[name]
	return n, ok
}

// Write records what a node has. A real one patches the object, and says whether that was refused or its outcome is unknown.
func (a *api) Write(_ context.Context, n nodeipam.Node, as nodeipam.Assignment) error {
	now, ok := a.Get(n.Name)
	if !ok || now.UID != n.UID {
		return ipalloc.ErrConflict
	}
	now.Prefixes = as.Prefixes
	a.put(now)
	a.written <- n.Name
	return nil
}

func (a *api) Read(_ context.Context, name string) (nodeipam.Node, error) {
	if n, ok := a.Get(name); ok {
		return n, nil
	}
	return nodeipam.Node{}, ipalloc.ErrNotFound
}

// serve runs a controller until as many nodes have been written as work has changed.
func serve(a *api, work func() (writes int)) error {
	allocator, err := nodeipam.New(nodeipam.Config{
		Slots: []nodeipam.Slot{
			{Bits: 24, Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/22")}},
			{Bits: 64, Pools: []netip.Prefix{netip.MustParsePrefix("fd00:10::/56")}},
		},
		Reserved: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, // the services
	})
	if err != nil {
		return err
	}
	loaded := make(chan struct{})
	c, err := controller.New(controller.Config{Allocator: allocator, Source: a, Writer: a, Workers: 1,
		Loaded: func() { close(loaded) },
		Report: func(node string, err error) { fmt.Println(node+":", err) }})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	<-loaded
	for range work() {
		n, _ := a.Get(<-a.written)
		fmt.Println(n.Name, n.Prefixes)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		return err
	}
	return allocator.Check()
}

func run() error {
	a := &api{nodes: make(map[string]nodeipam.Node), written: make(chan string)}
	add := func(name, uid string) { a.put(nodeipam.Node{Name: name, UID: uid}) }
	if err := serve(a, func() int { add("a", "1"); return 1 }); err != nil {
		return err
	}
	if err := serve(a, func() int { add("b", "2"); return 1 }); err != nil { // after a restart
		return err
	}
	return serve(a, func() int { // a node under the name of another is another node
		a.delete("a")
		add("a", "3")
		return 1
	})
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
