package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var host = alloc.HostOwner("control")

// assign assigns one address to a handle.
func assign(t *testing.T, e *ipset.Engine, handle string) string {
	t.Helper()
	a, err := e.Assign(t.Context(), host, handle)
	if err != nil {
		t.Fatal(err)
	}
	return a.Address.String()
}

// sound verifies that each handle holds the address that it was told, and that an engine finds nothing wrong.
func sound(t *testing.T, s *Store, held map[string]string) {
	t.Helper()
	e := newEngine(t, s)
	for handle, address := range held {
		got, err := e.IPsByHandle(t.Context(), handle)
		if err != nil || len(got) != 1 || got[0].Address.String() != address {
			t.Errorf("%s was told %s and holds %v, %v", handle, address, got, err)
		}
	}
	if report, err := e.Operator().Check(t.Context(), nil); err != nil || len(report.Problems) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// copyTables copies the tables of a store to others.
func copyTables(t *testing.T, db *sql.DB, from, to string) {
	t.Helper()
	for _, table := range []string{"records", "changes", "meta"} {
		run(t, db, fmt.Sprintf("DELETE FROM %s%s", to, table), fmt.Sprintf("INSERT INTO %s%s SELECT * FROM %s%s", to, table, from, table))
	}
}

// A database that is set back under a running process, to which another one commits as often as commits were lost: the process
// that saw the lost ones gets no other answer than ipalloc.ErrReplaced, also when the history has passed them.
func TestSetBack(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		db := reopen()
		a, ea := machines(t, db)
		assign(t, ea, "one")
		openIn(t, db, Options{Prefix: "old_"})
		copyTables(t, db, "ipalloc_", "old_")
		if _, err := ea.ReleaseByHandle(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		copyTables(t, db, "old_", "ipalloc_")
		b := openIn(t, reopen(), Options{History: 1})
		held := map[string]string{"b": assign(t, newEngine(t, b), "b")}
		if got, err := ea.Assign(t.Context(), host, "a"); !errors.Is(err, ipalloc.ErrReplaced) {
			t.Errorf("assigned %v, %v", got, err)
		}
		fails(t, a, ipalloc.ErrReplaced)
		tx := begin(t, db)
		if _, err := a.WithTx(t.Context(), tx); !errors.Is(err, ipalloc.ErrReplaced) {
			t.Errorf("a transaction: %v", err)
		}
		_ = tx.Rollback()
		for range 2 * compactEvery {
			put(t, b, "x", "")
		}
		fails(t, a, ipalloc.ErrReplaced)
		sound(t, b, held)
	})
}

// begin begins a transaction that ends with the test.
func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// An idle process whose last revision is older than the history goes on.
func TestIdleLongerThanHistory(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		s := openIn(t, reopen(), Options{})
		put(t, s, "a", "1")
		other := openIn(t, reopen(), Options{History: 1})
		for range 2 * compactEvery {
			put(t, other, "b", "")
		}
		put(t, s, "c", "")
		if rec := get(t, s, "a"); rec.Value != "1" {
			t.Errorf("%+v", rec)
		}
	})
}

// A store whose records were removed is not taken for one without records, by a process that had it open nor by a new one.
func TestEmptied(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		db := reopen()
		s := openIn(t, db, Options{})
		put(t, s, "a", "")
		run(t, db, "DELETE FROM ipalloc_records")
		for _, err := range s.Watch(t.Context(), 0, "") {
			if !errors.Is(err, ipalloc.ErrReplaced) || !strings.Contains(err.Error(), "removed") {
				t.Errorf("a watch: %v", err)
			}
		}
		fails(t, s, ipalloc.ErrReplaced)
		if err := firstRead(t, db); !errors.Is(err, ipalloc.ErrReplaced) {
			t.Errorf("opened anew: %v", err)
		}
	})
}

func firstRead(t *testing.T, db *sql.DB) error {
	s, err := Open(t.Context(), db, Options{})
	if err == nil {
		_, _, err = s.List(t.Context(), store.Range{})
	}
	return err
}

// The record that marks a table is in no answer, and nobody's.
func TestMarkIsHidden(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		s := openIn(t, reopen(), Options{})
		put(t, s, "a", "")
		for _, r := range []store.Range{{}, {Reverse: true}, {To: "a"}, {Limit: 1}} {
			recs, _, err := s.List(t.Context(), r)
			if err != nil || len(recs) > 0 && recs[0].Key != "a" {
				t.Errorf("%+v: %v, %v", r, recs, err)
			}
		}
		if recs, err := s.Get(t.Context(), nil, "", "a"); err != nil || recs[0] != (store.Record{}) || recs[1].Rev == 0 {
			t.Errorf("%v, %v", recs, err)
		}
	})
}

// A savepoint that is rolled back under two engines of one transaction gives no address twice.
func TestSavepoint(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		db := reopen()
		s, e := machines(t, db)
		held := map[string]string{"one": assign(t, e, "one")}
		tx := begin(t, db)
		in := func() *ipset.Engine {
			in, err := s.WithTx(t.Context(), tx)
			if err != nil {
				t.Fatal(err)
			}
			return newEngine(t, in)
		}
		do := func(text string) {
			if _, err := tx.ExecContext(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		e1 := in()
		do("SAVEPOINT mine")
		if _, err := e1.ReleaseByHandle(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		do("ROLLBACK TO SAVEPOINT mine")
		held["two"] = assign(t, in(), "two")
		held["three"] = assign(t, e1, "three")
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		sound(t, s, held)
	})
}

// service is where clients find the server: an address that moves from one to another.
type service struct{ dsn string }

// connect returns a pool whose connections go to the server that has the address when they are made.
func (v *service) connect(t *testing.T) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(v.dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		now, err := pgx.ParseConfig(v.dsn)
		if err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, now.Host+"/.s.PGSQL.5432")
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// An asynchronous replica is refused while it is one. Promoted without an acknowledged commit, it ends the store that had seen
// that commit, and nobody is given what another holds.
func TestFailover(t *testing.T) {
	primary := servers.NewPostgres(t, servers.PostgresOptions{NoSync: true})
	v := &service{primary.DSN()}
	a, ea := machines(t, v.connect(t))
	assign(t, ea, "one")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	standby, err := primary.Standby(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = standby.Close() }()
	admin := connect(t, "pgx", standby.DSN())
	if _, err := Open(ctx, admin, Options{}); !errors.Is(err, errStandby) || !store.Retryable(err) {
		t.Errorf("a store on a hot standby: %v", err)
	}
	run(t, admin, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
	for linked := 1; linked > 0; {
		if err := admin.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_wal_receiver").Scan(&linked); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ea.ReleaseByHandle(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	primary.Stop()
	run(t, admin, "SELECT pg_promote()")
	v.dsn = standby.DSN()
	b := openIn(t, v.connect(t), Options{})
	held := map[string]string{"b": assign(t, newEngine(t, b), "b")}
	if got, err := ea.Assign(ctx, host, "a"); !errors.Is(err, ipalloc.ErrReplaced) {
		t.Errorf("assigned %v, %v", got, err)
	}
	fails(t, a, ipalloc.ErrReplaced)
	sound(t, b, held)
}

// Processes that saw a commit which changed nothing go on, and so do their watches: it takes no revision.
func TestNothingChanged(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		a, b := openIn(t, reopen(), Options{}), openIn(t, reopen(), Options{})
		rev := put(t, a, "x", "1")
		for _, ops := range [][]store.Op{
			{{Kind: store.Delete, Key: "nothing", Expect: store.AnyRevision}},
			{{Kind: store.Delete, Key: "nothing"}, {Kind: store.Delete, Key: "nor this", Expect: store.AnyRevision}},
			{{Key: "x", Expect: rev}, {Kind: store.Delete, Key: "nothing"}},
		} {
			if got, err := a.Commit(t.Context(), ops); err != nil || got != rev {
				t.Errorf("%+v: %d, %v", ops, got, err)
			}
		}
		put(t, b, "y", "")
		get(t, a, "x")
		put(t, a, "z", "")
	})
}

// A transaction whose view is older than what its process has seen costs that transaction, not the process.
func TestWithTxInAnOldView(t *testing.T) {
	db := postgresDB(t)
	s, _ := machines(t, db)
	for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelRepeatableRead, sql.LevelSerializable} {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM machines").Scan(&n); err != nil {
			t.Fatal(err)
		}
		put(t, s, fmt.Sprint("y", level), "")
		if _, err := s.WithTx(t.Context(), tx); (err == nil) != (level == sql.LevelDefault) || err != nil && !store.Retryable(err) {
			t.Errorf("%v: %v", level, err)
		}
		_ = tx.Rollback()
		put(t, s, fmt.Sprint("z", level), "")
	}
}

// Where transactions are above read committed by default, a commit that waits for another is made next, before one that came later.
func TestDefaultIsolation(t *testing.T) {
	for _, level := range []string{"'repeatable read'", "serializable"} {
		dsn := postgresSchema(t)
		other := openIn(t, connect(t, "pgx", dsn), Options{})
		s := openIn(t, connect(t, "pgx", dsn+" default_transaction_isolation="+level), Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for name, f := range map[string]func() error{
			"commit": func() error {
				_, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "c"}})
				return err
			},
			"InTx": func() error {
				return s.InTx(ctx, func(_ *sql.Tx, in store.Store) error { put(t, in, "t", ""); return nil })
			},
		} {
			before, after := begin(t, other.db), begin(t, other.db)
			in, err := other.WithTx(t.Context(), before)
			if err != nil {
				t.Fatal(err)
			}
			done, late := make(chan error), make(chan error)
			go func() { done <- f() }()
			blocked(t, other.db, 1)
			go func() { _, err := other.WithTx(t.Context(), after); late <- err }()
			blocked(t, other.db, 2)
			put(t, in, name, "")
			if err := before.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(<-done, <-late, after.Commit()); err != nil {
				t.Errorf("%s at %s: %v", name, level, err)
			}
		}
	}
}

// blocked returns when n sessions wait for the lock of a table.
func blocked(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	for have := 0; have < n; {
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'").Scan(&have); err != nil {
			t.Fatal(err)
		}
	}
}

// A role that may connect and read, and write nothing, holds up no commit, whatever locks it takes, and no first Open.
func TestStranger(t *testing.T) {
	dsn := postgresSchema(t)
	db := connect(t, "pgx", dsn)
	s := openIn(t, db, Options{})
	run(t, db, "CREATE ROLE stranger LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	other := connect(t, "pgx", strings.Replace(dsn, "user=postgres", "user=stranger", 1))
	other.SetMaxOpenConns(1)
	var who string
	if err := other.QueryRowContext(t.Context(), "SELECT current_user").Scan(&who); err != nil || who != "stranger" {
		t.Fatal(who, err)
	}
	run(t, other, "SELECT pg_advisory_lock(hashtextextended('"+s.id+"', 0))", "SELECT pg_advisory_lock(hashtext('ipalloc_meta' || 'public'))")
	run(t, db, "DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %I TO stranger', current_schema()); END $$")
	for _, right := range []string{"SELECT 1", "GRANT SELECT ON ipalloc_queue, ipalloc_meta, ipalloc_records, ipalloc_changes TO stranger"} {
		run(t, db, right)
		for _, table := range []string{"queue", "meta", "records", "changes"} {
			for _, lock := range []string{"LOCK TABLE ipalloc_%s IN EXCLUSIVE MODE", "LOCK TABLE ipalloc_%s IN SHARE MODE", "SELECT 1 FROM ipalloc_%s FOR SHARE"} {
				tx := begin(t, other)
				_, err := tx.ExecContext(t.Context(), fmt.Sprintf(lock, table))
				if err == nil || !strings.Contains(err.Error(), "42501") { // insufficient privilege
					t.Errorf("after %q: a stranger has the lock of %s: %v", right, table, err)
				}
				_ = tx.Rollback()
			}
		}
	}
	var held int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&held); err != nil || held != 2 {
		t.Errorf("%d advisory locks, %v", held, err)
	}
	put(t, s, "x", "")
	openIn(t, connect(t, "pgx", dsn), Options{Prefix: "second_"})
}

// Rows of ipalloc_changes that were deleted by hand are no proof that a commit is missing: no process ends, and all go on.
func TestChangesDeleted(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		db := reopen()
		idle, busy := openIn(t, db, Options{}), openIn(t, reopen(), Options{})
		put(t, idle, "a", "1")
		for i := range 3 {
			put(t, busy, "b", fmt.Sprint(i))
		}
		ended := make(chan error, 1)
		from := idle.high.Load()
		run(t, db, "DELETE FROM ipalloc_changes")
		go func() {
			var last error
			for _, err := range idle.Watch(t.Context(), from, "") {
				last = err
			}
			ended <- last
		}()
		if err := <-ended; !errors.Is(err, ipalloc.ErrOutOfRange) {
			t.Errorf("watch: %v", err)
		}
		idle.high.Store(from) // as before the watch
		if rec := get(t, idle, "b"); rec.Value != "2" {
			t.Errorf("%+v", rec)
		}
		for _, s := range []*Store{idle, busy} {
			put(t, busy, "c", "")
			run(t, db, "DELETE FROM ipalloc_changes")
			put(t, s, "d", "")
			put(t, busy, "c", "")
			run(t, db, "DELETE FROM ipalloc_changes")
			err := s.InTx(t.Context(), func(_ *sql.Tx, in store.Store) error {
				_, err := in.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "e", Expect: store.AnyRevision}})
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}
