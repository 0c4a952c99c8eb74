package sqlstore

import (
	"context"
	"errors"

	"github.com/ipalloc/ipalloc/ipset/internal/combine"
	"github.com/ipalloc/ipalloc/ipset/store"
)

type call = combine.Call

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

// Waiting commits share one transaction up to these bounds, so that a small commit does not wait for many large ones.
const (
	batchBytes   = 8 << 20
	batchCommits = 512
)

// Commit implements [store.Store]. Concurrent callers share a transaction; each commit is made wholly or not at all.
//
// If ctx ends before the transaction begins, Commit returns the error of ctx and leaves no trace. If ctx ends while the
// transaction is in flight, or the connection breaks before the answer to its COMMIT, the error matches
// ipalloc.ErrUnknownOutcome. Commit retries after a deadlock, after a serialisation failure and while the database is locked.
//
// It fails with [ipalloc.ErrLimit] if the commit is too large, or if the disk or a quota has no room for it. Nothing was changed
// then, and commits succeed again when there is room. It fails with [ipalloc.ErrReplaced] if the store was removed or replaced.
func (s *Store) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, s.failure(ctx, "commit", err)
	}
	if err := store.CheckOps("sqlstore", ops, limits); err != nil {
		return 0, err
	}
	c := combine.NewCall(ctx, "", ops)
	switch s.queue.Do(c) {
	case combine.Answered:
		return c.Rev, c.Err
	case combine.Untouched:
		return 0, s.failure(ctx, "commit", ctx.Err())
	}
	return 0, unknown(ctx, ctx.Err())
}

// batch commits one batch, and repeats it where that is allowed.
func (s *Store) batch() {
	if s.share > 0 {
		s.share--
		_ = combine.Sleep(context.Background(), s.d.pause(1))
	}
	for attempt := 1; ; attempt++ {
		batch, err := s.transaction()
		if !s.repeat(batch, attempt, err) {
			return
		}
		_ = combine.Sleep(context.Background(), s.d.pause(attempt))
		if s.queue.Waiting() == 0 { // its callers have left
			return
		}
	}
}

// take returns what waits, or as much of it as fits one transaction.
func (s *Store) take() []*call {
	most := batchCommits
	if s.alone > 0 {
		s.alone, most = s.alone-1, 1
	}
	n, size := 0, 0
	return s.queue.Take(func(c *call) bool {
		n, size = n+1, size+c.Bytes
		return n <= most && size <= batchBytes
	})
}

// transaction makes the commits of one batch and answers their callers. With an error it has answered none of them, and the batch
// is nil if none was taken.
func (s *Store) transaction() (batch []*call, err error) {
	cancel := func() {}
	defer func() { cancel() }()
	take := func() (ctx context.Context, _ []*call) {
		batch = s.take()
		ctx, cancel = combine.Context(batch)
		return ctx, batch
	}
	results, err := s.d.transact(s, s.high.Load(), take)
	if err != nil {
		return batch, err
	}
	for i, c := range batch {
		if n := results[i].conflict; n > 0 {
			c.Answer(0, store.Conflict("sqlstore", c.Ops[n-1].Key))
		} else {
			c.Answer(results[i].rev, s.seen(results[i].rev, 0))
		}
	}
	s.hub.wake()
	return nil, nil
}

// repeat decides what follows an error of a transaction. It puts the batch back and reports true if the transaction is to be
// repeated; otherwise it answers the callers.
func (s *Store) repeat(batch []*call, attempt int, err error) bool {
	if err == nil {
		return false
	}
	made := errors.As(err, new(*uncertain))
	st := stateOf(err)
	apart := st.full && len(batch) > 1
	if apart {
		s.alone = len(batch)
	}
	if !made && (apart || st.retry && (attempt < attempts || st.locked)) {
		s.queue.Return(batch)
		return true
	}
	if batch == nil {
		batch = s.take()
	}
	for _, c := range batch {
		if made {
			c.Answer(0, unknown(c.Ctx, err))
		} else {
			c.Answer(0, s.failure(c.Ctx, "commit", err))
		}
	}
	return false
}
