package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// Config configures a [Controller]. Allocator, Source and Writer are required; any other
// zero field selects its default.
type Config struct {
	Allocator *nodeipam.Allocator
	Source    Source
	Writer    Writer

	// Choose decides the prefixes of a node that has none; the default is Allocate of
	// Allocator. Set it if a cloud or another product chooses the prefixes. Before Choose
	// returns an assignment, it must claim the prefixes in Allocator, by Occupy or by
	// Allocate; otherwise the controller writes nothing and reports ErrInvalid. Occupy
	// refuses a prefix that another node holds, so two nodes never get one prefix, and it
	// does nothing if the node holds the same prefixes already. If every write is
	// refused, the controller releases the prefixes and calls Choose again. Prefixes that
	// must survive this, such as the range of a machine, are assigned by [Writer], which
	// then reports no refusal.
	//
	// Up to Workers goroutines call Choose, one at a time for each node; it returns soon
	// after ctx ends. After ErrNotFound the controller takes the node as deleted and
	// releases its prefixes. After an error with a method RetryAfter the node waits that
	// long, as after an error of [Writer]. Return such an error for a machine that has no
	// prefixes yet. After ErrFull or ErrCooling the node waits for free space, and after
	// any other error with growing pauses. Occupy returns ErrMismatch if the node holds
	// other prefixes. The controller then releases these if no write of them can still be
	// carried out, and the next call of Choose can claim the new ones.
	Choose func(ctx context.Context, n nodeipam.Node) (nodeipam.Assignment, error)

	Workers  int           // nodes worked on at a time; 30
	Attempts int           // writes in a row before a node has to wait; 3
	Base     time.Duration // pause after the first failure, doubled by each further one; 100 ms
	Max      time.Duration // longest pause, unless the server names a longer one; 1 minute

	// RequestLife is the longest time after Write has returned during which its request
	// may still be carried out, see [Writer]. The default is 2 minutes. A kube-apiserver
	// ends a request after one minute by default.
	RequestLife time.Duration

	// Jitter returns a number in [0, n) and must be safe for concurrent use, like
	// [math/rand/v2.Int64N]. It shortens each pause by up to half; without it pauses are
	// exact.
	Jitter func(n int64) int64
	Clock  Clock // the time source; nil is the system clock

	// Loaded runs after the nodes of the start have been loaded and before anything is
	// allocated. In it, delete the entries that were added only for their existing nodes.
	Loaded func()
	// Report receives the condition of a node when it begins, when it changes and, with a
	// nil error, when it ends; a retry alone reports nothing. The conditions are these.
	// The allocator objects to the record: the error is an error of Load or Observe, or
	// several joined. The allocator cannot serve the node: ErrFull, ErrCooling or
	// ErrNotFound of package ipalloc. The write was refused (ipalloc.ErrConflict), was
	// delayed by the server (ErrLimit), or has an unknown outcome (ErrUnknownOutcome).
	// Choose failed. Several goroutines call it, one at a time for each node, without any
	// lock held.
	Report func(node string, err error)
	// Worked, if set, is called after each processing of a node, with the times that the
	// node waited for a worker and that the work took. Several goroutines call it,
	// without any lock held.
	Worked func(waited, took time.Duration)
}

// Controller assigns every node of a [Source] its prefixes and records them with a
// [Writer]. Make a Controller with [New].
//
// All methods are safe for concurrent use. No lock is held while the caller's code runs.
// If the caller's code panics, [Controller.Run] ends all its goroutines and then panics
// with an error. That error has the stack in its text, and wraps the panic value if the
// value is an error.
type Controller struct {
	cfg      Config
	queue    *queue
	started  atomic.Bool
	synced   atomic.Bool
	panicked atomic.Pointer[error]

	mu         sync.Mutex
	unsettled  map[string]doubt     // nodes that may have a record which the view does not show
	aside      map[string]bool      // nodes that wait for an entry
	retried    uint64               // number of calls of Retry
	conditions map[string]condition // of nodes, as reported
	counts     [conditionKinds]int  // of them
	begun      map[string]time.Time // when the work on each running node began
	stats      Stats
}

// Stats are the counts of a [Controller]. The fields up to MissingFamily are current
// numbers of nodes; the others count events since the start.
type Stats struct {
	Waiting    int // to be worked on
	Running    int // being worked on
	Delayed    int // pausing until their next try
	Unsettled  int // may have a record that the view does not show yet
	Full       int // without prefixes because the allocator is full
	Unmatched  int // without prefixes because no entry matches
	Unwritten  int // whose last write was refused, delayed or of unknown outcome
	BadRecords int // with a record for which Load or Observe reports an error

	MissingFamily int // of the BadRecords, those that only lack a prefix of a family

	Added      uint64        // times that a node began to wait
	Assigned   uint64        // writes that succeeded
	Rejected   uint64        // writes that were refused or delayed
	Unknown    uint64        // writes of unknown outcome
	Reads      uint64        // live reads
	Retries    uint64        // times that a node had to be tried again
	WriterTime time.Duration // spent in the writer, over all workers
	OwnTime    time.Duration // spent on nodes outside the writer, over all workers
}

// New returns a controller that has not started. It fails with ErrInvalid and names the
// field if a required field is missing, a number is negative, or Max is less than Base.
func New(cfg Config) (*Controller, error) {
	for _, f := range []struct {
		name string
		bad  bool
	}{
		{"Allocator", cfg.Allocator == nil}, {"Source", cfg.Source == nil}, {"Writer", cfg.Writer == nil},
		{"Workers", cfg.Workers < 0}, {"Attempts", cfg.Attempts < 0},
		{"Base", cfg.Base < 0}, {"Max", cfg.Max < 0}, {"RequestLife", cfg.RequestLife < 0},
	} {
		if f.bad {
			return nil, failure("new", f.name, "missing or negative", ipalloc.ErrInvalid)
		}
	}
	cfg.Workers = cmp.Or(cfg.Workers, 30)
	cfg.Attempts = cmp.Or(cfg.Attempts, 3)
	cfg.Base = cmp.Or(cfg.Base, 100*time.Millisecond)
	cfg.Max = cmp.Or(cfg.Max, time.Minute)
	cfg.RequestLife = cmp.Or(cfg.RequestLife, 2*time.Minute)
	if cfg.Max < cfg.Base {
		return nil, failure("new", "Max", fmt.Sprintf("the longest pause is shorter than the first, %v", cfg.Base), ipalloc.ErrInvalid)
	}
	if cfg.Clock == nil {
		cfg.Clock = systemClock{}
	}
	if cfg.Report == nil {
		cfg.Report = func(string, error) {}
	}
	return &Controller{cfg: cfg, queue: newQueue(cfg), unsettled: map[string]doubt{},
		aside: map[string]bool{}, conditions: map[string]condition{}, begun: map[string]time.Time{}}, nil
}

func failure(op, field, reason string, err error) error {
	return &ipalloc.Error{Package: "controller", Op: op, Field: field, Reason: reason, Err: err}
}

// Run follows the source until ctx ends and returns the cause of ctx's end, or the
// source's error if it fails to start. Nothing is allocated before the source is in sync
// and all its nodes have been loaded into the allocator. When Run returns or panics, all
// its goroutines have ended. The allocator may then hold prefixes that were never
// recorded, so the next controller needs a new one. A second call fails with ErrClosed
// and changes nothing.
func (c *Controller) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return failure("run", "", "the controller has run before", ipalloc.ErrClosed)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, c.queue.close)()
	if err := c.cfg.Source.Start(ctx, c.queue.add); err != nil {
		return failure("run", "", "", fmt.Errorf("start the source: %w", err))
	}
	c.guard(cancel, c.load)
	if err := c.panicked.Load(); err != nil {
		panic(*err)
	}
	c.synced.Store(true)
	var group sync.WaitGroup
	group.Add(1 + c.cfg.Workers)
	guarded := func(f func(context.Context)) {
		defer group.Done()
		c.guard(cancel, func() { f(ctx) })
	}
	go guarded(c.pump)
	for range c.cfg.Workers {
		go guarded(c.work)
	}
	group.Wait()
	if err := c.panicked.Load(); err != nil {
		panic(*err)
	}
	return context.Cause(ctx)
}

// guard runs f. If the caller's code in f panics or ends its goroutine, guard keeps the
// reason for the caller of Run and cancels the run.
func (c *Controller) guard(cancel func(), f func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		err := errors.New("it ended its goroutine")
		switch value := recover().(type) {
		case nil: // after runtime.Goexit
		case error:
			err = value
		default:
			err = fmt.Errorf("%v", value)
		}
		err = fmt.Errorf("controller: panic in a callback: %w\n\n%s", err, debug.Stack())
		c.panicked.CompareAndSwap(nil, &err)
		cancel()
	}()
	f()
	returned = true
}

// load records the prefixes of all nodes, reports their problems, and queues the nodes
// without prefixes, by name.
func (c *Controller) load() {
	of := map[string][]*ipalloc.Error{}
	var names []string
	for _, p := range c.cfg.Allocator.Load(c.cfg.Source.List()) {
		if of[p.Owner] == nil {
			names = append(names, p.Owner)
		}
		of[p.Owner] = append(of[p.Owner], p)
	}
	for _, name := range names {
		c.complain(name, of[name])
	}
	if c.cfg.Loaded != nil {
		c.cfg.Loaded()
	}
	nodes := c.cfg.Source.List()
	slices.SortFunc(nodes, func(a, b nodeipam.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		if len(n.Prefixes) == 0 && !n.Terminating {
			c.queue.add(n.Name)
		}
	}
}

// Synced reports whether the nodes of the start have been loaded, which is when the
// controller begins to allocate.
func (c *Controller) Synced() bool { return c.synced.Load() }

// Retry immediately tries to serve every node that could not be served before. Call it
// when the allocator has more to give: after a pool or an entry was added, or a
// reservation removed. It is not needed after nodes release space, which the controller
// notices itself.
func (c *Controller) Retry() {
	var names map[string]bool
	c.locked(func() {
		c.retried++
		names, c.aside = c.aside, map[string]bool{}
	})
	c.queue.spaceFreed()
	for name := range names {
		c.queue.add(name)
	}
}

// Stats returns the counts.
func (c *Controller) Stats() (st Stats) {
	c.locked(func() {
		st = c.stats
		st.Unsettled = len(c.unsettled)
		st.MissingFamily = c.counts[missingFamily]
		st.BadRecords = c.counts[badRecord] + st.MissingFamily
		st.Full, st.Unmatched, st.Unwritten = c.counts[full], c.counts[unmatched], c.counts[unwritten]
	})
	q := c.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	st.Waiting, st.Running, st.Delayed, st.Added, st.Retries = len(q.waiting), q.running, len(q.delayed), q.added, q.retries
	return st
}

// Begun returns the start time, by the controller's clock, of each piece of work in
// progress, in no particular order. A time long past points to a writer that does not
// return.
func (c *Controller) Begun() (times []time.Time) {
	c.locked(func() { times = slices.Collect(maps.Values(c.begun)) })
	return times
}

// locked runs f, which must not be the caller's code, under the lock.
func (c *Controller) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}
