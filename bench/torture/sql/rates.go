package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/pgtest"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// rates compares what stores cost that wait for the same disk, in turns, so that both sides see the same machine.
func rates(ctx context.Context, c config, say func(string, ...any)) error {
	dir, err := os.MkdirTemp("", "torture-sql-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return errors.Join(c.callers(ctx, dir, say), c.pair(ctx, say))
}

const rounds = 9

// callers compares the commits a second of callers at once on bbolt and on SQLite.
func (c config) callers(ctx context.Context, dir string, say func(string, ...any)) error {
	bolt, err := boltstore.Open(ctx, filepath.Join(dir, "bolt.db"), boltstore.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = bolt.Close() }()
	db, lite, err := open(ctx, "sqlite", "file:"+filepath.Join(dir, "sqlite.db"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for _, callers := range []int{1, 8, 64} {
		var on [2][]float64
		for range rounds {
			for i, s := range []store.Store{bolt, lite} {
				rate, err := commits(ctx, s, callers, c.Duration/(6*rounds))
				if err != nil {
					return err
				}
				on[i] = append(on[i], rate)
			}
		}
		b, l := median(on[0]), median(on[1])
		say("%2d callers: bbolt %6.0f commits/s, SQLite %6.0f commits/s, %.2f of it", callers, b, l, l/b)
	}
	return nil
}

// commits returns how many commits of one record callers make a second.
func commits(ctx context.Context, s store.Store, callers int, d time.Duration) (float64, error) {
	var n atomic.Int64
	errs := make([]error, callers)
	var wg sync.WaitGroup
	begin := time.Now()
	for c := range callers {
		wg.Go(func() {
			for i := 0; errs[c] == nil && time.Since(begin) < d; i++ {
				op := store.Op{Kind: store.Put, Key: fmt.Sprintf("x%d-%d", c, i%64), Value: "some value of a block with some addresses in it", Expect: store.AnyRevision}
				_, errs[c] = s.Commit(ctx, []store.Op{op})
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(n.Load()) / time.Since(begin).Seconds(), errors.Join(errs...)
}

// pair compares an assignment and a release on PostgreSQL with two transactions of BEGIN, INSERT, COMMIT.
func (c config) pair(ctx context.Context, say func(string, ...any)) error {
	server, err := pgtest.Start(ctx, pgtest.Config{})
	if errors.Is(err, pgtest.ErrSkip) {
		say("%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	db, s, err := open(ctx, "pgx", server.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	e, err := ipset.New(s, ipset.Options{})
	if err != nil {
		return err
	}
	if err := e.AddPool(ctx, ipset.Pool{Name: "p", Prefix: pool, BlockBits: 26}); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE bare (id bigserial PRIMARY KEY, name text NOT NULL, address text NOT NULL)"); err != nil {
		return err
	}
	bare := func() error {
		for range 2 {
			if err := insert(ctx, db); err != nil {
				return err
			}
		}
		return nil
	}
	auto := func() error {
		got, err := e.AutoAssign(ctx, ipset.AssignArgs{Owner: ipset.HostOwner("host"), Num4: 1, Claim: ipset.Claim{Handle: "machine"}})
		if err != nil {
			return err
		}
		_, err = e.ReleaseIPs(ctx, ipset.Release{Address: got.V4[0].Address, Guard: ipset.Guard{Handle: "machine"}})
		return err
	}
	byHandle := func() error {
		if _, err := e.Assign(ctx, ipset.HostOwner("host"), "machine"); err != nil {
			return err
		}
		_, err := e.ReleaseByHandle(ctx, "machine")
		return err
	}
	var on [3][]float64
	for i := range 300 {
		for side, f := range []func() error{bare, auto, byHandle} {
			begin := time.Now()
			if err := f(); err != nil {
				return err
			}
			if i >= 20 {
				on[side] = append(on[side], time.Since(begin).Seconds()*1e3)
			}
		}
	}
	b, p, h := median(on[0]), median(on[1]), median(on[2])
	say("PostgreSQL: two of BEGIN, INSERT, COMMIT %.2f ms; AutoAssign and ReleaseIPs %.2f ms, %.2f of it; Assign and ReleaseByHandle, which list the handle, %.2f ms, %.2f of it",
		b, p, p/b, h, h/b)
	return nil
}

// insert is what a program does without a store.
func insert(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO bare (name, address) VALUES ($1, $2)", "machine", "10.0.0.1"); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}
