package boltstore

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/combine"
	"github.com/ipalloc/ipalloc/ipset/store"
)

type call = combine.Call

// batchBytes is how much of what waits goes into one transaction, so that a caller with little does not wait for many with
// much.
const batchBytes = 8 << 20

// Commit implements store.Store. Concurrent callers share one transaction of bbolt; each commit is made wholly or not at all.
//
// If ctx ends before the transaction begins, Commit returns the error of ctx, and the commit left no trace. If ctx ends while
// the transaction is in flight, the error matches ipalloc.ErrUnknownOutcome as well. [ErrNoSpace]: there was no room; nothing
// was changed, and commits succeed when there is room again. [ipalloc.ErrCorrupt]: a record that the commit reads is damaged;
// the commit left no trace. [ErrFailed]: the store must be opened again.
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
	c := combine.NewCall(ctx, table, ops)
	switch s.queue.Do(c) {
	case combine.Answered:
		return c.Rev, c.Err
	case combine.Untouched:
		return 0, failure("commit", s.path, ctx.Err())
	}
	return 0, unknown(s.path, ctx.Err())
}

// batch commits one batch.
func (s *Store) batch() {
	if err := s.transaction(); err != nil {
		s.fail(err)
	}
}

// fail makes no more commits.
func (s *Store) fail(err error) {
	s.mu.Lock()
	s.failed = err
	if !s.closed {
		s.queue.Stop(&ipalloc.Error{Package: "boltstore", Op: "commit", Text: s.path, Err: fmt.Errorf("%w: %w", ErrFailed, err)})
	}
	s.mu.Unlock()
	s.opts.Logger.Error("no more commits are made until the file is opened again", "path", s.path, "error", err)
}

// take returns what waits, or as much of it as fits one transaction.
func (s *Store) take() []*call {
	size := 0
	return s.queue.Take(func(c *call) bool {
		size += c.Bytes
		return size <= batchBytes
	})
}

// transaction commits one batch, or what waits if none is given, and answers its callers. It returns an error if the store can't
// go on.
func (s *Store) transaction(given ...*call) error {
	batch := given
	take := func() {
		if len(given) == 0 {
			batch = s.take()
		}
	}
	var revs []uint64
	var errs []error
	var b *batchWriter
	committing := false
	err := s.guard(func() error {
		if _, err := s.there(); err != nil {
			take()
			return err
		}
		tx, err := s.db.Begin(true)
		if err != nil {
			return err
		}
		take()
		if err := s.same(tx, 0); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if b, err = newBatchWriter(s, tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		revs, errs = make([]uint64, len(batch)), make([]error, len(batch))
		for i, r := range batch {
			if revs[i], errs[i] = b.commit(r.Table, r.Ops); errs[i] != nil && !ofOne(errs[i]) {
				return errors.Join(errs[i], tx.Rollback())
			}
		}
		if !b.wrote {
			return tx.Rollback()
		}
		committing = true
		if err := b.end(); err != nil {
			return err
		}
		return s.written(b.id)
	})
	switch p := (*panicError)(nil); {
	case errors.As(err, &p): // bbolt never releases the locks that it held
		s.mu.Lock()
		s.stuck = true
		s.mu.Unlock()
		if err = s.died(p); committing && !errors.Is(err, ipalloc.ErrReplaced) { // the meta page may be written
			answer(batch, nil, nil, unknown(s.path, err))
			return err
		}
	case err != nil && committing && !errors.Is(err, ipalloc.ErrReplaced):
		var fatal error
		fatal, err = s.undone(b.id, err)
		if fatal == nil && errors.Is(err, ErrNoSpace) && len(batch) > 1 {
			return s.apart(batch)
		}
		answer(batch, nil, nil, err)
		return fatal
	}
	if err != nil {
		answer(batch, nil, nil, failure("commit", s.path, err))
		return err
	}
	s.mu.Lock()
	if b.wrote {
		s.state, s.dirty, s.last = b.next, true, s.coming
		s.watches.add(b.events, s.opts.History)
	}
	s.mu.Unlock()
	answer(batch, revs, errs, nil)
	return nil
}

// apart commits each call of a batch in a transaction of its own, because there is no room for all of them in one.
func (s *Store) apart(batch []*call) error {
	for i, c := range batch {
		if err := s.transaction(c); err != nil {
			answer(batch[i+1:], nil, nil, failure("commit", s.path, err))
			return err
		}
	}
	return nil
}

// ofOne reports whether an error concerns one caller's commit, which changed nothing: a conflict, or a damaged record that it
// reads. The other commits of the transaction go on.
func ofOne(err error) bool {
	return errors.Is(err, ipalloc.ErrConflict) || errors.Is(err, ipalloc.ErrCorrupt)
}

// answer gives each caller its answer, or one error to all.
func answer(batch []*call, revs []uint64, errs []error, err error) {
	for i, r := range batch {
		if err != nil {
			r.Answer(0, err)
		} else {
			r.Answer(revs[i], errs[i])
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
