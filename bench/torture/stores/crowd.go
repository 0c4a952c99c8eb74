package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/sqlstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// crowd is a store as many processes have it. Each call is made by one of them, so that most are idle while others commit.
type crowd struct {
	*remote
	size int
}

func (c crowd) who() int { return rand.IntN(c.size + 1) }

func (c crowd) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	a, err := c.call(ctx, "Get", Question{Keys: keys, As: c.who()})
	return append(dst, a.Records...), err
}

func (c crowd) List(ctx context.Context, x store.Range) ([]store.Record, uint64, error) {
	a, err := c.call(ctx, "List", Question{Range: x, As: c.who()})
	return a.Records, a.Rev, err
}

func (c crowd) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	return c.commit(ctx, ops, c.who())
}

// transactions is a store that makes every third commit in a transaction of its caller.
type transactions struct {
	*sqlstore.Store
	db     *sql.DB
	driver string
}

func (s *transactions) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if rand.IntN(3) > 0 {
		return s.Store.Commit(ctx, ops)
	}
	var o sql.TxOptions
	if s.driver != "sqlite" {
		o.Isolation = []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}[rand.IntN(4)]
	}
	refused := func(op string, err error) error {
		if _, conflict := store.ConflictKey(err); conflict || errors.Is(err, ipalloc.ErrReplaced) {
			return err
		}
		return fail(op, err, true) // the transaction was not committed
	}
	tx, err := s.db.BeginTx(ctx, &o)
	if err != nil {
		return 0, refused("begin", err)
	}
	defer func() { _ = tx.Rollback() }()
	if rand.IntN(2) == 0 { // against the advice to call WithTx first: it costs the transaction, and no more
		var rev uint64
		if err := tx.QueryRowContext(ctx, "SELECT rev FROM ipalloc_meta").Scan(&rev); err != nil {
			return 0, refused("read", err)
		}
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	}
	in, err := s.WithTx(ctx, tx)
	if err != nil {
		return 0, refused("begin", err)
	}
	rev, err := in.Commit(ctx, ops)
	if err != nil {
		return 0, refused("commit", err)
	}
	if rand.IntN(8) == 0 {
		return 0, refused("commit", errors.Join(errors.New("rolled back"), tx.Rollback()))
	}
	if err := tx.Commit(); err != nil {
		return 0, fail("commit", fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, err), true)
	}
	return rev, nil
}

// sweepLimit is how long a sweep may take; it goes in steps, each a call of the store.
const sweepLimit = time.Minute

// sweep sweeps on an engine until stop is closed, as a second one does at the same time: what both remove, one finds gone.
func sweep(ctx context.Context, e *ipset.Engine, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		// A call is repeated within seconds, so an answer of a minute ago may go.
		limited, cancel := context.WithTimeout(ctx, sweepLimit) // in a store that breaks the contract there may be no end
		_, err := e.Operator().Sweep(limited, alloc.SweepArgs{IdleAfter: time.Millisecond, RequestsAfter: time.Minute})
		late := limited.Err()
		cancel()
		if late != nil {
			return fmt.Errorf("a sweep does not end: %w", late)
		}
		if err != nil && !store.Retryable(err) && !errors.Is(err, ipalloc.ErrLimit) && !errors.Is(err, ipalloc.ErrClosed) {
			return fmt.Errorf("sweep: %w", err)
		}
	}
}
