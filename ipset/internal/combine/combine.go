// Package combine gathers the calls of concurrent callers into batches: callers that wait at the same time share one
// transaction of a database, one sync or one request. There is no timer: while a batch is in flight, the next one gathers.
//
// The stores below package ipset use it. A store makes a [Queue] with a function that serves one batch. The function takes the
// batch with [Queue.Take] when it is ready for it. It answers every call of the batch with [Call.Answer] or puts it back with
// [Queue.Return].
//
// A caller whose context ends leaves. [Queue.Do] then reports whether its call was part of a batch, because only such a call can
// have left a trace.
//
// Concurrency: all methods are safe for concurrent use. One batch is served at a time. A goroutine exists only while calls
// wait or are served.
package combine

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// Fate is the state of a call when [Queue.Do] returns.
type Fate uint8

const (
	// Answered means that Rev and Err of the call are set.
	Answered Fate = iota
	// Untouched means that the context ended while the call was in no batch. It will not be served.
	Untouched
	// Doubtful means that the context ended while the call was part of a batch.
	Doubtful
)

// Call is one caller's commit, a part of a batch. Rev and Err are the answer.
type Call struct {
	Ctx   context.Context
	Table string // of the records, in a store that has several
	Ops   []store.Op
	Bytes int // of keys and values
	Rev   uint64
	Err   error

	entered, left bool // guarded by the queue's mutex
	done          chan struct{}
}

// NewCall returns a call for valid ops. A caller whose context can end may leave while they are in a batch, and then change them: they
// are copied.
func NewCall(ctx context.Context, table string, ops []store.Op) *Call {
	c := &Call{Ctx: ctx, Table: table, Ops: ops}
	if ctx.Done() != nil {
		c.Ops = slices.Clone(ops)
	}
	for i := range ops {
		c.Bytes += len(ops[i].Key) + len(ops[i].Value)
	}
	return c
}

// Answer ends the call. It must be called once for each call that was taken and not put back.
func (c *Call) Answer(rev uint64, err error) {
	c.Rev, c.Err = rev, err
	close(c.done)
}

// Queue holds the calls that wait for the next batch. Use [New].
type Queue struct {
	serve func()
	lead  bool

	mu      sync.Mutex
	waiting []*Call
	busy    bool // a goroutine serves
	stopped error
	idle    chan struct{} // closed when busy ends; nil unless Wait waits for that
}

// New returns a queue. The function serve serves one batch. With lead, a caller that finds the queue idle and whose context
// cannot end serves the first batch in its own goroutine. This saves it a switch, but serve must not panic then.
func New(lead bool, serve func()) *Queue {
	return &Queue{serve: serve, lead: lead}
}

// Do queues a call and waits for its answer, or until its context ends.
func (q *Queue) Do(c *Call) Fate {
	c.done = make(chan struct{})
	q.mu.Lock()
	if c.Err = q.stopped; c.Err != nil {
		q.mu.Unlock()
		return Answered
	}
	q.waiting = append(q.waiting, c)
	first := !q.busy
	q.busy = true
	q.mu.Unlock()
	switch {
	case first && q.lead && c.Ctx.Done() == nil:
		if q.turn() {
			go q.run()
		}
	case first:
		go q.run()
	}
	select {
	case <-c.done:
		return Answered
	case <-c.Ctx.Done():
		return q.leave(c)
	}
}

// leave gives up waiting.
func (q *Queue) leave(c *Call) Fate {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-c.done:
		return Answered
	default:
	}
	c.left = true
	q.waiting = slices.DeleteFunc(q.waiting, func(w *Call) bool { return w == c })
	if c.entered {
		return Doubtful
	}
	return Untouched
}

func (q *Queue) run() {
	for q.turn() {
	}
}

// turn serves one batch and reports whether more calls wait.
func (q *Queue) turn() (more bool) {
	q.gather()
	q.serve()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		return true
	}
	q.busy = false
	if q.idle != nil {
		close(q.idle)
	}
	return false
}

// gather lets callers that are about to queue do so, above all those that the last batch has answered: it yields for as long as
// that makes the queue longer. A lone caller is delayed by one yield, a fraction of a microsecond.
func (q *Queue) gather() {
	for n := 0; ; {
		now := q.Waiting()
		if now <= n {
			return
		}
		n = now
		runtime.Gosched()
	}
}

// Waiting returns the number of calls that wait for the next batch.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Take moves calls from the front of the queue into a batch: the first call, and further calls for as long as fits returns true.
// The function fits must not call the queue.
func (q *Queue) Take(fits func(*Call) bool) []*Call {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.waiting) && (fits(q.waiting[n]) || n == 0) {
		q.waiting[n].entered = true
		n++
	}
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return batch
}

// Return puts calls of a batch that left no trace back to the front of the queue. Calls whose callers have left are dropped.
func (q *Queue) Return(batch []*Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch = slices.DeleteFunc(slices.Clone(batch), func(c *Call) bool { return c.left })
	for _, c := range batch {
		c.entered = false
	}
	q.waiting = slices.Insert(q.waiting, 0, batch...)
}

// Enter makes a call part of a request again after [Queue.Exit]. It returns false if its caller has left: the call must not be
// served then, and needs no answer.
func (q *Queue) Enter(c *Call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.entered = !c.left
	return c.entered
}

// Exit takes calls of a batch out of its request: if their contexts end now, they are Untouched.
func (q *Queue) Exit(calls ...*Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range calls {
		c.entered = false
	}
}

// Stop has the calls that wait, and every later one, end with err. The batch that is served goes on.
func (q *Queue) Stop(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = err
	for _, c := range q.waiting {
		c.Answer(0, err)
	}
	q.waiting = nil
}

// Wait returns when no batch is served. Call it once, after [Queue.Stop].
func (q *Queue) Wait() {
	q.mu.Lock()
	if !q.busy {
		q.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	q.idle = idle
	q.mu.Unlock()
	<-idle
}

// Context returns a context that ends when the contexts of all calls have ended, or at cancel.
func Context(calls []*Call) (ctx context.Context, cancel func()) {
	ctx, end := context.WithCancel(context.Background())
	left := new(atomic.Int64)
	left.Store(int64(len(calls)))
	stops := make([]func() bool, len(calls))
	for i, c := range calls {
		stops[i] = context.AfterFunc(c.Ctx, func() {
			if left.Add(-1) == 0 {
				end()
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		end()
	}
}

// Sleep waits until d has passed or ctx ends, whose error it returns.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
