package occ

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Plan is one call's part of a transaction. It reads through the transaction, decides, and changes cells. It runs again after
// a conflict.
type Plan[T any] interface{ Plan(t T) error }

// Detacher is a plan that refers to memory of its caller, which may leave and change it before the plan runs.
type Detacher interface {
	// Detach copies that memory.
	Detach()
}

// Func is a function as a [Plan]. It may not refer to memory that its caller uses after an error.
type Func[T any] func(t T) error

// Plan implements [Plan].
func (f Func[T]) Plan(t T) error { return f(t) }

// Transaction is a pointer to a struct that embeds [Txn].
type Transaction interface {
	base() *Txn
	// Room is called when a plan has ended. [Txn] implements it.
	Room() error
	// Begin is called when a transaction begins, before the first plan. All calls fail with its error.
	Begin() error
}

// Config configures a [Runner]. Package, Store and Fence are required.
type Config struct {
	Package string // in errors
	Store   store.Store
	// Keep is the number of texts that are cached; 0 keeps the texts of one transaction.
	Keep int
	// Attempts is the number of commits that are tried, 16 by default.
	Attempts int
	// Wait sleeps before the retry that follows an attempt, counted from 1. By default it is [Backoff].
	Wait func(ctx context.Context, attempt int) error
	// Fence ranks the expectations of a commit of unknown outcome. The runner makes the first expectation of the highest
	// rank false; rank 0 means that it cannot be made false. A record that should not exist serves only if it is never
	// deleted; then the runner writes value.
	Fence func(op store.Op) (rank int, value string)
}

// Runner carries out plans on a store. Safe for concurrent use.
type Runner[T Transaction] struct {
	t        T
	txn      *Txn
	attempts int
	wait     func(ctx context.Context, attempt int) error
	rank     func(op store.Op) (rank int, value string)

	mu      sync.Mutex
	busy    bool       // set while a leader runs; it owns the transaction, lost and alone
	waiting []*call[T] // the next batch
	// doubtful is set while a commit may still be made after its caller was given ErrUnknownOutcome.
	doubtful atomic.Bool
	lost     *fence  // the commit of unknown outcome that has not been fenced yet
	alone    call[T] // of a caller that found the runner idle
	one      [1]*call[T]
}

// New returns a runner whose plans get t. All cached cells belong to t.
func New[T Transaction](t T, c Config) *Runner[T] {
	x := t.base()
	x.pkg, x.store, x.limits = c.Package, c.Store, c.Store.Limits()
	x.texts = NewCache(c.Keep, parseText, decodeText)
	x.guards, x.changed, x.undo = x.room.guards[:0], x.room.changed[:0], x.room.undo[:0]
	r := &Runner[T]{t: t, txn: x, attempts: c.Attempts, wait: c.Wait, rank: c.Fence}
	if r.attempts < 1 {
		r.attempts = 16
	}
	if r.wait == nil {
		r.wait = Backoff(Retry{})
	}
	return r
}

// call is one caller's plan on its way. The runner's mutex guards planned and left.
type call[T any] struct {
	plan    Plan[T]
	ctx     context.Context
	done    chan struct{} // closed when err is final; nil for a leader's own call
	err     error
	tries   int  // conflicts met
	planned bool // part of the commit that is being made
	left    bool // its caller has returned
	over    bool // done is closed
}

// Do carries out a plan: alone and at once if the runner is idle, else in the next commit. It returns the plan's error once
// the commit has verified the records that it rests upon; the context's error; [ErrGaveUp] after too many conflicts; and
// the store's errors. After [ipalloc.ErrUnknownOutcome] the plan may still be running.
func (r *Runner[T]) Do(ctx context.Context, p Plan[T]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	if !r.busy {
		r.busy = true
		r.mu.Unlock()
		return r.leadAlone(ctx, p)
	}
	if d, ok := p.(Detacher); ok {
		d.Detach()
	}
	c := &call[T]{plan: p, ctx: ctx, done: make(chan struct{})}
	r.waiting = append(r.waiting, c)
	r.mu.Unlock()
	select {
	case <-c.done:
		return c.result()
	case <-ctx.Done():
		return r.leave(c)
	}
}

// Waiting returns how many calls wait for the next commit, and whether one is under way.
func (r *Runner[T]) Waiting() (n int, busy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting), r.busy
}

// leadAlone carries out the plan of a caller that found the runner idle, in its own goroutine, and leaves the calls that
// have come in meanwhile to another. A panic reaches the caller and leaves the runner usable.
func (r *Runner[T]) leadAlone(ctx context.Context, p Plan[T]) error {
	returned := false
	defer func() {
		if !returned {
			r.abandon()
		}
		if batch := r.next(); batch != nil {
			go r.drain(batch)
		}
	}()
	r.alone = call[T]{plan: p, ctx: ctx}
	r.one[0] = &r.alone
	r.run(ctx, r.one[:])
	err := r.alone.err
	r.alone = call[T]{}
	returned = true
	return err
}

// leave gives up waiting. A call that is in no commit leaves no trace and is not carried out; the outcome of any other is
// unknown.
func (r *Runner[T]) leave(c *call[T]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-c.done:
		return c.result()
	default:
	}
	c.left = true
	if !c.planned {
		r.waiting = slices.DeleteFunc(r.waiting, func(w *call[T]) bool { return w == c })
		return c.ctx.Err()
	}
	r.doubtful.Store(true)
	return fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, c.ctx.Err())
}

// enter makes a call part of the commit that is being planned, and reports false if its caller has left.
func (r *Runner[T]) enter(c *call[T]) bool {
	if c.done == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.planned = !c.left
	return c.planned
}

// exit takes calls out of a commit that was not made.
func (r *Runner[T]) exit(calls []*call[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range calls {
		c.planned = false
	}
}

// leaderPanic is the value that the callers of a commit panic with if a plan, the store or a clock panicked.
type leaderPanic struct {
	pkg   string
	value any
	stack []byte
}

func (p *leaderPanic) Error() string {
	return fmt.Sprintf("%s: panic: %v\n\n%s", p.pkg, p.value, p.stack)
}

// result returns the call's error. A batch whose callers have all left was cancelled: each gets its own context's error.
func (c *call[T]) result() error {
	if p, ok := c.err.(*leaderPanic); ok {
		panic(p)
	}
	end := c.ctx.Err()
	switch {
	case end == nil || errors.Is(c.err, end) || !errors.Is(c.err, context.Canceled):
		return c.err
	case errors.Is(c.err, ipalloc.ErrUnknownOutcome):
		return fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, end)
	}
	return end
}

// drain serves batches until none waits. If serving one ends the goroutine, another takes over.
func (r *Runner[T]) drain(batch []*call[T]) {
	defer func() {
		if batch == nil {
			return
		}
		if next := r.next(); next != nil {
			go r.drain(next)
		}
	}()
	for batch != nil {
		r.serve(batch)
		batch = r.next()
	}
}

// next takes all calls that wait; if there are none it makes the runner idle and returns nil.
func (r *Runner[T]) next() []*call[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch := r.waiting
	r.waiting = nil
	if r.busy = len(batch) > 0; !r.busy {
		return nil
	}
	return batch
}

// serve carries out a batch for as long as any of its callers waits. A panic goes to the callers that have no answer.
func (r *Runner[T]) serve(batch []*call[T]) {
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
	returned := false
	defer func() {
		if returned {
			return
		}
		err := error(&leaderPanic{r.txn.pkg, recover(), debug.Stack()})
		r.abandon()
		for _, c := range batch {
			if !c.over {
				c.err = err
				c.finish()
			}
		}
	}()
	r.run(ctx, slices.Clone(batch))
	returned = true
}

// abandon forgets everything after a panic; a commit that was under way has an unknown outcome.
func (r *Runner[T]) abandon() {
	if r.txn.committing {
		r.lose()
	}
	r.txn.reset()
	r.alone = call[T]{}
}

// sharedTries is how many conflicts a batch meets before its calls go one by one: a record that never stops changing then
// holds up only the calls that rest on it.
const sharedTries = 3

// run plans and commits a batch, in one commit unless it does not fit, and again after every conflict. Each call has its
// answer when run returns. It may reorder batch.
func (r *Runner[T]) run(ctx context.Context, batch []*call[T]) {
	single, begun := false, false
	for len(batch) > 0 {
		if !begun {
			if err := r.settle(ctx); err != nil {
				r.fail(batch, err)
				return
			}
			r.txn.begin(ctx)
		}
		begun = false
		part := batch
		if single {
			part = batch[:1]
		}
		n, err := r.planAll(part)
		if err == nil {
			err = r.txn.commit()
		}
		switch {
		case errors.Is(err, ipalloc.ErrConflict):
			r.exit(batch[:n])
			tries := 0
			for _, c := range batch[:n] {
				c.tries++
				tries = max(tries, c.tries)
			}
			behind := single && len(batch) > 1 && tries >= sharedTries
			if err = r.again(ctx, tries, !behind, err); err == nil {
				begun = true
				if single = single || tries >= sharedTries; behind {
					batch = append(batch[1:], batch[0]) // the others need not wait for it
				}
				continue
			}
			if n > 1 && (errors.Is(err, ipalloc.ErrCorrupt) || errors.Is(err, ipalloc.ErrVersion)) {
				single = true
				continue
			}
			r.fail(batch[:n], err)
		case errors.Is(err, ipalloc.ErrLimit) && n > 1:
			r.txn.forget()
			r.exit(batch[:n])
			single = true // what does not fit together may fit alone
			continue
		case err != nil:
			if errors.Is(err, ipalloc.ErrUnknownOutcome) {
				r.lose()
			}
			r.txn.forget()
			r.fail(batch[:n], err)
		}
		for _, c := range batch[:n] {
			c.finish()
		}
		batch = batch[n:]
	}
}

// finish gives a call its answer.
func (c *call[T]) finish() {
	if c.done != nil && !c.over {
		c.over = true
		close(c.done)
	}
}

// fail ends calls with an error.
func (r *Runner[T]) fail(calls []*call[T], err error) {
	for _, c := range calls {
		c.err = err
		c.finish()
	}
}

// planAll plans calls until one needs a transaction of its own, and returns how many it has dealt with; calls whose callers
// have left are passed over. It returns a conflict that reading has found.
func (r *Runner[T]) planAll(batch []*call[T]) (int, error) {
	if err := r.t.Begin(); err != nil {
		return len(batch), err
	}
	for i, c := range batch {
		if r.txn.alone {
			return i, nil
		}
		if !r.enter(c) {
			c.err = c.ctx.Err()
			continue
		}
		c.err = r.plan(c.plan)
		switch {
		case errors.Is(c.err, ipalloc.ErrConflict):
			return i + 1, c.err
		case c.err == ErrFirst && r.txn.plans > 0:
			r.txn.unguard()
			r.exit(batch[i : i+1])
			return i, nil
		}
		r.txn.plans++
	}
	return len(batch), nil
}

// plan makes one plan.
func (r *Runner[T]) plan(p Plan[T]) error {
	t := r.txn
	t.savepoint()
	err := p.Plan(r.t)
	if err == nil {
		err = r.t.Room()
	}
	if err != nil {
		t.Rollback()
		if t.broken {
			t.unguard()
		}
	}
	return err
}
