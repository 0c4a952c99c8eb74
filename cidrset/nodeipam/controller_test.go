//go:build go1.25

package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// cluster is an API server with a watch: the nodes as they are, and the view of
// them, which is behind by lag. It is the Source and the Writer of a controller.
type cluster struct {
	t   *testing.T
	lag time.Duration // from a change to the view, 0: at once
	// before each write and read; the error is the answer that the caller sees, and
	// land says whether the write happens all the same.
	onWrite func(name string) (err error, land bool)
	onRead  func(name string) error
	latency time.Duration
	synced  chan struct{} // Start waits for it

	mu       sync.Mutex
	nodes    map[string]Node // as they are
	view     map[string]Node
	changed  func(string)
	inFlight map[string]bool
	most     int // writes in flight at once
	writes   []string
	reports  []string
}

var errTimeout = errors.New("connection lost")

func newCluster(t *testing.T, nodes ...Node) *cluster {
	k := &cluster{t: t, nodes: map[string]Node{}, view: map[string]Node{}, inFlight: map[string]bool{}, synced: make(chan struct{})}
	close(k.synced)
	for _, n := range nodes {
		n.UID = "0"
		k.nodes[n.Name], k.view[n.Name] = n, n
	}
	return k
}

// set changes a node, or deletes it if n is nil, and has the view follow.
func (k *cluster) set(name string, n *Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.change(name, n)
}

func (k *cluster) change(name string, n *Node) {
	if n == nil {
		delete(k.nodes, name)
	} else {
		k.nodes[name] = *n
	}
	follow := func() {
		k.mu.Lock()
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
	k.mu.Unlock()
	select {
	case <-k.synced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (k *cluster) List() (nodes []Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.view {
		nodes = append(nodes, n)
	}
	return nodes
}

func (k *cluster) Get(name string) (Node, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, ok := k.view[name]
	return n, ok
}

func (k *cluster) Write(ctx context.Context, n Node, as Assignment) error {
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
		answer, land = k.onWrite(n.Name)
	}
	if land {
		if err := k.land(n, as); err != nil {
			return err
		}
	}
	return answer
}

func (k *cluster) land(n Node, as Assignment) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	is, ok := k.nodes[n.Name]
	switch {
	case !ok:
		return fmt.Errorf("no %s: %w", n.Name, ErrGone)
	case is.UID != n.UID:
		return fmt.Errorf("another node: %w", ErrRejected)
	case len(is.Prefixes) > 0 && !slices.Equal(is.Prefixes, as.Prefixes):
		return fmt.Errorf("has %v: %w", is.Prefixes, ErrRejected)
	case len(is.Prefixes) == 0:
		for _, other := range k.nodes {
			for _, p := range other.Prefixes {
				for _, q := range as.Prefixes {
					if p.Overlaps(q) {
						k.t.Errorf("%v given to %s and %s", q, other.Name, n.Name)
					}
				}
			}
		}
		is.Prefixes = clone(as.Prefixes)
		k.change(n.Name, &is)
	}
	return nil
}

func (k *cluster) Read(_ context.Context, name string) (Node, error) {
	if k.onRead != nil {
		if err := k.onRead(name); err != nil {
			return Node{}, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	n, ok := k.nodes[name]
	if !ok {
		return Node{}, ErrGone
	}
	return n, nil
}

func (k *cluster) report(node string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reports = append(k.reports, node+": "+err.Error())
}

func (k *cluster) prefixes(name string) []netip.Prefix {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes[name].Prefixes
}

// start runs a controller until the test ends or stop is called, which waits.
func (k *cluster) start(a *Allocator, more ...func(*ControllerConfig)) (c *Controller, stop func()) {
	k.t.Helper()
	cfg := ControllerConfig{Engine: a.Engine(), Source: k, Writer: k, Report: k.report}
	for _, f := range more {
		f(&cfg)
	}
	c, err := NewController(cfg)
	if err != nil {
		k.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(k.t.Context())
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

func plain(n int) (nodes []Node) {
	for i := range n {
		nodes = append(nodes, Node{Name: fmt.Sprintf("n%04d", i)})
	}
	return nodes
}

func small(t *testing.T, children int) *Allocator {
	bits := 24
	for n := 1; n < children; n *= 2 {
		bits--
	}
	return mustNew(t, Config{Slots: []Slot{{24, []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), bits)}}}})
}

func TestControllerServesAllNodes(t *testing.T) { // NA5
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1000)...)
		k.latency, k.lag = 10*time.Millisecond, 3*time.Millisecond
		c, stop := k.start(mustNew(t, dual("10.0.0.0/12", 24, "fd00::/44", 64)))
		defer stop()
		time.Sleep(time.Second)
		synctest.Wait()
		for name, n := range k.nodes {
			if len(n.Prefixes) != 2 {
				t.Errorf("%s has %v", name, n.Prefixes)
			}
		}
		st := c.Stats()
		if k.most != 30 || len(k.writes) != 1000 || st.Assigned != 1000 || st.Unsettled != 0 || st.Waiting+st.Running+st.Delayed != 0 || !c.Synced() {
			t.Errorf("%d at once, %d writes, %+v, reports %v", k.most, len(k.writes), st, k.reports)
		}
		if st.WriterTime != 10*time.Second || st.OwnTime != 0 {
			t.Errorf("%v in the writer, %v elsewhere", st.WriterTime, st.OwnTime)
		}
	})
}

func TestNothingIsAllocatedBeforeTheViewIsComplete(t *testing.T) { // NA5
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(3)...)
		k.synced = make(chan struct{})
		a := small(t, 4)
		c, stop := k.start(a)
		defer stop()
		synctest.Wait()
		k.set("n0000", &Node{Name: "n0000"}) // the watch brings nodes one after another
		time.Sleep(time.Hour)
		if a.Stats().Owners != 0 || len(k.writes) != 0 || c.Synced() {
			t.Fatalf("%+v, writes %v", a.Stats(), k.writes)
		}
		k.set("old", &Node{Name: "old", Prefixes: pfxs("10.0.0.0/24")})
		time.Sleep(time.Second)
		close(k.synced)
		synctest.Wait()
		if got := a.Prefixes("old"); !slices.Equal(got, pfxs("10.0.0.0/24")) || len(k.writes) != 3 {
			t.Fatalf("old has %v, writes %v", got, k.writes)
		}
	})
}

func TestThreeAttemptsThenLongerWaits(t *testing.T) { // NA5
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		begin := time.Now()
		var at []string
		k.onWrite = func(string) (error, bool) {
			at = append(at, time.Since(begin).String())
			return fmt.Errorf("forbidden: %w", ErrRejected), false
		}
		a := small(t, 8)
		c, stop := k.start(a, func(cfg *ControllerConfig) { cfg.Base, cfg.Max = time.Second, 3*time.Second })
		defer stop()
		time.Sleep(9*time.Second + time.Second/2)
		synctest.Wait()
		want := "0s 0s 0s 1s 1s 1s 3s 3s 3s 6s 6s 6s 9s 9s 9s"
		if got := strings.Join(at, " "); got != want {
			t.Fatalf("attempts at %s, want %s", got, want)
		}
		if st := c.Stats(); a.Stats().Owners != 0 || st.Reads != 0 || st.Rejected != 15 || st.Delayed != 1 || st.Retries != 5 {
			t.Fatalf("a definite failure keeps %v; %+v", a.Prefixes("n0000"), st)
		}
		// Each round takes another child, as the round robin goes.
		if !slices.Equal(k.writes[2:4], []string{"n0000[10.0.0.0/24]", "n0000[10.0.1.0/24]"}) {
			t.Fatal(k.writes)
		}
	})
}

func TestJitterShortensWaitsByUpToHalf(t *testing.T) { // X3
	q := newQueue(ControllerConfig{Base: time.Second, Max: time.Minute, Jitter: rand.NewPCG(1, 2)})
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 100: time.Minute} {
		for range 100 {
			if d := q.backoff(failures); d < want/2 || d > want {
				t.Fatalf("wait %v after %d failures, want up to %v", d, failures, want)
			}
		}
	}
}

// V3: the original gives the prefix to the next node.
func TestLostAnswerDoesNotGiveThePrefixToAnotherNode(t *testing.T) { // NA5
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		k.lag = time.Minute // the watch is cut, too
		broken := true
		k.onWrite = func(name string) (error, bool) {
			if broken && name == "n0000" {
				return errTimeout, true
			}
			return nil, true
		}
		k.onRead = func(string) error {
			if broken {
				return errTimeout
			}
			return nil
		}
		a := small(t, 1)
		c, stop := k.start(a)
		defer stop()
		time.Sleep(time.Second)
		k.nodes["n0001"] = Node{Name: "n0001"}
		k.set("n0001", &Node{Name: "n0001"})
		time.Sleep(10 * time.Second)
		if !a.Has("n0000") || a.Has("n0001") || c.Stats().Unsettled != 1 {
			t.Fatalf("n0000 holds %v, n0001 %v", a.Prefixes("n0000"), a.Prefixes("n0001"))
		}
		broken = false
		time.Sleep(time.Hour)
		synctest.Wait()
		if !slices.Equal(k.prefixes("n0000"), pfxs("10.0.0.0/24")) || k.prefixes("n0001") != nil {
			t.Fatal(k.nodes)
		}
		for _, w := range k.writes {
			if w != "n0000[10.0.0.0/24]" {
				t.Fatalf("written: %v", k.writes)
			}
		}
	})
}

// An unknown outcome stays one though the later attempts certainly fail.
func TestLaterRejectionsDoNotSettleAnUnknownOutcome(t *testing.T) { // NA5
	for _, landed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			k := newCluster(t, plain(1)...)
			k.lag = time.Hour
			tries := 0
			k.onWrite = func(string) (error, bool) {
				if tries++; tries == 1 {
					return errTimeout, landed
				}
				return fmt.Errorf("immutable: %w", ErrRejected), false
			}
			reads := 0
			k.onRead = func(string) error {
				if reads++; reads < 3 {
					return errTimeout
				}
				if tries != 9 { // three rounds
					t.Errorf("a read after %d attempts", tries)
				}
				return nil
			}
			a := small(t, 8)
			c, stop := k.start(a)
			defer stop()
			time.Sleep(250 * time.Millisecond) // two rounds
			if !slices.Equal(a.Prefixes("n0000"), pfxs("10.0.0.0/24")) || c.Stats().Unsettled != 1 {
				t.Fatalf("holds %v", a.Prefixes("n0000"))
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if c.Stats().Unsettled != 0 || !slices.Equal(a.Prefixes("n0000"), pfxs("10.0.0.0/24")) {
				t.Fatalf("%+v, holds %v", c.Stats(), a.Prefixes("n0000"))
			}
			if landed {
				time.Sleep(time.Minute)
				if tries != 9 {
					t.Fatalf("%d attempts", tries)
				}
				return
			}
			time.Sleep(time.Minute) // not recorded, and now the rejections are the last word
			if want := "n0000[10.0.0.0/24]"; a.Stats().Owners != 0 || k.writes[11] != want || k.writes[12] == want {
				t.Fatalf("holds %v, writes %v", a.Prefixes("n0000"), k.writes)
			}
		})
	}
}

// A rejection of what was written before does not free it either: the view is late.
func TestRejectedRewriteDoesNotFreeWhatWasWritten(t *testing.T) { // NA5
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		k.lag = time.Minute
		reject := false
		k.onWrite = func(string) (error, bool) {
			if reject {
				return ErrRejected, false
			}
			return nil, true
		}
		a := small(t, 8)
		c, stop := k.start(a)
		defer stop()
		time.Sleep(time.Second)
		reject = true
		c.changed("n0000") // a heartbeat that the server saw before the write
		time.Sleep(time.Second)
		if !slices.Equal(a.Prefixes("n0000"), k.prefixes("n0000")) || c.Stats().Reads != 1 {
			t.Fatalf("holds %v, has %v", a.Prefixes("n0000"), k.prefixes("n0000"))
		}
	})
}

func TestGoneInTheViewIsNotEnoughForAnUnsettledNode(t *testing.T) { // NA5
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		dark := true
		k.onWrite = func(string) (error, bool) { return errTimeout, false }
		k.onRead = func(string) error {
			if dark {
				return errTimeout
			}
			return nil
		}
		a := small(t, 8)
		c, stop := k.start(a)
		defer stop()
		time.Sleep(time.Second)
		k.set("n0000", nil)
		time.Sleep(time.Second)
		writes := len(k.writes)
		time.Sleep(time.Hour)
		if !a.Has("n0000") || len(k.writes) != writes {
			t.Fatalf("holds %v after %d writes, %d with the node gone", a.Prefixes("n0000"), writes, len(k.writes))
		}
		dark = false
		time.Sleep(2 * time.Minute)
		if a.Has("n0000") || c.Stats().Unsettled != 0 || c.Stats().Delayed != 0 {
			t.Fatalf("holds %v, %+v", a.Prefixes("n0000"), c.Stats())
		}
	})
}

// V2: the node is gone when the write comes.
func TestNodeGoneBeforeTheWriteDoesNotLeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		k.lag = time.Minute
		k.set("n0000", nil) // the view does not know yet
		a := small(t, 8)
		_, stop := k.start(a)
		defer stop()
		time.Sleep(30 * time.Second)
		if a.Stats().Owners != 0 {
			t.Fatal(a.Prefixes("n0000"))
		}
		time.Sleep(time.Hour)
		if len(k.writes) > 10 {
			t.Fatalf("%d writes to a node that is gone", len(k.writes))
		}
	})
}

func TestNodeWithOtherPrefixesGivesBackOurs(t *testing.T) { // NA5
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(1)...)
		k.lag = time.Hour
		k.onWrite = func(string) (error, bool) { // somebody else was quicker
			k.set("n0000", &Node{Name: "n0000", UID: "0", Prefixes: pfxs("10.0.5.0/24")})
			return errTimeout, false
		}
		a := small(t, 8)
		c, stop := k.start(a)
		defer stop()
		time.Sleep(time.Second)
		if got := a.Prefixes("n0000"); !slices.Equal(got, pfxs("10.0.5.0/24")) || c.Stats().Reads != 1 {
			t.Fatalf("holds %v", got)
		}
		if free := a.Stats().Slots[0].Pools[0].Free; free != 7 {
			t.Fatalf("%d free", free)
		}
	})
}

// V9: a node that is about to go keeps its prefixes until it is gone, and does not
// get any.
func TestTerminatingNodes(t *testing.T) { // NA4
	synctest.Test(t, func(t *testing.T) {
		leaving := Node{Name: "leaving", Terminating: true}
		k := newCluster(t, leaving, Node{Name: "old", Prefixes: pfxs("10.0.0.0/24")})
		a := small(t, 1)
		_, stop := k.start(a)
		defer stop()
		k.set("old", &Node{Name: "old", Prefixes: pfxs("10.0.0.0/24"), Terminating: true})
		k.set("leaving", &leaving)
		k.set("new", &Node{Name: "new"})
		time.Sleep(time.Minute)
		if len(k.writes) != 0 || a.Stats().Terminating != 1 || strings.Contains(strings.Join(k.reports, "\n"), "leaving") {
			t.Fatal(k.writes, a.Stats(), k.reports)
		}
		gone := time.Now()
		k.set("old", nil)
		for k.prefixes("new") == nil {
			time.Sleep(time.Millisecond)
		}
		if time.Since(gone) > 5*time.Millisecond { // not after its wait of a minute
			t.Fatalf("served %v after there was space", time.Since(gone))
		}
	})
}

func TestRetryAfterAPoolWasAdded(t *testing.T) { // NA6
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(9)...)
		a := small(t, 1)
		c, stop := k.start(a)
		defer stop()
		time.Sleep(time.Hour)
		if st := c.Stats(); st.Delayed != 8 || st.Assigned != 1 || !strings.Contains(strings.Join(k.reports, "\n"), "no free space") {
			t.Fatal(st, k.reports)
		}
		if err := a.AddPool(0, pfx("10.1.0.0/16")); err != nil {
			t.Fatal(err)
		}
		c.Retry()
		synctest.Wait()
		if st := c.Stats(); st.Delayed != 0 || st.Assigned != 9 {
			t.Fatal(st)
		}
	})
}

// What does not fit into the queue is found by looking at the view.
func TestBoundedQueueLosesNoNode(t *testing.T) { // NA5
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(500)...)
		k.latency = time.Millisecond
		bound := func(cfg *ControllerConfig) { cfg.Bound, cfg.Workers = 10, 4 }
		a := small(t, 512)
		c, stop := k.start(a, bound)
		defer stop()
		time.Sleep(time.Minute)
		if st := c.Stats(); st.Assigned != 500 || st.Unsettled != 0 || st.Overflows == 0 || st.Sweeps < 10 {
			t.Fatalf("%+v", st)
		}
		for _, n := range k.List() { // deletions all at once
			k.set(n.Name, nil)
		}
		time.Sleep(time.Minute)
		if st := a.Stats(); st.Owners != 0 {
			t.Fatalf("%d owners left", st.Owners)
		}
	})
}

func TestFailingNodesDoNotStarveOthers(t *testing.T) { // NA5
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t, plain(200)...)
		k.onWrite = func(name string) (error, bool) {
			if name < "n0100" {
				return ErrRejected, false
			}
			return nil, true
		}
		c, stop := k.start(small(t, 256), func(cfg *ControllerConfig) { cfg.Bound, cfg.Workers = 10, 4 })
		defer stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		st := c.Stats()
		if st.Assigned != 100 || st.Waiting+st.Running+st.Delayed > 10 {
			t.Fatalf("%+v", st)
		}
		before := st.Rejected
		time.Sleep(time.Hour)
		if n := c.Stats().Rejected - before; n == 0 || n > 200*3*70 {
			t.Fatalf("%d attempts in an hour in which nothing succeeds", n)
		}
	})
}

func TestReportsOfARecordComeOnce(t *testing.T) { // NA3
	synctest.Test(t, func(t *testing.T) {
		bad := ParseNode("n1", "10.0.0.0/33")
		k := newCluster(t, ParseNode("n0", "10.0.0.0/24"), bad, ParseNode("n2", "10.0.0.0/24"), ParseNode("n3", "10.9.0.0/24"))
		a := small(t, 8)
		c, stop := k.start(a)
		defer stop()
		time.Sleep(time.Second)
		// n0 or n2 is the second, as the list has it.
		if len(k.reports) != 3 {
			t.Fatal(k.reports)
		}
		for _, n := range k.List() {
			c.changed(n.Name)
		}
		time.Sleep(time.Second)
		if len(k.reports) > 4 { // now the other one is told too
			t.Fatal(k.reports)
		}
		later := ParseNode("n4", "x")
		k.set("n4", &later)
		time.Sleep(time.Second)
		if last := k.reports[len(k.reports)-1]; !strings.Contains(last, `n4 slot 0 "x"`) {
			t.Fatal(last)
		}
	})
}

func TestShutdownWaitsForWorkers(t *testing.T) { // X4; a bubble fails if a goroutine is left
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, 1, time.Millisecond, 5 * time.Millisecond, time.Second} {
			k := newCluster(t, plain(100)...)
			k.latency = 2 * time.Millisecond
			c, stop := k.start(small(t, 64))
			time.Sleep(after)
			stop()
			if st := c.Stats(); st.Running != 0 {
				t.Fatalf("%+v", st)
			}
			if err := c.Run(t.Context()); !errors.Is(err, ErrRunning) {
				t.Fatal(err)
			}
		}
		k := newCluster(t)
		k.synced = make(chan struct{}) // never in sync
		_, stop := k.start(small(t, 1))
		time.Sleep(time.Second)
		cfg := ControllerConfig{Engine: small(t, 1).Engine(), Source: badSource{}, Writer: k}
		c, err := NewController(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); !errors.Is(err, errTimeout) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c, _ = NewController(ControllerConfig{Engine: small(t, 1).Engine(), Source: k, Writer: k})
		if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, stop) // while Start waits
		time.Sleep(2 * time.Second)
	})
}

type badSource struct{ Source }

func (badSource) Start(context.Context, func(string)) error { return errTimeout }

func TestNewControllerRefusesWhatCannotBe(t *testing.T) {
	k := newCluster(t)
	good := ControllerConfig{Engine: small(t, 1).Engine(), Source: k, Writer: k}
	for name, f := range map[string]func(*ControllerConfig){
		"engine": func(c *ControllerConfig) { c.Engine = nil }, "source": func(c *ControllerConfig) { c.Source = nil },
		"writer": func(c *ControllerConfig) { c.Writer = nil }, "workers": func(c *ControllerConfig) { c.Workers = -1 },
		"bound": func(c *ControllerConfig) { c.Bound = -1 }, "attempts": func(c *ControllerConfig) { c.Attempts = -1 },
		"base": func(c *ControllerConfig) { c.Base = -1 }, "max": func(c *ControllerConfig) { c.Max = time.Millisecond },
	} {
		cfg := good
		f(&cfg)
		if _, err := NewController(cfg); !errors.Is(err, ErrBadOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := NewController(good)
	if err != nil || c.Workers != 30 || c.Bound != 5000 || c.Attempts != 3 {
		t.Fatal(c, err)
	}
}

func TestQueueKeepsANodeThatChangesWhileItRuns(t *testing.T) { // NA5
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(ControllerConfig{Bound: 3, Base: time.Second, Max: time.Second, Clock: systemClock{}})
		q.add("a")
		q.add("b")
		q.add("a")
		a := q.get()
		q.add("a")
		b := q.get()
		if a.name != "a" || b.name != "b" || q.head != len(q.waiting) {
			t.Fatal(a, b, q.waiting)
		}
		q.done(b, verdictDone)
		q.done(a, verdictRetry)
		if again := q.get(); again != a || a.failures != 1 { // at once: it has changed
			t.Fatal(again)
		}
		q.done(a, verdictRetry)
		if q.head != len(q.waiting) || len(q.delayed) != 1 {
			t.Fatal("not delayed")
		}
		q.add("c")
		q.add("d")
		if _, ok := q.items["a"]; len(q.items) != 3 || !ok || q.offer("a") != true || len(q.delayed) != 1 {
			t.Fatal("a sweep does not end a wait")
		}
		q.lost = false
		q.add("e") // takes the place of a
		if _, ok := q.items["a"]; len(q.items) != 3 || ok || !q.lost || len(q.delayed) != 0 {
			t.Fatal(q.items)
		}
		q.add("f")
		if _, ok := q.items["f"]; ok || q.offer("f") || q.dropped != 3 {
			t.Fatal(q.items, q.dropped)
		}
		q.close()
		if q.get() != nil || q.offer("e") {
			t.Fatal("closed")
		}
	})
}

// A storm: nodes come, go and come again while writes and reads fail in every way
// and controllers are stopped and started. No prefix is ever recorded for two nodes
// that exist at a time (land reports it), nothing is reassigned, and once the
// trouble is over every node has its prefixes and nothing is leaked.
func TestStorm(t *testing.T) { // NA3, NA4, NA5
	seeds := uint64(40)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { storm(t, rand.New(rand.NewPCG(seed, 3))) })
	}
}

func storm(t *testing.T, rng *rand.Rand) {
	k := newCluster(t, plain(40)...)
	k.latency, k.lag = time.Millisecond, time.Duration(rng.IntN(500))*time.Millisecond
	var mu sync.Mutex
	calm := false
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		if calm {
			return n
		}
		return rng.IntN(n)
	}
	k.onWrite = func(string) (error, bool) {
		switch draw(10) {
		case 0, 1:
			return ErrRejected, false
		case 2, 3:
			return errTimeout, true
		case 4, 5:
			return errTimeout, false
		}
		return nil, true
	}
	k.onRead = func(string) error {
		if draw(3) == 0 {
			return errTimeout
		}
		return nil
	}
	config := func(cfg *ControllerConfig) {
		cfg.Bound, cfg.Workers = 4+draw(60), 1+draw(8)
		cfg.Max = 2 * time.Second
	}
	var a *Allocator
	var stop func()
	for round := range 4 {
		a = small(t, 64)
		var c *Controller
		c, stop = k.start(a, config)
		for i := range 60 {
			name := fmt.Sprintf("n%04d", draw(60))
			k.mu.Lock()
			if _, ok := k.nodes[name]; ok {
				k.change(name, nil)
			} else {
				k.change(name, &Node{Name: name, UID: fmt.Sprint(round, i)})
			}
			k.mu.Unlock()
			c.changed(fmt.Sprintf("n%04d", draw(60))) // a heartbeat
			time.Sleep(time.Duration(draw(100)) * time.Millisecond)
		}
		if round < 3 {
			stop()
			time.Sleep(k.lag + time.Millisecond) // what is in flight lands; the view is complete when it starts
		}
	}
	mu.Lock()
	calm = true
	mu.Unlock()
	time.Sleep(time.Minute)
	synctest.Wait()
	stop()
	for name, n := range k.nodes {
		if len(n.Prefixes) != 1 || !slices.Equal(a.Prefixes(name), n.Prefixes) {
			t.Errorf("%s has %v, holds %v", name, n.Prefixes, a.Prefixes(name))
		}
	}
	if st := a.Stats(); st.Owners != len(k.nodes) {
		t.Errorf("%d owners, %d nodes", st.Owners, len(k.nodes))
	}
}
