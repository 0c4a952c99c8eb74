package controller

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// queue remembers which nodes are to be worked on, each once: waiting, first in first
// out; running, perhaps with a note that it changed meanwhile; or delayed after a
// failure.
//
// It remembers at most Bound nodes. A further one replaces the delayed node that is due
// last; if none is delayed, it is dropped. Either way a node was lost, and the
// controller sweeps the source's view for nodes that need work as soon as nothing is
// waiting. Of a lost node nothing is kept but the end of a delay that the server named,
// before which neither a change nor a sweep brings the node back. Sweeps go round the nodes by name, each beginning where the last one stopped,
// so Bound failing nodes do not starve the others. The pause between sweeps grows like
// that of a failing node while nothing succeeds.
//
// The clock and the jitter are the caller's code and never run under mu.
type queue struct {
	cfg  Config        // Bound, Base, Max, Clock and Jitter
	wake chan struct{} // tells the pump to look again

	mu         sync.Mutex
	ready      *sync.Cond // something is waiting, or the queue is closed
	items      map[string]*item
	waiting    []*item
	running    int
	delayed    []*item              // by due time, then name
	dates      map[string]time.Time // when the named delays of dropped nodes end
	freed      uint64               // number of times that space was given back
	closed     bool
	lost       bool // a node was dropped, or no sweep has run yet
	progress   bool // a node was finished since the last sweep
	idleSweeps int  // sweeps in a row without progress; written by the pump alone
	sweepAt    time.Time
	added      uint64 // times that a node began to wait
	retries    uint64
	dropped    uint64
}

type item struct {
	name     string
	running  bool
	again    bool   // changed while running
	full     bool   // delayed for want of space
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
	q := &queue{cfg: cfg, wake: make(chan struct{}, 1), items: map[string]*item{}, dates: map[string]time.Time{}, lost: true}
	q.ready = sync.NewCond(&q.mu)
	return q
}

// nudge makes the pump look again.
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
		q.enter(name, now)
	case it.running:
		it.again = true
	case !it.held:
		if i, delayed := slices.BinarySearchFunc(q.delayed, it, compareDue); delayed {
			q.delayed = slices.Delete(q.delayed, i, i+1)
			q.wait(it, now)
		}
	}
}

// offer queues a node that a sweep found, unless it is remembered already. It reports
// whether the sweep may go on.
func (q *queue) offer(name string) bool {
	now := q.cfg.Clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.closed && (q.items[name] != nil || q.enter(name, now))
}

// enter remembers a new node if there is room, or room can be made. A node that the
// server told to wait is left to a later sweep. It reports whether a sweep may go on.
func (q *queue) enter(name string, now time.Time) bool {
	if now.Before(q.dates[name]) {
		q.lost = true
		return true
	}
	delete(q.dates, name)
	if len(q.items) >= q.cfg.Bound {
		q.dropped++
		q.lost = true
		last := len(q.delayed) - 1
		if last < 0 {
			return false
		}
		if d := q.delayed[last]; d.held {
			q.dates[d.name] = d.due
		}
		delete(q.items, q.delayed[last].name)
		q.delayed = slices.Delete(q.delayed, last, last+1)
	}
	it := &item{name: name}
	q.items[name] = it
	q.wait(it, now)
	return true
}

func (q *queue) wait(it *item, now time.Time) {
	it.since = now
	q.added++
	q.waiting = append(q.waiting, it)
	q.ready.Signal()
}

// get returns the next node to work on, nil once the queue is closed.
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

// done takes a node back from a worker.
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
		q.progress = true
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
	}
	if q.lost || v.kind != finished {
		q.nudge()
	}
}

// backoff returns the pause after so many failures in a row.
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

// spaceFreed makes all nodes that wait for space run now, in the order in which they
// are due.
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

// next moves the delayed nodes that are due to waiting, and reports whether a sweep is
// due, which the caller then makes. Otherwise it returns how long there will be nothing
// to do; negative means until nudged. Only the pump calls it.
func (q *queue) next() (sweep bool, idle time.Duration) {
	now := q.cfg.Clock.Now()
	pause := q.backoff(q.idleSweeps + 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	due, _ := slices.BinarySearchFunc(q.delayed, now, func(it *item, now time.Time) int {
		return cmp.Or(it.due.Compare(now), -1) // behind those that are due now
	})
	for _, it := range q.delayed[:due] {
		q.wait(it, it.due)
	}
	q.delayed = slices.Delete(q.delayed, 0, due)
	idle = -1
	if len(q.delayed) > 0 {
		idle = q.delayed[0].due.Sub(now)
	}
	left := q.sweepAt.Sub(now)
	switch {
	case !q.lost || len(q.waiting) > 0 || q.closed:
		return false, idle
	case left > 0 && (idle < 0 || left < idle):
		return false, left
	case left > 0:
		return false, idle
	}
	q.idleSweeps++
	if q.progress {
		q.idleSweeps, pause = 1, q.cfg.Base
	}
	q.sweepAt = now.Add(pause)
	q.lost, q.progress = false, false
	maps.DeleteFunc(q.dates, func(_ string, due time.Time) bool { return !now.Before(due) })
	return true, 0
}

// close makes get return nil.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Broadcast()
	q.nudge()
}
