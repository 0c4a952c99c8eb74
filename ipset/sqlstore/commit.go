package sqlstore

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// A request is one caller's commit. Callers queue theirs; a goroutine that lives while there are any takes all that wait into
// one transaction of the database. There is no timer: while one transaction is in flight, the next one gathers.
type request struct {
	ctx   context.Context
	ops   []store.Op
	bytes int
	left  bool // its caller has returned; the lock of the store guards it
	done  chan struct{}
	rev   uint64
	err   error
}

// result is what became of one commit of a transaction that was made.
type result struct {
	rev      uint64
	conflict int // the number of the op whose expectation failed, from 1
}

// uncertain is the error of a transaction that may have been made.
type uncertain struct{ error }

func (u *uncertain) Unwrap() error { return u.error }

// unsent is the error of a transaction for which there was no connection.
type unsent struct{ error }

func (u *unsent) Unwrap() error { return u.error }

// What waits goes into one transaction up to these bounds, so that a caller with little does not wait for many with much.
const (
	batchBytes   = 8 << 20
	batchCommits = 512
)

// newRequest returns a request for valid ops. It copies them, because a caller that gives up waiting may change them.
func newRequest(ctx context.Context, ops []store.Op) *request {
	r := &request{ctx: ctx, ops: slices.Clone(ops), done: make(chan struct{})}
	for i := range ops {
		r.bytes += len(ops[i].Key) + len(ops[i].Value)
	}
	return r
}

// Commit implements [store.Store]. Concurrent callers share a transaction; each commit is made wholly or not at all.
//
// If ctx ends before the transaction begins, the error is that of ctx and the commit left no trace. If ctx ends while the
// transaction is in flight, or the connection breaks before the answer to its COMMIT, the error matches
// ipalloc.ErrUnknownOutcome. Deadlocks, serialisation failures and a locked database are repeated. [ErrNoSpace]: there was no
// room, and nothing was changed. [ErrReplaced]: the store is not there.
func (s *Store) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, s.failure(ctx, "commit", err)
	}
	if err := store.CheckOps("sqlstore", ops, limits); err != nil {
		return 0, err
	}
	r := newRequest(ctx, ops)
	s.mu.Lock()
	s.queue = append(s.queue, r)
	if !s.busy {
		s.busy = true
		go s.run()
	}
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.rev, r.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, r); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		return 0, s.failure(ctx, "commit", ctx.Err())
	}
	select {
	case <-r.done:
		return r.rev, r.err
	default:
		r.left = true
		return 0, unknown(ctx, ctx.Err())
	}
}

// run commits what is queued until nothing is.
func (s *Store) run() {
	for attempt := 1; ; {
		s.gather()
		batch, err := s.transaction()
		if s.repeat(batch, attempt, err) {
			_ = sleep(context.Background(), pause(attempt))
			attempt++
		} else {
			attempt = 1
		}
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.busy = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// gather lets callers that are about to queue do so, above all those that the last transaction has answered: it yields for as
// long as that makes the queue longer. A lone caller is delayed by one yield, a fraction of a microsecond.
func (s *Store) gather() {
	for n := 0; ; {
		s.mu.Lock()
		now := len(s.queue)
		s.mu.Unlock()
		if now <= n {
			return
		}
		n = now
		runtime.Gosched()
	}
}

// take moves what waits, or as much of it as fits one transaction, out of the queue.
func (s *Store) take() []*request {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < min(len(s.queue), batchCommits) && (n == 0 || size+s.queue[n].bytes <= batchBytes) {
		size += s.queue[n].bytes
		n++
	}
	batch := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	return batch
}

// transaction makes the commits of one batch and answers their callers. With an error it has answered none of them, and the batch
// is nil if none was taken.
func (s *Store) transaction() (batch []*request, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var stops []func() bool
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	take := func() []*request {
		batch = s.take()
		left := new(atomic.Int64)
		left.Store(int64(len(batch)))
		for _, r := range batch {
			stops = append(stops, context.AfterFunc(r.ctx, func() {
				if left.Add(-1) == 0 {
					cancel() // nobody waits any more
				}
			}))
		}
		return batch
	}
	since := s.high.Load()
	results, err := s.d.transact(ctx, s, since, take)
	if err != nil {
		return batch, err
	}
	for i, r := range batch {
		if n := results[i].conflict; n > 0 {
			r.err = store.Conflict("sqlstore", r.ops[n-1].Key)
		} else {
			r.rev, r.err = results[i].rev, s.seen(results[i].rev, 0)
		}
		close(r.done)
	}
	s.hub.wake()
	return nil, nil
}

// repeat decides what follows an error of a transaction. It puts the batch back and reports true if the transaction is to be
// repeated; otherwise it answers the callers.
func (s *Store) repeat(batch []*request, attempt int, err error) bool {
	if err == nil {
		return false
	}
	made := errors.As(err, new(*uncertain))
	if !made && stateOf(err).retry && (attempt < attempts || s.d.patient(err)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		batch = slices.DeleteFunc(batch, func(r *request) bool { return r.left })
		s.queue = slices.Insert(s.queue, 0, batch...)
		return true
	}
	if batch == nil {
		batch = s.take()
	}
	for _, r := range batch {
		if r.err = s.failure(r.ctx, "commit", err); made {
			r.err = unknown(r.ctx, err)
		}
		close(r.done)
	}
	return false
}
