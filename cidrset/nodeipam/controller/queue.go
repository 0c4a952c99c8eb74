package controller

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// queue remembers the nodes to be worked on, each once. A node is waiting, first in first
// out; running, perhaps with a note that it changed meanwhile; or delayed after a
// failure. It has an entry of some 150 bytes for each node and forgets none, because the
// source's view holds every node anyway, in more memory.
//
// The queue is not the workqueue of client-go. A workqueue runs an item that is added
// during its delay, but a server may name a delay that a change must not shorten. It also
// cannot bring forward the nodes that wait for space. This module cannot require
// client-go, so tests would only see a second queue behind an interface.
//
// The clock and the jitter are the caller's code and never run under mu.
type queue struct {
	cfg  Config        // Base, Max, Clock and Jitter
	wake chan struct{} // tells the pump to look again

	mu      sync.Mutex
	ready   *sync.Cond // something is waiting, or the queue is closed
	items   map[string]*item
	waiting []*item
	running int
	delayed []*item // by due time, then name
	freed   uint64  // number of times that space was given back
	closed  bool
	added   uint64 // times that a node began to wait
	retries uint64
}

type item struct {
	name     string
	running  bool
	again    bool   // changed while running
	full     bool   // delayed because there is no space
	held     bool   // delayed by the server: a change does not end the delay
	freed    uint64 // queue.freed when it began to run
	failures int    // in a row; belongs to the worker while running
	due      time.Time
	since    time.Time // when it began to wait; belongs to the worker while running
}

func compareDue(a, b *item) int {
	return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.name, b.name))
}

func newQueue(cfg Config) *queue {
	q := &queue{cfg: cfg, wake: make(chan struct{}, 1), items: map[string]*item{}}
	q.ready = sync.NewCond(&q.mu)
	return q
}

// nudge makes the pump check the queue again.
func (q *queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// add queues a node that changed. A delayed node runs at once, unless the server named
// the delay.
func (q *queue) add(name string) {
	now := q.cfg.Clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[name]
	switch {
	case q.closed:
	case it == nil:
		it = &item{name: name}
		q.items[name] = it
		q.wait(it, now)
	case it.running:
		it.again = true
	case !it.held:
		if i, delayed := slices.BinarySearchFunc(q.delayed, it, compareDue); delayed {
			q.delayed = slices.Delete(q.delayed, i, i+1)
			q.wait(it, now)
		}
	}
}

func (q *queue) wait(it *item, now time.Time) {
	it.since = now
	q.added++
	q.waiting = append(q.waiting, it)
	q.ready.Signal()
}

// get returns the next node to work on, or nil once the queue is closed.
func (q *queue) get() *item {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) == 0 && !q.closed {
		q.ready.Wait()
	}
	if q.closed {
		return nil
	}
	it := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	it.running, it.freed = true, q.freed
	q.running++
	return it
}

// verdict is the result of working on a node.
type verdict struct {
	kind verdictKind
	wait time.Duration // with later: the delay that the server named, 0 if it named none
}

type verdictKind uint8

const (
	finished verdictKind = iota
	atOnce               // again: what the worker saw has changed
	later                // again after a pause
	whenFree             // again after a pause, or when space is given back
)

// done returns a node from its worker to the queue.
func (q *queue) done(it *item, v verdict) {
	now := q.cfg.Clock.Now()
	due := now
	if v.kind == later || v.kind == whenFree {
		due = now.Add(max(v.wait, q.backoff(it.failures+1)))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	if v.kind == finished {
		it.failures = 0
	} else {
		it.failures++
		q.retries++
	}
	repeat := it.again && v.wait == 0 || v.kind == atOnce || v.kind == whenFree && it.freed != q.freed
	it.running, it.again = false, false
	switch {
	case q.closed:
		delete(q.items, it.name)
	case repeat:
		q.wait(it, now)
	case v.kind == finished:
		delete(q.items, it.name)
	default:
		it.full, it.held, it.due = v.kind == whenFree, v.wait > 0, due
		i, _ := slices.BinarySearchFunc(q.delayed, it, compareDue)
		q.delayed = slices.Insert(q.delayed, i, it)
		q.nudge()
	}
}

// backoff returns the pause after the given number of failures in a row.
func (q *queue) backoff(failures int) time.Duration {
	d := q.cfg.Max
	if n := failures - 1; n < 63 && q.cfg.Base <= q.cfg.Max>>n {
		d = q.cfg.Base << n
	}
	if q.cfg.Jitter != nil {
		d -= time.Duration(min(max(q.cfg.Jitter(int64(d/2)+1), 0), int64(d/2)))
	}
	return d
}

// spaceFreed moves all nodes that wait for space to waiting, in the order of their due
// times.
func (q *queue) spaceFreed() {
	now := q.cfg.Clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.freed++
	q.delayed = slices.DeleteFunc(q.delayed, func(it *item) bool {
		if it.full {
			q.wait(it, now)
		}
		return it.full
	})
}

// next moves the delayed nodes that are due to waiting. It returns the time until the
// next node is due; negative means until nudged. Only the pump calls it.
func (q *queue) next() (idle time.Duration) {
	now := q.cfg.Clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	due, _ := slices.BinarySearchFunc(q.delayed, now, func(it *item, now time.Time) int {
		return cmp.Or(it.due.Compare(now), -1) // behind those that are due now
	})
	for _, it := range q.delayed[:due] {
		q.wait(it, it.due)
	}
	q.delayed = slices.Delete(q.delayed, 0, due)
	if len(q.delayed) == 0 {
		return -1
	}
	return q.delayed[0].due.Sub(now)
}

// close makes get return nil.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Broadcast()
	q.nudge()
}
