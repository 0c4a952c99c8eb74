//go:build go1.25 || goexperiment.synctest

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/internal/test/synctest"
)

// cluster is an API server with a watch: the nodes as they are, and the view of
// them, which is behind by lag. It is the Source and the Writer of a controller.
// Start brings the view up to date, as its contract demands, unless stale is set.
type cluster struct {
	t   *testing.T
	lag time.Duration // from a change to the view, 0: at once
	// before each write and read, under the lock; the error is the answer that the caller sees, and
	// land says whether the write happens all the same.
	onWrite func(name string) (err error, land bool)
	onRead  func(name string) error
	// late says, for a write that does not happen and has no clear answer, when it happens all the same; 0 is never.
	late    func() time.Duration
	latency time.Duration
	synced  chan struct{} // Start waits for it
	stale   bool          // Start leaves the view as it is

	mu       sync.Mutex
	nodes    map[string]nodeipam.Node // as they are
	view     map[string]nodeipam.Node
	version  int            // counts changes
	shown    map[string]int // the version that the view shows of a node
	complete int            // the version of all nodes when Start was called
	changed  func(string)
	inFlight map[string]bool
	most     int // writes in flight at once
	twice    int // prefixes recorded for two nodes
	gets     int // times that a node was worked on
	writes   []string
	reports  []string
}

var errTimeout = errors.New("connection lost")

func newCluster(t *testing.T, nodes ...nodeipam.Node) *cluster {
	k := &cluster{t: t, nodes: map[string]nodeipam.Node{}, view: map[string]nodeipam.Node{}, shown: map[string]int{}, inFlight: map[string]bool{}, synced: make(chan struct{})}
	close(k.synced)
	for _, n := range nodes {
		n.UID = "0"
		k.nodes[n.Name], k.view[n.Name] = n, n
	}
	return k
}

// set changes a node, or deletes it if n is nil, and has the view follow.
func (k *cluster) set(name string, n *nodeipam.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.change(name, n)
}

func (k *cluster) change(name string, n *nodeipam.Node) {
	if n == nil {
		delete(k.nodes, name)
	} else {
		k.nodes[name] = *n
	}
	k.version++
	version := k.version
	follow := func() {
		k.mu.Lock()
		if k.shown[name] > version || k.complete > version { // timers of one instant fire in any order; a view never goes back
			k.mu.Unlock()
			return
		}
		k.shown[name] = version
		if n == nil {
			delete(k.view, name)
		} else {
			k.view[name] = *n
		}
		changed := k.changed
		k.mu.Unlock()
		if changed != nil {
			changed(name)
		}
	}
	time.AfterFunc(k.lag, follow)
}

func (k *cluster) Start(ctx context.Context, changed func(string)) error {
	k.mu.Lock()
	k.changed = changed
	if !k.stale {
		k.view = maps.Clone(k.nodes)
		k.complete = k.version
	}
	k.mu.Unlock()
	select {
	case <-k.synced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (k *cluster) List() (nodes []nodeipam.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.view {
		nodes = append(nodes, n)
	}
	return nodes
}

func (k *cluster) Get(name string) (nodeipam.Node, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gets++
	n, ok := k.view[name]
	return n, ok
}

// ofRun is a key of the context with which start calls Run.
type ofRun struct{}

// checkContext checks that a call has a context of Run, so that it ends with Run.
func (k *cluster) checkContext(ctx context.Context) {
	if ctx.Value(ofRun{}) != k {
		k.t.Error("a call has another context than Run's")
	}
}

func (k *cluster) Write(ctx context.Context, n nodeipam.Node, as nodeipam.Assignment) error {
	k.checkContext(ctx)
	k.mu.Lock()
	if k.inFlight[n.Name] {
		k.t.Errorf("two writes to %s at once", n.Name)
	}
	k.inFlight[n.Name] = true
	k.most = max(k.most, len(k.inFlight))
	k.writes = append(k.writes, fmt.Sprint(n.Name, as.Prefixes))
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		delete(k.inFlight, n.Name)
		k.mu.Unlock()
	}()
	if k.latency > 0 {
		select {
		case <-time.After(k.latency):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var answer error
	land := true
	if k.onWrite != nil {
		k.locked(func() { answer, land = k.onWrite(n.Name) })
	}
	if land {
		if err := k.land(n, as); err != nil {
			return err
		}
	} else if k.late != nil && errors.Is(answer, errTimeout) {
		if d := k.late(); d > 0 {
			time.AfterFunc(d, func() { _ = k.land(n, as) })
		}
	}
	return answer
}

func (k *cluster) land(n nodeipam.Node, as nodeipam.Assignment) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	is, ok := k.nodes[n.Name]
	switch {
	case !ok:
		return fmt.Errorf("no %s: %w", n.Name, ipalloc.ErrNotFound)
	case is.UID != n.UID:
		return fmt.Errorf("another node: %w", ipalloc.ErrConflict)
	case len(is.Prefixes) > 0 && !slices.Equal(is.Prefixes, as.Prefixes):
		return fmt.Errorf("has %v: %w", is.Prefixes, ipalloc.ErrConflict)
	case len(is.Prefixes) == 0:
		for _, other := range k.nodes {
			for _, p := range other.Prefixes {
				for _, q := range as.Prefixes {
					if p.Overlaps(q) {
						k.twice++
						if !k.stale {
							k.t.Errorf("%v given to %s and %s", q, other.Name, n.Name)
						}
					}
				}
			}
		}
		is.Prefixes = slices.Clone(as.Prefixes)
		k.change(n.Name, &is)
	}
	return nil
}

func (k *cluster) Read(ctx context.Context, name string) (nodeipam.Node, error) {
	k.checkContext(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.onRead != nil {
		if err := k.onRead(name); err != nil {
			return nodeipam.Node{}, err
		}
	}
	n, ok := k.nodes[name]
	if !ok {
		return nodeipam.Node{}, ipalloc.ErrNotFound
	}
	return n, nil
}

func (k *cluster) report(node string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := "fine"
	if err != nil {
		text = err.Error()
	}
	k.reports = append(k.reports, node+": "+text)
}

// locked runs f while nothing else looks at what the tests share with the callbacks.
func (k *cluster) locked(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

// sleep lets time pass and everything that it brings happen.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (k *cluster) prefixes(name string) []netip.Prefix {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes[name].Prefixes
}

// start runs a controller until the test ends or stop is called, which waits.
func (k *cluster) start(a *nodeipam.Allocator, more ...func(*Config)) (c *Controller, stop func()) {
	k.t.Helper()
	cfg := Config{Allocator: a, Source: k, Writer: k, Report: k.report}
	for _, f := range more {
		f(&cfg)
	}
	if choose := cfg.Choose; choose != nil {
		cfg.Choose = func(ctx context.Context, n nodeipam.Node) (nodeipam.Assignment, error) {
			k.checkContext(ctx)
			return choose(ctx, n)
		}
	}
	c, err := New(cfg)
	if err != nil {
		k.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithValue(k.t.Context(), ofRun{}, k))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return c, sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			k.t.Errorf("Run: %v", err)
		}
		if err := a.Check(); err != nil {
			k.t.Error(err)
		}
	})
}

func plain(n int) (nodes []nodeipam.Node) {
	for i := range n {
		nodes = append(nodes, nodeipam.Node{Name: fmt.Sprintf("n%04d", i)})
	}
	return nodes
}

// free returns the number of free children in the first pool.
func free(a *nodeipam.Allocator) uint64 { return a.Stats().Pools[0].Free }

// holds returns what the allocator holds for a node.
func holds(a *nodeipam.Allocator, name string) []netip.Prefix {
	as, _ := a.Lookup(name)
	return as.Prefixes
}

// owners returns the number of nodes that hold something.
func owners(a *nodeipam.Allocator) int { return a.Stats().Nodes }

type badSource struct{ Source }

func (badSource) Start(context.Context, func(string)) error { return errTimeout }
