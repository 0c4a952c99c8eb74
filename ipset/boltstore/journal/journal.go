package journal

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// Journal keeps an allocator of package cidrset or servicealloc, of type A, in the file of a [boltstore.Store]. Even after a crash the
// allocator never assigns the same prefix, address or port twice. [OpenSet], [OpenRange], [OpenPorts] and [OpenRegistry] return a
// Journal; it is usable until [Journal.Close] or the end of the store. All methods are safe for concurrent use.
//
// Only [Journal.Do] changes the allocator, and its results are in the file when it returns. Callers of one journal share transactions
// with each other, and with all other commits to the store. For a change the journal writes only that change, however large the
// allocator is; from time to time a snapshot replaces the changes so far.
type Journal[A any] struct {
	table *boltstore.Table
	name  string
	kind  kind[A]

	mu      sync.Mutex
	alloc   A
	queue   []*call[A]
	running bool
	told    []change     // what the allocator told of since the last commit
	live    *atomic.Bool // whether the allocator is listened to; that of one that was replaced is not
	failed  error
	closed  bool
	end     sync.Once     // Close or Drop
	idle    chan struct{} // closed by run when it ends; nil unless Close waits for that

	// Owned by the goroutine that runs, or by open.
	log journalLog
}

// call is one caller of Do. Callers take turns with the allocator, each on its own goroutine.
type call[A any] struct {
	turn     chan struct{} // closed when it is the caller's turn
	given    bool          // guarded by the journal's lock: it is, or is about to be
	declined bool          // guarded by the journal's lock: the caller does not want it any more
	alloc    A             // for the turn
	refused  error         // there will be none
	executed chan struct{} // closed when the turn is over
	done     chan struct{} // closed when what was changed is in the file, or will not be
	told     int           // how much of what the allocator told of was told by the end of the turn
	lost     error         // why the change is not in the file, or may not be
}

// fail returns an error about the journal.
func (j *Journal[A]) fail(op string, err error) error {
	if in := (*ipalloc.Error)(nil); errors.As(err, &in) && in.Field != "" { // an argument of the caller
		e := *in
		e.Package, e.Op, e.Name = "journal", op, j.name
		return &e
	}
	return &ipalloc.Error{Package: "journal", Op: op, Name: j.name, Err: err}
}

// Do calls f with the allocator and returns when everything that f changed is in the file. Use the result of f only then. Calls of one
// journal run one after the other. f must not wait for another Do, and must not keep the allocator. What f changed before it returned
// an error is kept, and is in the file when Do returns that error.
//
// After any other error the change was not made, and the allocator has the state of the file. Such errors are boltstore.ErrNoSpace,
// boltstore.ErrReadOnly, ipalloc.ErrClosed, and the error of ctx if ctx ended before f was called. If it matches
// ipalloc.ErrUnknownOutcome, the change may have been made or may still be made, because ctx ended while it was written or the disk
// failed. See also the function [Do].
func (j *Journal[A]) Do(ctx context.Context, f func(A) error) error {
	if err := ctx.Err(); err != nil {
		return j.fail("do", err)
	}
	c := &call[A]{turn: make(chan struct{}), executed: make(chan struct{}), done: make(chan struct{})}
	if err := j.enqueue(c); err != nil {
		return err
	}
	select {
	case <-c.turn:
	case <-ctx.Done():
		if !j.withdraw(c) {
			<-c.turn
			close(c.executed)
		}
		return j.fail("do", ctx.Err())
	}
	if c.refused != nil {
		return c.refused
	}
	err := c.execute(f)
	select {
	case <-c.done:
	case <-ctx.Done():
		select {
		case <-c.done:
		default:
			return j.fail("do", fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, ctx.Err()))
		}
	}
	if c.lost != nil {
		return c.lost
	}
	return err
}

// Close waits for the calls of Do that have begun and closes the journal, which can then be opened again. Later calls of Do
// fail with ipalloc.ErrClosed; View shows the last state. Closing a journal that is closed does nothing. Close deadlocks
// within Do.
func (j *Journal[A]) Close() {
	j.end.Do(func() {
		j.stop()
		j.table.Close()
	})
}

// Drop closes the journal, as Close does, and removes it and its content from the file.
//
// Errors: ipalloc.ErrClosed if the journal is closed; the error of ctx, or of [boltstore.Store.Commit]. After an error the journal is
// closed all the same. The function [Drop] can retry, and describes the file until then.
func (j *Journal[A]) Drop(ctx context.Context) error {
	err := ipalloc.ErrClosed
	j.end.Do(func() {
		j.stop()
		defer j.table.Close()
		err = drop(ctx, j.table)
	})
	if err != nil {
		return j.fail("drop", err)
	}
	return nil
}

// stop refuses further calls and waits for those that have begun.
func (j *Journal[A]) stop() {
	j.mu.Lock()
	j.closed, j.failed = true, ipalloc.ErrClosed
	idle := make(chan struct{})
	if j.running {
		j.idle = idle
	} else {
		close(idle)
	}
	j.mu.Unlock()
	<-idle
	j.retire()
}

// execute calls f in the caller's turn, which is over whatever f does.
func (c *call[A]) execute(f func(A) error) error {
	defer close(c.executed)
	return f(c.alloc)
}

// Do is [Journal.Do] for a function with a result:
//
//	p, err := journal.Do(ctx, nodes, (*cidrset.Set).AllocateNext)
//
// If the error matches ipalloc.ErrUnknownOutcome, the result is what f allocated, so the caller can release it in case the change was
// made.
func Do[A, R any](ctx context.Context, j *Journal[A], f func(A) (R, error)) (R, error) {
	var result R
	err := j.Do(ctx, func(a A) (err error) {
		result, err = f(a)
		return err
	})
	if err != nil && !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		var none R
		return none, err
	}
	return result, err
}

// View calls f with the allocator, to read it. It also shows changes whose Do has not returned yet and may still fail. Do not change
// the allocator in f, and do not keep it: such a change is written some time later.
func (j *Journal[A]) View(f func(A)) {
	j.mu.Lock()
	a := j.alloc
	j.mu.Unlock()
	f(a)
}

// enqueue adds a call and starts the goroutine that makes it, if none runs.
func (j *Journal[A]) enqueue(c *call[A]) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil {
		return j.fail("do", j.failed)
	}
	j.queue = append(j.queue, c)
	j.start()
	return nil
}

// start has a goroutine work while there is something to do. The lock is held.
func (j *Journal[A]) start() {
	if !j.running {
		j.running = true
		go j.run()
	}
}

// withdraw declines a turn that has not been given.
func (j *Journal[A]) withdraw(c *call[A]) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.declined = !c.given
	return c.declined
}

// give has a caller take its turn, unless it has declined.
func (j *Journal[A]) give(c *call[A], a A) {
	j.mu.Lock()
	c.given = !c.declined
	j.mu.Unlock()
	if c.given {
		c.alloc = a
		close(c.turn)
		<-c.executed
	}
}

// tell is what the allocator calls on a change.
func (j *Journal[A]) tell(c change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.told = append(j.told, c)
	j.start() // if it is a change within Do, that is what runs already
}

// run makes calls and commits what they changed, until there is nothing to do.
func (j *Journal[A]) run() {
	for {
		runtime.Gosched() // callers that were just answered may be about to come back
		j.mu.Lock()
		calls, a, from := j.queue, j.alloc, len(j.told)
		j.queue = nil
		if len(calls) == 0 && len(j.told) == 0 {
			j.running = false
			if j.idle != nil {
				close(j.idle)
				j.idle = nil
			}
			j.mu.Unlock()
			return
		}
		j.mu.Unlock()
		for _, c := range calls {
			j.give(c, a)
			j.mu.Lock()
			c.told = len(j.told)
			j.mu.Unlock()
		}
		told, err := j.commit(a)
		for _, c := range calls {
			c.lost = err
			if errors.Is(err, boltstore.ErrNoSpace) && len(calls) > 1 {
				c.lost = j.alone(told[from:c.told], err)
			}
			from = c.told
			close(c.done)
		}
	}
}

// alone repeats the changes of a call in a separate commit, if they are all releases, after a shared commit failed because there
// was no room. Members that are no longer held were allocated by another call of that commit.
func (j *Journal[A]) alone(changes []change, err error) error {
	j.mu.Lock()
	a, failed := j.alloc, j.failed
	j.mu.Unlock()
	if b := (batch{Changes: changes}); failed != nil || !b.releases() {
		return err
	}
	for _, c := range changes {
		_ = j.kind.replay(a, c)
	}
	_, err = j.commit(a)
	return err
}

// commit writes what the allocator told of, and returns that. If it fails it brings the allocator back to what the file has.
func (j *Journal[A]) commit(a A) (told []change, err error) {
	j.mu.Lock()
	told, j.told = j.told, nil
	j.mu.Unlock()
	b, some := j.batchOf(a, told)
	if !some {
		return told, nil
	}
	if err = j.write(a, b); err == nil {
		return told, nil
	}
	err = j.fail("do", err)
	fatal := err
	if !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		if fatal = j.load(context.Background()); fatal == nil {
			return told, err
		}
	}
	j.mu.Lock()
	if !j.closed {
		j.failed = fatal
	}
	for _, c := range j.queue {
		c.given, c.refused = true, fatal
		close(c.turn)
	}
	j.queue = nil
	j.mu.Unlock()
	return told, err
}
