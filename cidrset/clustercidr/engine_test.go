package clustercidr_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset/clustercidr"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// cluster is a source and a writer of nodes in memory.
type cluster struct {
	mu       sync.Mutex
	nodes    map[string]nodeipam.Node
	changed  func(string)
	recorded chan string // a node's name when its record is complete
}

func (c *cluster) Start(_ context.Context, changed func(string)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = changed
	for name := range c.nodes {
		changed(name)
	}
	return nil
}

func (c *cluster) List() (list []nodeipam.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		list = append(list, n)
	}
	return list
}

func (c *cluster) Get(name string) (nodeipam.Node, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.nodes[name]
	return n, ok
}

func (c *cluster) Write(_ context.Context, n nodeipam.Node, as nodeipam.Assignment) error {
	c.mu.Lock()
	n.Prefixes, n.Entry = as.Prefixes, as.Entry
	c.nodes[n.Name] = n
	c.mu.Unlock()
	c.changed(n.Name)
	c.recorded <- n.Name
	return nil
}

func (c *cluster) Read(_ context.Context, name string) (nodeipam.Node, error) {
	n, ok := c.Get(name)
	if !ok {
		return n, nodeipam.ErrGone
	}
	return n, nil
}

// The controller of package nodeipam runs this allocator as it runs its own. A node
// that nothing matched is served once there is an entry for it. NA5, CC3
func TestEngineUnderTheController(t *testing.T) {
	a := allocator(t, v4, e4("x", "10.0.0.0/22", 8, "a"), e4("y", "10.0.0.0/22", 6, "b"))
	c := &cluster{nodes: map[string]nodeipam.Node{}, recorded: make(chan string, 8)}
	for name, l := range map[string]string{"n1": "a=1", "n2": "b=1", "late": "c=1", "n3": "a=1"} {
		c.nodes[name] = nodeipam.Node{Name: name, Labels: labels(l)}
	}
	n3 := c.nodes["n3"]
	n3.Prefixes, n3.Entry = []netip.Prefix{pfx("10.0.0.0/24")}, "x"
	c.nodes["n3"] = n3
	refused := make(chan error, 8)
	control, err := nodeipam.NewController(nodeipam.ControllerConfig{Engine: a.Engine(), Source: c, Writer: c,
		Report: func(_ string, err error) { refused <- err }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- control.Run(ctx) }()
	for range 2 {
		<-c.recorded
	}
	if err := <-refused; !is(err, clustercidr.ErrNoMatch) {
		t.Errorf("reported %v", err)
	}
	if err := a.Add(e4("z", "10.1.0.0/22", 8, "c")); err != nil {
		t.Fatal(err)
	}
	control.Retry()
	if name := <-c.recorded; name != "late" {
		t.Errorf("%s was written", name)
	}
	cancel()
	<-done
	for name, want := range map[string]string{"n3": "x [10.0.0.0/24]", "late": "z [10.1.0.0/24]"} {
		if got := fmt.Sprint(c.nodes[name].Entry, " ", c.nodes[name].Prefixes); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
	b := restart(t, v4, a) // what was recorded gives the same
	if got := fmt.Sprint(b.Engine().Names()); got != "[late n1 n2 n3]" {
		t.Errorf("%s hold something", got)
	}
	e := b.Engine()
	for _, n := range c.List() {
		if problems := e.Observe(n); len(problems) > 0 {
			t.Error(problems)
		}
		e.Terminate(n.Name)
		if as, ok := e.Holds(n.Name); !ok || as.Entry != n.Entry {
			t.Errorf("%s holds %v", n.Name, as)
		}
		if !e.Release(n.Name) || e.Release(n.Name) {
			t.Errorf("releasing %s", n.Name)
		}
	}
	problems := e.Load([]nodeipam.Node{nodeipam.ParseNode("n1", "10.0.0"), {Name: "n2", Entry: "x", Prefixes: prefixes("10.0.0.0/24")}})
	if len(problems) != 1 || problems[0].Node != "n1" || !is(problems[0].Err, clustercidr.ErrBadPrefix) {
		t.Errorf("%v", problems)
	}
	if as, ok := e.Holds("n2"); !ok || as.Entry != "x" {
		t.Errorf("n2 holds %v", as)
	}
}
