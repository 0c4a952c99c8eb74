package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// InTx runs f in a transaction of the database, with the store inside it, and commits. f makes an engine on in for this call alone:
//
//	err := s.InTx(ctx, func(tx *sql.Tx, in store.Store) error {
//		engine, err := ipset.New(in, ipset.Options{})
//		if err != nil {
//			return err
//		}
//		a, err := engine.Assign(ctx, owner, machine)
//		if err != nil {
//			return err
//		}
//		_, err = tx.ExecContext(ctx, "INSERT INTO machines ...", machine, a.Address.String())
//		return err
//	})
//
// After an error of f, or a panic in it, everything is rolled back. If the error is [store.Retryable], or tx failed temporarily
// (a serialisation failure, a deadlock, a locked file), InTx runs f again, up to 20 times. So f must not change anything outside
// the transaction. If f ignores an error of in, InTx rolls back as well and returns that error.
//
// Errors: the errors of f and of [Store.WithTx]; ipalloc.ErrUnknownOutcome if the connection was lost during COMMIT. In that
// case the addresses are assigned if and only if the rows of f exist.
func (s *Store) InTx(ctx context.Context, f func(tx *sql.Tx, in store.Store) error) error {
	if f == nil {
		return isNil("f")
	}
	for attempt := 1; ; attempt++ {
		began, err := s.inTxOnce(ctx, f)
		switch {
		case err == nil || began && errors.Is(err, context.DeadlineExceeded): // one of f's own
			return err
		case began && attempt == attempts:
			return err
		}
		failed := err
		if !began {
			failed = s.failure(ctx, "begin", err)
		}
		switch {
		case s.again(ctx, attempt, failed):
		case began:
			return err
		default:
			return s.failure(ctx, "begin", err) // of a context that has ended meanwhile
		}
	}
}

// inTxOnce runs f once. began is true if f was called; an error is that of the database if not.
func (s *Store) inTxOnce(ctx context.Context, f func(tx *sql.Tx, in store.Store) error) (began bool, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	in, err := s.begin(ctx, tx)
	if err != nil {
		return false, err
	}
	return true, s.endTx(ctx, tx, in, f(tx, in))
}

// endTx commits a transaction whose function has returned err, or returns why it must be rolled back.
func (s *Store) endTx(ctx context.Context, tx *sql.Tx, in *inTx, err error) error {
	if broken := in.broken(); broken != nil && !errors.Is(err, broken) {
		if err == nil {
			return broken
		}
		return fmt.Errorf("%w, after: %w", err, broken)
	}
	if err != nil {
		return err
	}
	switch err := tx.Commit(); {
	case err == nil:
		s.hub.wake()
		return nil
	case stateOf(err).traceless:
		return s.failure(ctx, "commit", err)
	default:
		return unknown(ctx, err)
	}
}

// broken returns the first error of the database in the transaction, or nil.
func (t *inTx) broken() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// failed returns the error of a call, and keeps it if the database failed.
func (t *inTx) failed(ctx context.Context, op string, err error) error {
	err = t.s.failure(ctx, op, err)
	if err != nil && t.err == nil && !errors.Is(err, ipalloc.ErrConflict) {
		t.err = err
	}
	return err
}
