package ipset

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Retry says how often and how fast a commit that met a conflict is made again.
type Retry struct {
	// Attempts is the number of commits tried, 16 by default.
	Attempts int
	// Base is the longest wait before the second retry (the first does not wait), doubled for each that follows up to
	// Max. 1 ms and 100 ms by default. The wait is drawn between half of it and all.
	Base, Max time.Duration
	// Sleep waits; by default with a timer. It returns the context's error if that ends first.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Options are what an engine can be given; the zero value is useful.
type Options struct {
	// Now is the clock, time.Now by default. It is read once per commit and must not call the engine.
	Now func() time.Time
	// Rand draws the waits between retries; by default the process's generator.
	Rand rand.Source
	// Hosts returns the labels of a host, and false for one that does not exist; without it all hosts exist
	// and have no labels. It is called without a lock held and must not block for long; what it has returned must not
	// change any more.
	Hosts func(name string) (labels map[string]string, ok bool)
	// Retry is about conflicts with other engines.
	Retry Retry
	// Cache is the number of records of each kind that are kept, 8,192 by default.
	Cache int
}

// Engine assigns addresses on a store. [New] makes one. Any number of engines, in any number of processes, may work on one
// store. Safe for concurrent use.
//
// Calls that change something are combined: while a commit is under way they wait and go into the next one together.
type Engine struct {
	store  store.Store
	limits store.Limits
	now    func() time.Time
	hosts  func(string) (map[string]string, bool)
	retry  Retry
	keep   int

	mu      sync.Mutex
	busy    bool    // somebody has the turn: cache, txn and random are theirs
	waiting []*call // who comes next

	cache  cache
	txn    txn
	random *rand.Rand
	plans  sync.Pool // of *assignPlan
	alone  call      // of a caller that found nobody at work
	one    [1]*call  // the batch that it is
}

// New returns an engine on a store. It reads nothing.
func New(db store.Store, o Options) (*Engine, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: no store", ErrBadArgument)
	}
	e := &Engine{store: db, limits: db.Limits(), now: o.Now, hosts: o.Hosts, retry: o.Retry, keep: o.Cache, cache: newCache()}
	if e.now == nil {
		e.now = time.Now
	}
	if e.hosts == nil {
		e.hosts = func(string) (map[string]string, bool) { return nil, true }
	}
	if e.retry.Attempts < 1 {
		e.retry.Attempts = 16
	}
	if e.retry.Base <= 0 {
		e.retry.Base = time.Millisecond
	}
	if e.retry.Max <= 0 {
		e.retry.Max = 100 * time.Millisecond
	}
	if e.retry.Sleep == nil {
		e.retry.Sleep = sleep
	}
	if e.keep <= 0 {
		e.keep = 8192
	}
	src := o.Rand
	if src == nil {
		src = rand.NewPCG(rand.Uint64(), rand.Uint64())
	}
	e.random = rand.New(src)
	e.txn = txn{e: e, seen: make(map[string]string), prior: make(map[string]string)}
	return e, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// plan is what a call wants done. It looks at what t reads, decides, and then changes what t has cached; it must change
// nothing before it can fail no more. It is called again after a conflict. An error is an answer, too: it is given
// to the caller once the commit has shown that what it rests on is true.
type plan interface {
	plan(t *txn) error
}

// detacher is a plan with a part that belongs to the caller, who may leave and change it before the plan is carried out.
type detacher interface {
	plan
	// detach copies that part.
	detach()
}

// call is one caller's plan on its way.
type call struct {
	plan  plan
	ctx   context.Context
	done  chan struct{} // closed when err is final; nil for the caller that has the turn
	err   error
	taken bool // it is in a batch
	over  bool // done is closed
}

// do has a plan carried out: alone and at once if nobody has the turn, else together with all that wait.
func (e *Engine) do(ctx context.Context, p plan) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	if !e.busy {
		e.busy = true
		e.mu.Unlock()
		e.alone = call{plan: p, ctx: ctx}
		e.one[0] = &e.alone
		e.run(ctx, e.one[:])
		err := e.alone.err
		e.alone = call{}
		if batch := e.next(); batch != nil {
			go e.drain(batch)
		}
		return err
	}
	if d, ok := p.(detacher); ok {
		d.detach()
	}
	c := &call{plan: p, ctx: ctx, done: make(chan struct{})}
	e.waiting = append(e.waiting, c)
	e.mu.Unlock()
	select {
	case <-c.done:
		return c.result()
	case <-ctx.Done():
		return e.leave(c)
	}
}

// leave gives up waiting: without trace if the call is not in a batch yet, else with its outcome unknown.
func (e *Engine) leave(c *call) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !c.taken {
		e.waiting = slices.DeleteFunc(e.waiting, func(w *call) bool { return w == c })
		return c.ctx.Err()
	}
	select {
	case <-c.done:
		return c.result()
	default:
		return fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, c.ctx.Err())
	}
}

// result returns the call's error. A batch that all have left was cancelled: the caller is told how its own context ended.
func (c *call) result() error {
	end := c.ctx.Err()
	switch {
	case end == nil || errors.Is(c.err, end) || !errors.Is(c.err, context.Canceled):
		return c.err
	case errors.Is(c.err, ipalloc.ErrUnknownOutcome):
		return fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, end)
	}
	return end
}

// drain has the turn for those that wait, until nobody does.
func (e *Engine) drain(batch []*call) {
	for ; batch != nil; batch = e.next() {
		e.serve(batch)
	}
}

// next takes all that wait, or gives up the turn and returns nil if nobody does.
func (e *Engine) next() []*call {
	e.mu.Lock()
	defer e.mu.Unlock()
	batch := e.waiting
	e.waiting = nil
	if e.busy = len(batch) > 0; !e.busy {
		return nil
	}
	for _, c := range batch {
		c.taken = true
	}
	return batch
}

// serve carries out a batch for as long as one of its callers still waits.
func (e *Engine) serve(batch []*call) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].ctx))
	defer cancel()
	var mu sync.Mutex
	left := len(batch)
	for _, c := range batch {
		stop := context.AfterFunc(c.ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				cancel()
			}
		})
		defer stop()
	}
	e.run(ctx, batch)
}

// run plans and commits a batch, in one commit unless it does not fit, and again after every conflict. Each call
// has its answer when it returns.
func (e *Engine) run(ctx context.Context, batch []*call) {
	defer func() {
		for _, c := range batch {
			c.finish()
		}
	}()
	t := &e.txn
	clear(t.prior)
	most := len(batch)
	for attempt := 1; len(batch) > 0; {
		e.cache.age(e.keep)
		t.begin(ctx)
		n, err := e.planAll(t, batch[:min(most, len(batch))])
		if err == nil {
			err = t.commit()
		}
		switch {
		case isConflict(err):
			if err = e.again(t, attempt, err); err != nil {
				e.fail(batch, err)
				return
			}
			attempt++
			continue
		case errors.Is(err, ipalloc.ErrLimit) && n > 1:
			t.forget()
			most = 1 // what does not fit together may fit alone
			continue
		case err != nil:
			t.forget()
			e.fail(batch[:n], err)
		}
		for _, c := range batch[:n] {
			c.finish()
		}
		batch, attempt = batch[n:], 1
	}
}

// finish gives a call its answer.
func (c *call) finish() {
	if c.done != nil && !c.over {
		c.over = true
		close(c.done)
	}
}

// fail gives the calls an error of the store.
func (e *Engine) fail(calls []*call, err error) {
	for _, c := range calls {
		c.err = err
	}
}

// planAll plans calls until one needs a transaction of its own, and returns how many it planned. It returns a conflict if
// one has come to light by reading.
func (e *Engine) planAll(t *txn, batch []*call) (int, error) {
	for i, c := range batch {
		guards := len(t.guards)
		t.before = i
		c.err = c.plan.plan(t)
		switch {
		case isConflict(c.err):
			return i + 1, c.err
		case errors.Is(c.err, errFirst) && i > 0:
			t.unguard(guards)
			return i, nil
		}
	}
	return len(batch), nil
}

// again prepares the next attempt after a conflict: what the transaction touched is read afresh, all at once, after a
// wait that grows.
func (e *Engine) again(t *txn, attempt int, conflict error) error {
	keys := t.forget()
	if attempt >= e.retry.Attempts {
		return fmt.Errorf("%w: %w", ErrContention, conflict)
	}
	if attempt > 1 {
		d := min(e.retry.Base<<min(attempt-2, 20), e.retry.Max)
		d = d/2 + time.Duration(e.random.Int64N(int64(d/2)+1))
		if err := e.retry.Sleep(t.ctx, d); err != nil {
			return err
		}
	}
	if key, ok := store.ConflictKey(conflict); ok && strings.HasPrefix(key, kindRequest) {
		recs, err := e.store.Get(t.ctx, nil, key)
		if err != nil {
			return err
		}
		t.prior[key] = recs[0].Value
	}
	return t.load(keys...)
}
