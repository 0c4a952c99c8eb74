package sqlstore

import (
	"context"
	"database/sql"
	"iter"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// WithTx returns the store inside a transaction that the caller has begun, so that an assignment and other rows are committed
// together or not at all. [Store.InTx] does the same and repeats the transaction where that is allowed. Make an engine on it for
// this transaction, and drop both when it ends:
//
//	in, err := s.WithTx(ctx, tx)
//	engine, err := ipset.New(in, ipset.Options{})
//	a, err := engine.Assign(ctx, owner, machine)
//	_, err = tx.ExecContext(ctx, "INSERT INTO machines ...", machine, a.Address.String())
//	err = tx.Commit()
//
// Do not use a long-lived engine inside the transaction: it would cache records that may be rolled back, and return them to other
// callers. Engines on s, here and in other processes, notice the commit as they notice each other's.
//
// WithTx takes the lock of the store, in one round trip. Until the transaction ends, every other commit to the store waits, and
// reads show the state before it. Waiting for such a commit inside the transaction deadlocks until its context ends. In all
// transactions, take your own locks in the same order relative to WithTx. On SQLite begin the transaction with _txlock=immediate,
// or call WithTx before any other read. A transaction that reads first and writes later fails if another transaction wrote
// meanwhile. On PostgreSQL every isolation level will do; at repeatable read and above, call it first for the same reason.
//
// You may use savepoints and the nested transactions of a framework. After a rollback to a savepoint, an engine with stale cached
// records gets a conflict, reads again and continues.
//
// Inside the transaction no commit conflicts or has an unknown outcome. Your own COMMIT may have one: if the connection was lost
// during it, the address is assigned if and only if the machine's row exists. After any error except a refusal by the engine
// (full, not held, ...), roll back. Repeat the whole transaction if the error is [store.Retryable], or if tx itself failed
// temporarily, for example by a serialisation failure; [Store.InTx] recognises these errors of every driver. After the
// transaction has ended, each call fails with ipalloc.ErrClosed. Watch always fails.
//
// Errors: ipalloc.ErrReplaced if the transaction is on a database that does not hold the store; [store.Retryable] ones.
func (s *Store) WithTx(ctx context.Context, tx *sql.Tx) (store.Store, error) {
	in, err := s.begin(ctx, tx)
	if err != nil {
		return nil, err
	}
	return in, nil
}

// begin takes the lock of the store for a transaction.
func (s *Store) begin(ctx context.Context, tx *sql.Tx) (*inTx, error) {
	if tx == nil {
		return nil, isNil("tx")
	}
	err := s.usable()
	if err == nil {
		_, err = s.d.lock(ctx, s, tx, s.high.Load())
	}
	if err != nil {
		return nil, s.failure(ctx, "begin", err)
	}
	return &inTx{s: s, tx: tx}, nil
}

// inTx is a store in a transaction. Statements of one transaction run one at a time.
type inTx struct {
	s   *Store
	tx  *sql.Tx
	mu  sync.Mutex
	err error // the first one of the database
}

// Get implements [store.Store].
func (t *inTx) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	dst, _, err := t.s.get(ctx, t.tx, 0, dst, keys)
	return dst, t.failed(ctx, "get", err)
}

// List implements [store.Store].
func (t *inTx) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	recs, rev, err := t.s.list(ctx, t.tx, 0, r)
	return recs, rev, t.failed(ctx, "list", err)
}

// Commit implements [store.Store].
func (t *inTx) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, t.s.failure(ctx, "commit", err)
	}
	if err := store.CheckOps("sqlstore", ops, limits); err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	res, err := t.s.d.within(ctx, t.s, t.tx, ops)
	switch {
	case err != nil:
		return 0, t.failed(ctx, "commit", err)
	case res.conflict > 0:
		return 0, store.Conflict("sqlstore", ops[res.conflict-1].Key)
	}
	return res.rev, nil
}

// Watch implements [store.Store]: it fails, because a transaction shows no commits of others.
func (t *inTx) Watch(ctx context.Context, _ uint64, _ ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		yield(store.Event{}, &ipalloc.Error{Package: "sqlstore", Op: "watch", Reason: "not inside a transaction", Err: ipalloc.ErrInvalid})
	}
}

// Limits implements [store.Store].
func (t *inTx) Limits() store.Limits { return limits }
