package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/sqlstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// databases are a primary, and the name that leads programs to it: a directory that is moved to another server, as an address is.
type databases struct {
	primary *servers.Postgres
	name    string
}

func (d *databases) dsn() string { return "host=" + d.name + " user=postgres dbname=postgres" }

// point moves the name to a server.
func (d *databases) point(to *servers.Postgres) error {
	next := d.name + ".next"
	if err := os.Symlink(to.Dir(), next); err != nil {
		return err
	}
	d.primary = to
	return os.Rename(next, d.name)
}

// pgDisk holds two servers.
const pgDisk = 400 << 20

func onPostgres(ctx context.Context) (*subject, error) {
	d := &databases{}
	return onDisk(pgDisk, func(dir string) (*subject, error) {
		config := servers.PostgresOptions{NoSync: true, Dir: dir, Settings: []string{"min_wal_size=32MB", "max_wal_size=32MB"}}
		server, err := servers.StartPostgres(ctx, config)
		if err != nil {
			return nil, err
		}
		d.name = filepath.Join(dir, "primary")
		if err := d.point(server); err != nil {
			return nil, errors.Join(err, server.Close())
		}
		const others = ` FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`
		return &subject{place: d.dsn(), processes: 3, close: func() error { return d.primary.Close() }, faults: []fault{
			{"server stopped at once", func(ctx context.Context, _ []*remote, _ time.Duration) error {
				d.primary.Stop()
				return d.primary.Start(ctx)
			}},
			d.query("sessions ended", "SELECT pg_terminate_backend(pid)"+others),
			d.query("statements cancelled", "SELECT pg_cancel_backend(pid)"+others),
			d.query("table locked", "BEGIN; LOCK TABLE ipalloc_records; SELECT pg_sleep(0.3); COMMIT"),
			{"idle transaction ended", d.idle},
			{"standby promoted", d.failOver},
		}}, nil
	}, func(ctx context.Context) error { return d.primary.Revive(ctx) })
}

// do runs statements on a server.
func do(ctx context.Context, dsn string, texts ...string) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for _, text := range texts {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

func (d *databases) query(name, text string) fault {
	return fault{name, func(ctx context.Context, _ []*remote, _ time.Duration) error { return do(ctx, d.dsn(), text) }}
}

// idle has a program commit in a transaction of its own and then wait for so long that the server ends its session. That commit
// is not made.
func (d *databases) idle(ctx context.Context, _ []*remote, hold time.Duration) error {
	db, err := sql.Open("pgx", d.dsn())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	s, err := sqlstore.Open(ctx, db, sqlstore.Options{})
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = %d", hold.Milliseconds()/2)); err != nil {
		return err
	}
	in, err := s.WithTx(ctx, tx)
	if err != nil {
		return err
	}
	if _, err := in.Commit(ctx, []store.Op{{Kind: store.Put, Key: "idle", Expect: store.AnyRevision}}); err != nil {
		return err
	}
	wait(ctx, hold)
	if err := tx.Commit(); err == nil {
		return errors.New("the session was not ended")
	}
	return nil
}

// failOver ends the primary and promotes a standby that has every acknowledged commit, because replication is synchronous.
func (d *databases) failOver(ctx context.Context, _ []*remote, _ time.Duration) error {
	old := d.primary
	standby, err := old.Standby(ctx)
	if err != nil {
		return err
	}
	err = do(ctx, old.DSN(), "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	if err == nil {
		err = d.synchronous(ctx)
	}
	if err != nil {
		return errors.Join(err, standby.Close())
	}
	old.Stop()
	if err := do(ctx, standby.DSN(), "SELECT pg_promote()"); err != nil {
		return errors.Join(err, standby.Close())
	}
	return errors.Join(d.point(standby), old.Close())
}

// synchronous returns when commits of the primary wait for its standby. The sender of the log may know that they are to wait before
// the checkpointer does, which tells the other processes, between two checkpoints. The first one that is asked for may be the one
// that it is at, so the second one follows.
func (d *databases) synchronous(ctx context.Context) error {
	db, err := sql.Open("pgx", d.primary.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for n := 0; n == 0 && err == nil; wait(ctx, 5*time.Millisecond) {
		err = db.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'").Scan(&n)
	}
	if err != nil {
		return err
	}
	return do(ctx, d.primary.DSN(), "CHECKPOINT", "CHECKPOINT")
}
