package boltstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A request is one caller's commit. Callers queue theirs; a goroutine that lives while there are any takes all that wait
// into one transaction of bbolt, so that they share its syncs. The first caller does so itself if its context cannot end.
// There is no timer: while one transaction is under way, the next one gathers.
type request struct {
	table string
	ops   []store.Op
	bytes int
	done  chan struct{}
	rev   uint64
	err   error
}

// newRequest returns a request for valid ops. A caller whose context can end may return while the request is in a transaction,
// and then change them: they are copied.
func newRequest(ctx context.Context, table string, ops []store.Op) *request {
	if ctx.Done() != nil {
		ops = slices.Clone(ops)
	}
	r := &request{table: table, ops: ops, done: make(chan struct{})}
	for i := range ops {
		r.bytes += len(ops[i].Key) + len(ops[i].Value)
	}
	return r
}

// finish answers the caller.
func (r *request) finish(rev uint64, err error) {
	r.rev, r.err = rev, err
	close(r.done)
}

// batchBytes is how much of what waits goes into one transaction, so that a caller with little does not wait for many with
// much.
const batchBytes = 8 << 20

// Commit implements store.Store. Concurrent callers share one transaction of bbolt; each commit is made wholly or not at all.
//
// If ctx ends before the transaction begins, the error is that of ctx and the commit left no trace. If ctx ends while the
// transaction is in flight, the error matches ipalloc.ErrUnknownOutcome as well. [ErrNoSpace]: there was no room, nothing was
// changed, and commits succeed when there is room again. ipalloc.ErrCorrupt: a record that the commit reads is damaged; the
// commit left no trace. [ErrFailed]: the store must be opened again.
func (s *Store) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	return s.commit(ctx, recordsBucket, ops)
}

// commit queues a commit to a table and waits for its answer.
func (s *Store) commit(ctx context.Context, table string, ops []store.Op) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, failure("commit", s.path, err)
	}
	if err := store.CheckOps("boltstore", ops, limits); err != nil {
		return 0, err
	}
	r := newRequest(ctx, table, ops)
	leads, err := s.enqueue(r)
	if err != nil {
		return 0, err
	}
	switch {
	case leads && ctx.Done() == nil: // the caller would only wait: spare it the switch to another goroutine
		s.lead()
	case leads:
		go s.run()
	}
	select {
	case <-r.done:
		return r.rev, r.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	if i := slices.Index(s.queue, r); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		s.mu.Unlock()
		return 0, failure("commit", s.path, ctx.Err())
	}
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.rev, r.err
	default:
		return 0, unknown(s.path, ctx.Err())
	}
}

// enqueue adds a request to the queue. leads is true if nothing commits the queue yet: the caller must see to that.
func (s *Store) enqueue(r *request) (leads bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return false, failure("commit", s.path, ipalloc.ErrClosed)
	case s.opts.ReadOnly:
		return false, failure("commit", s.path, ErrReadOnly)
	case s.failed != nil:
		return false, s.afterFailure(s.failed)
	}
	s.queue = append(s.queue, r)
	leads, s.running = !s.running, true
	return leads, nil
}

// run commits what is queued until nothing is.
func (s *Store) run() {
	for s.batch() {
	}
}

// lead commits one batch, and leaves what is queued then to a goroutine.
func (s *Store) lead() {
	if s.batch() {
		go s.run()
	}
}

// batch commits one batch and reports whether more is queued.
func (s *Store) batch() (more bool) {
	s.gather()
	err := s.transaction()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.fail(err)
	}
	if len(s.queue) > 0 {
		return true
	}
	s.running = false
	if s.idle != nil {
		close(s.idle)
	}
	return false
}

// gather lets callers that are about to queue do so, above all those that the last transaction has answered: it yields for
// as long as that makes the queue longer. A lone caller is delayed by one yield, a fraction of a microsecond.
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
	for n < len(s.queue) && (n == 0 || size+s.queue[n].bytes <= batchBytes) {
		size += s.queue[n].bytes
		n++
	}
	batch := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	return batch
}

// afterFailure returns the error of a commit after one that failed with cause.
func (s *Store) afterFailure(cause error) error {
	return &ipalloc.Error{Package: "boltstore", Op: "commit", Text: s.path, Err: fmt.Errorf("%w: %w", ErrFailed, cause)}
}

// fail ends commits. The lock is held.
func (s *Store) fail(err error) {
	s.failed = err
	for _, r := range s.queue {
		r.finish(0, s.afterFailure(err))
	}
	s.queue = nil
	s.opts.Logger.Error("no more commits are made until the file is opened again", "path", s.path, "error", err)
}

// transaction commits one batch and answers its callers. It returns an error if the store can't go on.
func (s *Store) transaction() error {
	var batch []*request
	var revs []uint64
	var errs []error
	var b *batchWriter
	committing := false
	err := s.guard(func() error {
		tx, err := s.db.Begin(true)
		if err != nil {
			return err
		}
		batch = s.take()
		b = newBatchWriter(s, tx)
		revs, errs = make([]uint64, len(batch)), make([]error, len(batch))
		for i, r := range batch {
			if revs[i], errs[i] = b.commit(r.table, r.ops); errs[i] != nil && !ofOne(errs[i]) {
				return errors.Join(errs[i], tx.Rollback())
			}
		}
		if !b.wrote {
			return tx.Rollback()
		}
		committing = true
		return b.end()
	})
	switch p := (*panicError)(nil); {
	case errors.As(err, &p): // bbolt never releases the locks that it held
		s.mu.Lock()
		s.stuck = true
		s.mu.Unlock()
		if err = p.damaged(s.path); committing { // the meta page may be written
			answer(batch, nil, nil, unknown(s.path, err))
			return err
		}
	case err != nil && committing:
		var fatal error
		fatal, err = s.undone(b.id, err)
		answer(batch, nil, nil, err)
		return fatal
	}
	if err != nil {
		answer(batch, nil, nil, failure("commit", s.path, err))
		return err
	}
	s.mu.Lock()
	if b.wrote {
		s.state, s.dirty = b.next, true
		s.watches.add(b.events, s.opts.History)
	}
	s.mu.Unlock()
	answer(batch, revs, errs, nil)
	return nil
}

// ofOne reports whether an error concerns one caller's commit, which changed nothing: a conflict, or a damaged record that it
// reads. The other commits of the transaction go on.
func ofOne(err error) bool {
	return errors.Is(err, ipalloc.ErrConflict) || errors.Is(err, ipalloc.ErrCorrupt)
}

// answer gives each caller its answer, or one error to all.
func answer(batch []*request, revs []uint64, errs []error, err error) {
	for i, r := range batch {
		if err != nil {
			r.finish(0, err)
		} else {
			r.finish(revs[i], errs[i])
		}
	}
}

// undone says what became of a transaction that bbolt failed to commit: fatal, if not nil, is why the store can't go on, and
// answer is for the callers.
func (s *Store) undone(id int, cause error) (fatal, answer error) {
	seen := 0
	err := s.guard(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			seen = tx.ID()
			return nil
		})
	})
	switch {
	case err != nil: // bbolt lost its map of the file
		cause = errors.Join(cause, err)
		return cause, unknown(s.path, cause)
	case seen >= id: // written, but not known to be on the disk
		return cause, unknown(s.path, cause)
	case noSpace(cause):
		s.opts.Logger.Warn("no space for a commit", "path", s.path, "error", cause)
		return nil, failure("commit", s.path, fmt.Errorf("%w: %w", ErrNoSpace, cause))
	}
	s.opts.Logger.Error("commit failed", "path", s.path, "error", cause)
	return nil, failure("commit", s.path, cause)
}
