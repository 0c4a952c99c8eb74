package ipset

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/ipalloc/ipalloc"
)

// plan is one call's part of a transaction. It reads through t, decides, and then changes what t has cached; it must not
// modify cached state until it can no longer fail. It runs again after a conflict. An error is an answer, too: the caller
// gets it once the commit has verified what it rests on.
type plan interface {
	plan(t *txn) error
}

// detacher is a plan that refers to memory of its caller, who may leave and change it before the plan runs.
type detacher interface {
	plan
	// detach copies that memory.
	detach()
}

// call is one caller's plan on its way. The engine's mutex guards planned and left.
type call struct {
	plan    plan
	ctx     context.Context
	done    chan struct{} // closed when err is final; nil for a leader's own call
	err     error
	tries   int  // conflicts met
	planned bool // part of the commit that is being made
	left    bool // its caller has returned
	over    bool // done is closed
}

// do carries out a plan: alone and at once if the engine is idle, else in the next batch.
func (e *Engine) do(ctx context.Context, p plan) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	if !e.busy {
		e.busy = true
		e.mu.Unlock()
		return e.leadAlone(ctx, p)
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

// leadAlone carries out the plan of a caller that found the engine idle, in its own goroutine, and leaves what has come in
// meanwhile to another. A panic of the clock, the random source, the wait or the store reaches the caller and leaves the
// engine usable.
func (e *Engine) leadAlone(ctx context.Context, p plan) error {
	returned := false
	defer func() {
		if !returned {
			e.abandon()
		}
		if batch := e.next(); batch != nil {
			go e.drain(batch)
		}
	}()
	e.alone = call{plan: p, ctx: ctx}
	e.one[0] = &e.alone
	e.run(ctx, e.one[:])
	err := e.alone.err
	e.alone = call{}
	returned = true
	return err
}

// leave gives up waiting. A call that is in no commit leaves no trace and is not carried out; the outcome of any other is
// unknown.
func (e *Engine) leave(c *call) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-c.done:
		return c.result()
	default:
	}
	c.left = true
	if !c.planned {
		e.waiting = slices.DeleteFunc(e.waiting, func(w *call) bool { return w == c })
		return c.ctx.Err()
	}
	e.doubtful.Store(true)
	return fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, c.ctx.Err())
}

// enter makes a call part of the commit that is being planned, and reports false if its caller has left.
func (e *Engine) enter(c *call) bool {
	if c.done == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c.planned = !c.left
	return c.planned
}

// exit takes calls out of a commit that was not made.
func (e *Engine) exit(calls []*call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range calls {
		c.planned = false
	}
}

// leaderPanic is what the callers of a batch panic with if the clock, the store or another part that the engine was given
// panicked while the batch was served.
type leaderPanic struct {
	value any
	stack []byte
}

func (p *leaderPanic) Error() string { return fmt.Sprintf("ipset: panic: %v\n\n%s", p.value, p.stack) }

// result returns the call's error. A batch whose callers have all left was cancelled: each gets its own context's error.
func (c *call) result() error {
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
func (e *Engine) drain(batch []*call) {
	defer func() {
		if batch == nil {
			return
		}
		if next := e.next(); next != nil {
			go e.drain(next)
		}
	}()
	for batch != nil {
		e.serve(batch)
		batch = e.next()
	}
}

// next takes all calls that wait; if there are none it makes the engine idle and returns nil.
func (e *Engine) next() []*call {
	e.mu.Lock()
	defer e.mu.Unlock()
	batch := e.waiting
	e.waiting = nil
	if e.busy = len(batch) > 0; !e.busy {
		return nil
	}
	return batch
}

// serve carries out a batch for as long as one of its callers still waits. A panic goes to the callers that have no answer.
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
	returned := false
	defer func() {
		if returned {
			return
		}
		err := error(&leaderPanic{recover(), debug.Stack()})
		e.abandon()
		for _, c := range batch {
			if !c.over {
				c.err = err
				c.finish()
			}
		}
	}()
	e.run(ctx, slices.Clone(batch))
	returned = true
}

// abandon forgets everything after a panic; a commit that was under way is one of unknown outcome.
func (e *Engine) abandon() {
	if e.txn.committing {
		e.lose(e.txn.text.ops)
	}
	e.cache, e.txn, e.alone = newCache(), newTxn(e), call{}
}

// sharedTries is how many conflicts a batch meets before its calls go one by one: a record that never stops changing then
// holds up only the calls that rest on it.
const sharedTries = 3

// run plans and commits a batch, in one commit unless it does not fit, and again after every conflict. Each call has its
// answer when run returns. It may reorder batch.
func (e *Engine) run(ctx context.Context, batch []*call) {
	t := &e.txn
	clear(t.prior)
	single := false
	for len(batch) > 0 {
		if err := e.settle(ctx); err != nil {
			e.fail(batch, err)
			return
		}
		e.cache.age(e.keep)
		t.begin(ctx)
		part := batch
		if single {
			part = batch[:1]
		}
		n, err := e.planAll(t, part)
		if err == nil {
			err = t.commit()
		}
		switch {
		case isConflict(err):
			e.exit(batch[:n])
			tries := 0
			for _, c := range batch[:n] {
				c.tries++
				tries = max(tries, c.tries)
			}
			behind := single && len(batch) > 1 && tries >= sharedTries
			if err = e.again(t, tries, !behind, err); err == nil {
				if single = single || tries >= sharedTries; behind {
					batch = append(batch[1:], batch[0]) // the others need not wait for it
				}
				continue
			}
			if n > 1 && errors.Is(err, ipalloc.ErrCorrupt) {
				single = true
				continue
			}
			e.fail(batch[:n], err)
		case errors.Is(err, ipalloc.ErrLimit) && n > 1:
			t.forget()
			e.exit(batch[:n])
			single = true // what does not fit together may fit alone
			continue
		case err != nil:
			if errors.Is(err, ipalloc.ErrUnknownOutcome) {
				e.lose(t.text.ops)
			}
			t.forget()
			e.fail(batch[:n], err)
		}
		for _, c := range batch[:n] {
			c.finish()
		}
		batch = batch[n:]
	}
}

// finish gives a call its answer.
func (c *call) finish() {
	if c.done != nil && !c.over {
		c.over = true
		close(c.done)
	}
}

// fail ends calls with an error.
func (e *Engine) fail(calls []*call, err error) {
	for _, c := range calls {
		c.err = err
		c.finish()
	}
}

// planAll plans calls until one needs a transaction of its own, and returns how many it has dealt with; calls whose callers
// have left are passed over. It returns a conflict that reading has found.
func (e *Engine) planAll(t *txn, batch []*call) (int, error) {
	t.before = 0
	for i, c := range batch {
		if !e.enter(c) {
			c.err = c.ctx.Err()
			continue
		}
		guards := len(t.guards)
		c.err = c.plan.plan(t)
		switch {
		case isConflict(c.err):
			return i + 1, c.err
		case errors.Is(c.err, errFirst) && t.before > 0:
			t.unguard(guards)
			e.exit(batch[i : i+1])
			return i, nil
		}
		t.before++
	}
	return len(batch), nil
}
