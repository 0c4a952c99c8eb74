package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
)

// The sentinels of a [Controller], for errors.Is.
var (
	// ErrRejected is for a [Writer] to wrap: the write certainly has not happened and
	// will not.
	ErrRejected = errors.New("rejected")
	// ErrGone is for a [Writer] to wrap: there is no such node. A write that fails
	// with it has not happened.
	ErrGone = errors.New("no such node")
	// ErrRunning: a controller runs once.
	ErrRunning = errors.New("was running before")
	// ErrUnknownOutcome is reported for a node whose write may have happened. It
	// keeps its prefixes until that is known.
	ErrUnknownOutcome = errors.New("outcome unknown")
)

// Source is the view of the nodes that a [Controller] works from: a cache that
// follows an API server, for example. It may be behind, but never goes back.
type Source interface {
	// Start begins to follow the nodes until ctx ends, and returns once the view is
	// complete, or an error if that will not happen. From then on, and possibly
	// earlier, it calls changed with the name of every node that was added, changed
	// or deleted, after the view shows it. changed never blocks.
	Start(ctx context.Context, changed func(name string)) error
	// List returns all nodes of the view.
	List() []Node
	// Get returns a node of the view; ok is false if it has none of that name.
	Get(name string) (n Node, ok bool)
}

// Writer writes to and reads from what has the last word on the nodes. Both methods
// return soon after ctx ends and by a deadline of their own. They are called by
// many goroutines, by one at a time for any node.
type Writer interface {
	// Write records what n, which has no prefixes in the view, is given. Writing
	// again what was written is a success. An error that wraps [ErrRejected] or
	// [ErrGone] means that nothing was or will be recorded; after any other that is
	// unknown. Where it can, Write refuses a node that is not n any more but another
	// of that name, as UIDs tell.
	Write(ctx context.Context, n Node, as Assignment) error
	// Read returns the node as it is now, not as a cache has it. There being none is
	// an error that wraps [ErrGone].
	Read(ctx context.Context, name string) (Node, error)
}

// Clock is where a [Controller] has its time from.
type Clock interface {
	Now() time.Time
	// NewTimer returns a channel that receives once after d, and a function that
	// frees what the timer holds.
	NewTimer(d time.Duration) (c <-chan time.Time, stop func())
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) NewTimer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// ControllerConfig says what a [Controller] connects, and how. Zero fields but the
// first three mean the default.
type ControllerConfig struct {
	Engine Engine // that chooses and remembers; see [Allocator.Engine]
	Source Source
	Writer Writer

	Workers  int           // nodes that are worked on at a time; 30
	Bound    int           // nodes that are remembered to be worked on; 5,000
	Attempts int           // writes one after another before a node has to wait; 3
	Base     time.Duration // wait after the first failure, doubled by each further one; 100 ms
	Max      time.Duration // longest wait; 1 minute
	Jitter   rand.Source   // takes up to half off each wait; without one waits are exact
	Clock    Clock         // the system's

	// Report is told what a person should know of: a bad record of a node, a node
	// that can't be served, a write that failed or whose outcome is unknown. It is
	// called by several goroutines, without any lock held. Nil: nobody is told.
	Report func(node string, err error)
}

// Controller gives every node of a [Source] its prefixes and has them recorded by a
// [Writer]. Make one with [NewController].
//
// It works from the names of nodes that may need something, never from what an
// event said: a worker looks at the view, at what the engine remembers, and does
// what is missing. A node is never worked on twice at a time. No lock is held while
// source, writer, engine or Report run.
type Controller struct {
	ControllerConfig
	queue   *queue
	started atomic.Bool
	synced  atomic.Bool

	mu         sync.Mutex
	unsettled  map[string]struct{} // nodes that may have a record which the view does not show
	complaints map[string]string   // what was reported of a node's record
	stats      ControllerStats
	sweptTo    string // where the next sweep goes on
}

// ControllerStats are the counts of a [Controller].
type ControllerStats struct {
	Waiting   int // nodes to be worked on
	Running   int // nodes being worked on
	Delayed   int // nodes that wait for their next try
	Unsettled int // nodes that may have a record which the view does not show yet

	Assigned   uint64 // writes that succeeded
	Rejected   uint64 // writes that certainly failed
	Unknown    uint64 // writes whose outcome was unknown
	Reads      uint64 // live reads
	Retries    uint64 // nodes that had to wait and be tried again
	Overflows  uint64 // nodes that were not remembered because of Bound
	Sweeps     uint64 // looks at the whole view, one of them at the start
	WriterTime time.Duration
	OwnTime    time.Duration // spent on nodes outside of the writer
}

// NewController returns a controller that has not started. It fails with an
// [*Error] that matches [ErrBadOption].
func NewController(cfg ControllerConfig) (*Controller, error) {
	bad := func(text string) (*Controller, error) {
		return nil, opError("new controller", invalid("", text))
	}
	switch {
	case cfg.Engine == nil || cfg.Source == nil || cfg.Writer == nil:
		return bad("engine, source and writer are needed")
	case cfg.Workers < 0 || cfg.Bound < 0 || cfg.Attempts < 0 || cfg.Base < 0 || cfg.Max < 0:
		return bad("a negative number")
	}
	cfg.Workers = orDefault(cfg.Workers, 30)
	cfg.Bound = orDefault(cfg.Bound, 5000)
	cfg.Attempts = orDefault(cfg.Attempts, 3)
	cfg.Base = orDefault(cfg.Base, 100*time.Millisecond)
	cfg.Max = orDefault(cfg.Max, time.Minute)
	if cfg.Max < cfg.Base {
		return bad("the longest wait is shorter than the first")
	}
	if cfg.Clock == nil {
		cfg.Clock = systemClock{}
	}
	if cfg.Report == nil {
		cfg.Report = func(string, error) {}
	}
	c := &Controller{ControllerConfig: cfg, unsettled: map[string]struct{}{}, complaints: map[string]string{}}
	c.queue = newQueue(cfg)
	return c, nil
}

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// Run follows the source until ctx ends and returns the cause of that, or the error
// that the source could not start with. Nothing is allocated before the source is
// in sync and all its nodes have been loaded into the engine. When Run returns, all
// that it started has ended. What the engine holds then may be recorded or not, so
// the next controller is to start from the source's nodes with a new engine. A
// second call fails with [ErrRunning].
func (c *Controller) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return opError("run", &ipalloc.Error{Err: ErrRunning})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, c.queue.close)()
	if err := c.Source.Start(ctx, c.changed); err != nil {
		return opError("run", &ipalloc.Error{Err: fmt.Errorf("source: %w", err)})
	}
	c.load()
	c.synced.Store(true)
	var group sync.WaitGroup
	group.Add(1 + c.Workers)
	go func() {
		defer group.Done()
		c.pump(ctx)
	}()
	for range c.Workers {
		go func() {
			defer group.Done()
			c.work(ctx)
		}()
	}
	group.Wait()
	return context.Cause(ctx)
}

// load records what all nodes have, and reports what is wrong with that.
func (c *Controller) load() {
	of := map[string][]Problem{}
	var names []string
	for _, p := range c.Engine.Load(c.Source.List()) {
		if of[p.Node] == nil {
			names = append(names, p.Node)
		}
		of[p.Node] = append(of[p.Node], p)
	}
	for _, name := range names {
		c.complain(name, of[name])
	}
}

// Synced reports whether the nodes that there were at the start have been loaded,
// which is when a controller begins to allocate.
func (c *Controller) Synced() bool { return c.synced.Load() }

// Retry has every node that could not be served tried again now. Call it when the
// engine has got more to give: a pool was added, a reservation taken back. Space
// that nodes give back is noticed without it.
func (c *Controller) Retry() { c.queue.promote(c.Bound) }

// Stats returns the counts.
func (c *Controller) Stats() ControllerStats {
	c.mu.Lock()
	st := c.stats
	st.Unsettled = len(c.unsettled)
	c.mu.Unlock()
	c.queue.stats(&st)
	return st
}

func (c *Controller) count(f func(*ControllerStats)) {
	c.mu.Lock()
	f(&c.stats)
	c.mu.Unlock()
}

// changed is what the source calls.
func (c *Controller) changed(name string) { c.queue.add(name) }
