package nodeipam

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"sync"
	"time"
)

// queue remembers which nodes are to be worked on, each once: waiting, first in
// first out; running, perhaps with a note that it has changed meanwhile; or delayed
// after a failure.
//
// It remembers at most bound nodes in all. One more takes the place of the delayed
// node that is due last; if none is delayed, it is not remembered. Either way a
// node has been lost sight of, and the queue says so: the controller then sweeps
// the source's view for nodes that need work, as soon as nothing is waiting. Sweeps
// go round the nodes by name, each beginning where the last one had to stop, so
// that bound failing nodes do not starve the others. They are at least a wait
// apart, which grows like that of a failing node while nothing succeeds.
type queue struct {
	bound     int
	base, max time.Duration
	clock     Clock
	random    *rand.Rand    // guarded by mu; nil without jitter
	wake      chan struct{} // tells the pump that there may be something for it

	mu       sync.Mutex
	ready    *sync.Cond // something is waiting, or the queue is closed
	items    map[string]*item
	waiting  []*item // from head on
	head     int
	running  int
	delayed  delays
	closed   bool
	lost     bool // a node was lost sight of, or none was looked for yet
	progress bool // a node was done with since the last sweep
	barren   int  // sweeps in a row without progress
	sweepAt  time.Time
	retries  uint64
	dropped  uint64
}

type itemState uint8

const (
	stateWaiting itemState = iota
	stateRunning
	stateDelayed
)

type item struct {
	name     string
	state    itemState
	again    bool // changed while running
	full     bool // delayed for want of space
	failures int
	due      time.Time
	at       int // in the heap
}

// delays is a heap of delayed items by due time, then name.
type delays []*item

func (d delays) Len() int { return len(d) }
func (d delays) Less(i, j int) bool {
	return cmp.Or(d[i].due.Compare(d[j].due), cmp.Compare(d[i].name, d[j].name)) < 0
}
func (d delays) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].at, d[j].at = i, j
}
func (d *delays) Push(x any) {
	x.(*item).at = len(*d)
	*d = append(*d, x.(*item))
}
func (d *delays) Pop() any {
	old := *d
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	return x
}

func newQueue(cfg ControllerConfig) *queue {
	q := &queue{bound: cfg.Bound, base: cfg.Base, max: cfg.Max, clock: cfg.Clock,
		wake: make(chan struct{}, 1), items: map[string]*item{}, lost: true}
	q.ready = sync.NewCond(&q.mu)
	if cfg.Jitter != nil {
		q.random = rand.New(cfg.Jitter)
	}
	return q
}

// nudge has the pump look again.
func (q *queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// add has a node that has changed worked on, at once even if it was delayed.
func (q *queue) add(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[name]
	switch {
	case q.closed:
	case it == nil:
		q.enter(name)
	case it.state == stateRunning:
		it.again = true
	case it.state == stateDelayed:
		heap.Remove(&q.delayed, it.at)
		q.wait(it)
	}
}

// offer has a node worked on that a sweep came upon, unless it is remembered
// already. It reports whether the sweep may go on.
func (q *queue) offer(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	return q.items[name] != nil || q.enter(name)
}

// enter remembers a new node, if there is or can be made room.
func (q *queue) enter(name string) bool {
	if len(q.items) >= q.bound {
		q.dropped++
		q.lost = true
		if len(q.delayed) == 0 {
			return false
		}
		last := q.delayed[0]
		for _, it := range q.delayed[len(q.delayed)/2:] { // the leaves of the heap
			if !it.due.Before(last.due) {
				last = it
			}
		}
		heap.Remove(&q.delayed, last.at)
		delete(q.items, last.name)
	}
	it := &item{name: name}
	q.items[name] = it
	q.wait(it)
	return true
}

func (q *queue) wait(it *item) {
	it.state = stateWaiting
	q.waiting = append(q.waiting, it)
	q.ready.Signal()
}

// get returns the next node to work on, nil once the queue is closed.
func (q *queue) get() *item {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head == len(q.waiting) && !q.closed {
		q.ready.Wait()
	}
	if q.closed {
		return nil
	}
	it := q.waiting[q.head]
	q.waiting[q.head] = nil
	if q.head++; q.head == len(q.waiting) || q.head > q.bound {
		q.waiting = append(q.waiting[:0], q.waiting[q.head:]...)
		q.head = 0
	}
	it.state = stateRunning
	q.running++
	return it
}

// verdict is what became of a node that was worked on.
type verdict uint8

const (
	verdictDone  verdict = iota
	verdictRetry         // try again after a wait
	verdictFull          // the same, or when there is space
)

// done takes a node back from a worker.
func (q *queue) done(it *item, v verdict) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	if v == verdictDone {
		it.failures = 0
		q.progress = true
	} else {
		it.failures++
		q.retries++
	}
	switch {
	case q.closed:
		delete(q.items, it.name)
	case it.again:
		it.again = false
		q.wait(it)
	case v == verdictDone:
		delete(q.items, it.name)
	default:
		it.state, it.full = stateDelayed, v == verdictFull
		it.due = q.clock.Now().Add(q.backoff(it.failures))
		heap.Push(&q.delayed, it)
	}
	if q.lost || v != verdictDone {
		q.nudge()
	}
}

// backoff returns the wait after so many failures in a row.
func (q *queue) backoff(failures int) time.Duration {
	d := q.max
	if n := failures - 1; n < 63 && q.base <= q.max>>n {
		d = q.base << n
	}
	if q.random != nil {
		d -= time.Duration(q.random.Int64N(int64(d/2) + 1))
	}
	return d
}

// promote has up to n nodes that are delayed for want of space tried now, those
// that are due first.
func (q *queue) promote(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var full []*item
	for _, it := range q.delayed {
		if it.full {
			full = append(full, it)
		}
	}
	for ; n > 0 && len(full) > 0; n-- {
		first := 0
		for i, it := range full {
			if it.due.Before(full[first].due) {
				first = i
			}
		}
		it := full[first]
		full[first] = full[len(full)-1]
		full = full[:len(full)-1]
		heap.Remove(&q.delayed, it.at)
		q.wait(it)
	}
}

// next does what is due: it has delayed nodes wait no longer, and reports whether a
// sweep is due, which the caller then makes. Otherwise it returns how long there
// will be nothing to do; negative means until nudged.
func (q *queue) next() (sweep bool, idle time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	for len(q.delayed) > 0 && !q.delayed[0].due.After(now) {
		q.wait(heap.Pop(&q.delayed).(*item))
	}
	idle = -1
	if len(q.delayed) > 0 {
		idle = q.delayed[0].due.Sub(now)
	}
	if !q.lost || q.head < len(q.waiting) || q.closed {
		return false, idle
	}
	if left := q.sweepAt.Sub(now); left > 0 {
		if idle < 0 || left < idle {
			idle = left
		}
		return false, idle
	}
	q.barren++
	if q.progress {
		q.barren = 1
	}
	q.lost, q.progress = false, false
	q.sweepAt = now.Add(q.backoff(q.barren))
	return true, 0
}

// close sends the workers home.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Broadcast()
	q.nudge()
}

func (q *queue) stats(st *ControllerStats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	st.Waiting, st.Running, st.Delayed = len(q.waiting)-q.head, q.running, len(q.delayed)
	st.Retries, st.Overflows = q.retries, q.dropped
}
