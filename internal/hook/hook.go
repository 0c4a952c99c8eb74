// Package hook delivers the changes of an allocator to one receiver: in the order of
// the changes, outside the allocator's lock, each exactly once.
//
// A method that changes the allocator adds a change while it holds the allocator's
// lock, unlocks, and calls Deliver before it returns:
//
//	a.mu.Lock()
//	...
//	a.changes.Add(Change{...})
//	a.mu.Unlock()
//	a.changes.Deliver()
//
// A method that only confirms the effect of an earlier call also calls Deliver.
// Otherwise it would acknowledge a change that the receiver has not seen.
package hook

import "sync"

// Queue holds the changes that the receiver has not seen yet. A nil Queue has no
// receiver: its methods do nothing.
type Queue[C any] struct {
	receiver func(C)
	lock     sync.Locker // the allocator's; guards waiting
	waiting  []C         // in the order of the changes

	delivering sync.Mutex // held while the receiver runs; taken before lock
	spare      []C        // guarded by delivering: the array that waiting had before
}

// New returns an empty queue for the receiver f. Callers of Add hold the given lock.
func New[C any](lock sync.Locker, f func(C)) *Queue[C] {
	return &Queue[C]{receiver: f, lock: lock}
}

// Add appends a change. The caller holds the allocator's lock.
func (q *Queue[C]) Add(c C) {
	if q != nil {
		q.waiting = append(q.waiting, c)
	}
}

// Deliver returns when the receiver has seen every change that was added before the
// call. One goroutine at a time runs the receiver. It delivers only the changes that
// are waiting when it starts, so no caller is kept busy with later changes.
//
// If the receiver panics, that change is considered delivered. The other waiting
// changes are still delivered, and then the first panic continues in this caller.
//
// The caller does not hold the allocator's lock. A receiver that calls Deliver
// deadlocks.
func (q *Queue[C]) Deliver() {
	if q != nil { // apart from deliver, so that this test is inlined
		q.deliver()
	}
}

// TryDeliver is Deliver, except while the receiver runs: it then leaves the waiting
// changes to the next call. The receiver may call TryDeliver.
func (q *Queue[C]) TryDeliver() {
	if q != nil && q.delivering.TryLock() {
		defer q.delivering.Unlock()
		q.turn()
	}
}

func (q *Queue[C]) deliver() {
	q.delivering.Lock()
	defer q.delivering.Unlock()
	q.turn()
}

// turn delivers what is waiting. The caller has locked delivering.
func (q *Queue[C]) turn() {
	q.lock.Lock()
	batch := q.waiting
	q.waiting = q.spare
	q.lock.Unlock()
	q.spare = nil
	q.run(batch)
	clear(batch)
	q.spare = batch[:0]
}

// run delivers the batch. If the receiver panics or ends its goroutine, the deferred
// call delivers the rest.
func (q *Queue[C]) run(batch []C) {
	defer func() {
		if len(batch) != 0 {
			q.rest(batch)
		}
	}()
	for len(batch) != 0 {
		c := batch[0]
		batch = batch[1:]
		q.receiver(c)
	}
}

// rest is run after a panic: further ones are dropped, so that a receiver that always
// panics does not nest as deep as the batch is long.
func (q *Queue[C]) rest(batch []C) {
	defer func() {
		if len(batch) != 0 { // the receiver ended its goroutine
			q.rest(batch)
		}
	}()
	for len(batch) != 0 {
		c := batch[0]
		batch = batch[1:]
		q.quietly(c)
	}
}

func (q *Queue[C]) quietly(c C) {
	defer func() { _ = recover() }()
	q.receiver(c)
}
