package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var vpn = netip.MustParsePrefix("100.64.0.0/24")

// newEngine returns an engine on a store.
func newEngine(t *testing.T, s store.Store) *ipset.Engine {
	t.Helper()
	e, err := ipset.New(s, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// machines makes a table of the caller beside the store, and a pool of addresses.
func machines(t *testing.T, db *sql.DB) (*Store, *ipset.Engine) {
	t.Helper()
	s := openIn(t, db, Options{})
	run(t, db, "CREATE TABLE machines (name varchar(40) PRIMARY KEY, address varchar(40) NOT NULL UNIQUE)")
	e := newEngine(t, s)
	if err := e.AddPool(t.Context(), alloc.Pool{Name: "vpn", Prefix: vpn, BlockBits: 28}); err != nil {
		t.Fatal(err)
	}
	return s, e
}

// enrol adds a machine with an address in a transaction, and ends that as end says.
func enrol(t *testing.T, s *Store, db *sql.DB, name string, end func(*sql.Tx) error) (alloc.Allocation, error) {
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return alloc.Allocation{}, err
	}
	defer func() { _ = tx.Rollback() }()
	in, err := s.WithTx(t.Context(), tx)
	if err != nil {
		return alloc.Allocation{}, err
	}
	a, err := newEngine(t, in).Assign(t.Context(), alloc.HostOwner("control"), name)
	if err != nil {
		return a, err
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO machines VALUES ($1, $2)", name, a.Address.String()); err != nil {
		return a, err
	}
	return a, end(tx)
}

// verify compares the machines with the addresses that are held, and has an engine check everything.
func verify(t *testing.T, s *Store, db *sql.DB, e *ipset.Engine, want int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT name, address FROM machines")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var name, address string
		if err := rows.Scan(&name, &address); err != nil {
			t.Fatal(err)
		}
		got, err := e.IPsByHandle(t.Context(), name)
		if err != nil || len(got) != 1 || got[0].Address.String() != address {
			t.Errorf("%s has the row %s and the addresses %v, %v", name, address, got, err)
		}
	}
	held := 0
	for _, err := range e.Allocations(t.Context(), vpn) {
		if err != nil {
			t.Fatal(err)
		}
		held++
	}
	if report, err := e.Operator().Check(t.Context(), nil); err != nil || len(report.Problems) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if n != want || held != want || rows.Err() != nil {
		t.Errorf("%d machines, %d addresses held, want %d of each", n, held, want)
	}
}

// The machine's row and its address come together or not at all, and engines that live longer see just what was committed.
func TestWithTx(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		db := reopen()
		s, e := machines(t, db)
		other := newEngine(t, openIn(t, reopen(), Options{}))
		commit := func(tx *sql.Tx) error { return tx.Commit() }
		held := make(map[netip.Addr]string)
		take := func(a alloc.Allocation, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			if held[a.Address] != "" {
				t.Fatalf("%s was given to %s and to %s", a.Address, held[a.Address], a.Handle)
			}
			held[a.Address] = a.Handle
		}
		machine := func(a alloc.Allocation, err error) { // of an engine of its own, so that there is a row for it
			t.Helper()
			take(a, err)
			if _, err := db.ExecContext(t.Context(), "INSERT INTO machines VALUES ($1, $2)", a.Handle, a.Address.String()); err != nil {
				t.Fatal(err)
			}
		}
		host := alloc.HostOwner("control")
		for i := range 12 { // more than a block; between them engines whose caches know the blocks
			take(enrol(t, s, db, fmt.Sprint("made", i), commit))
			if _, err := enrol(t, s, db, fmt.Sprint("dropped", i), func(tx *sql.Tx) error { return tx.Rollback() }); err != nil {
				t.Fatal(err)
			}
			machine(e.Assign(t.Context(), host, fmt.Sprint("plain", i)))
			if _, err := enrol(t, s, db, fmt.Sprint("made", i), commit); err == nil {
				t.Fatal("a second row of that name")
			}
			machine(other.Assign(t.Context(), host, fmt.Sprint("other", i)))
		}
		verify(t, s, db, e, len(held))
		verify(t, s, db, other, len(held))
		if got, err := e.IPsByHandle(t.Context(), "dropped3"); len(got) > 0 || err != nil {
			t.Errorf("after a rollback: %v, %v", got, err)
		}
	})
}

// A commit in a transaction of the caller's leaves the store at the revision that it answered, and the next one is higher.
func TestRevisionOfATransaction(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		s := openIn(t, reopen(), Options{})
		last := put(t, s, "a", "1")
		for i := range 3 {
			var rev uint64
			err := s.InTx(t.Context(), func(_ *sql.Tx, in store.Store) (err error) {
				rev, err = in.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: fmt.Sprint("in", i), Expect: store.AnyRevision}})
				return err
			})
			if _, is, lerr := s.List(t.Context(), store.Range{}); err != nil || lerr != nil || is != rev || rev <= last {
				t.Errorf("a commit was answered with revision %d after %d, %v; the store has %d, %v", rev, last, err, is, lerr)
			}
			if last = put(t, s, fmt.Sprint("b", i), "1"); last <= rev {
				t.Errorf("revision %d after %d", last, rev)
			}
		}
	})
}

// Transactions and plain engines at the same time, from several pools.
func TestWithTxAtOnce(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		db := reopen()
		s, e := machines(t, db)
		var wg sync.WaitGroup
		for w := range 4 {
			db := reopen()
			s := openIn(t, db, Options{})
			wg.Go(func() {
				for i := 0; i < 8; {
					end := func(tx *sql.Tx) error { return tx.Commit() }
					if i%3 == 2 {
						end = func(tx *sql.Tx) error { return tx.Rollback() }
					}
					_, err := enrol(t, s, db, fmt.Sprintf("m%d-%d", w, i), end)
					if err == nil {
						i++
					} else if !retryable(err) {
						t.Error(err)
						return
					}
				}
			})
		}
		for w := range 2 {
			e := newEngine(t, openIn(t, reopen(), Options{}))
			wg.Go(func() {
				for i := range 12 {
					name := fmt.Sprintf("p%d-%d", w, i)
					if _, err := e.Assign(t.Context(), alloc.HostOwner("control"), name); err != nil {
						t.Error(err)
					}
					if _, err := e.ReleaseByHandle(t.Context(), name); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		verify(t, s, db, e, 4*6)
	})
}

// InTx repeats what met another transaction, carries the errors of the engine and of the caller, and leaves nothing after one.
func TestInTx(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		db := reopen()
		s, e := machines(t, db)
		mine := errors.New("mine")
		calls := 0
		enrol := func(name string, result func(in store.Store) error) error {
			return s.InTx(t.Context(), func(tx *sql.Tx, in store.Store) error {
				calls++
				a, err := newEngine(t, in).Assign(t.Context(), alloc.HostOwner("control"), name)
				if err == nil {
					_, err = tx.ExecContext(t.Context(), "INSERT INTO machines VALUES ($1, $2)", name, a.Address.String())
				}
				return errors.Join(err, result(in))
			})
		}
		for i := range 3 {
			if err := enrol(fmt.Sprint("made", i), func(store.Store) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if err := enrol("dropped", func(store.Store) error { return mine }); !errors.Is(err, mine) {
			t.Errorf("an error of the caller: %v", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = enrol("panics", func(store.Store) error { panic("mine") })
		}()
		if calls != 5 {
			t.Errorf("%d calls for 5 transactions", calls)
		}
		calls = 0
		if err := enrol("again", func(store.Store) error {
			if calls < 3 {
				return &pgconn.PgError{Code: "40001", SeverityUnlocalized: "ERROR"}
			}
			return nil
		}); err != nil || calls != 3 {
			t.Errorf("after %d calls: %v", calls, err)
		}
		if err := enrol("late", func(store.Store) error { calls++; return context.DeadlineExceeded }); !errors.Is(err, context.DeadlineExceeded) || calls != 5 {
			t.Errorf("a deadline of the caller: %v after %d calls", err, calls)
		}
		verify(t, s, db, e, 4)
	})
}

// A COMMIT that the server refuses leaves nothing, and is repeated if the server says so.
func TestInTxRefusedCommit(t *testing.T) {
	db := postgresDB(t)
	s := openIn(t, db, Options{})
	if _, err := db.Exec(`CREATE TABLE mine (n int, code text);
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.n < 3 THEN RAISE EXCEPTION 'refused' USING ERRCODE = NEW.code; END IF; RETURN NEW; END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON mine DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`); err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string]int{"40001": 3, "23514": 1} {
		calls := 0
		err := s.InTx(t.Context(), func(tx *sql.Tx, in store.Store) error {
			calls++
			put(t, in, code, "")
			_, err := tx.Exec("INSERT INTO mine VALUES ($1, $2)", calls, code)
			return err
		})
		var e *ipalloc.Error
		if calls != want || (err == nil) != (want == 3) || err != nil && (!errors.As(err, &e) || e.Op != "commit" || unknownOutcome(err)) {
			t.Errorf("%s: %d calls, %v", code, calls, err)
		}
		if rec := get(t, s, code); (rec.Rev == 0) != (err != nil) {
			t.Errorf("%s: %v, %+v", code, err, rec)
		}
	}
}

// An error of the store that the function drops rolls the transaction back all the same.
func TestInTxCarriesErrors(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		s := openIn(t, reopen(), Options{})
		err := s.InTx(t.Context(), func(_ *sql.Tx, in store.Store) error {
			put(t, in, "a", "")
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := in.Get(ctx, nil, "a"); err == nil {
				t.Error("a read after the end of its context")
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if rec := get(t, s, "a"); rec.Rev != 0 {
			t.Errorf("committed: %+v", rec)
		}
	})
}

// A commit inside whose context has ended says so, and writes nothing.
func TestInTxEndedContext(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		db := reopen()
		s := openIn(t, db, Options{})
		tx := begin(t, db)
		in, err := s.WithTx(t.Context(), tx)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := in.Commit(ctx, []store.Op{{Kind: store.Put, Key: "a"}}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if rec := get(t, in, "a"); rec.Rev != 0 {
			t.Errorf("written: %+v", rec)
		}
		if recs, _, err := in.List(ctx, store.Range{}); !errors.Is(err, context.Canceled) {
			t.Errorf("list: %v, %v", recs, err)
		}
	})
}

// A transaction that the file's lock keeps from beginning is waited for as long as the context lasts, however many attempts that is.
func TestInTxWaitsForTheLock(t *testing.T) {
	db := connect(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "store.db")+"?_txlock=immediate")
	s := openIn(t, db, Options{})
	other := begin(t, db)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	add := func(_ *sql.Tx, in store.Store) error { put(t, in, "a", ""); return nil }
	if err := s.InTx(ctx, add); !errors.Is(err, context.DeadlineExceeded) || !store.Retryable(err) {
		t.Errorf("while it is locked: %v", err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.InTx(t.Context(), add); err != nil {
		t.Error(err)
	}
}

// A transaction that is over, one of another database, and a watch in one.
func TestWithTxRefused(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		db := reopen()
		s := openIn(t, db, Options{})
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		in, err := s.WithTx(t.Context(), tx)
		if err != nil {
			t.Fatal(err)
		}
		rev := put(t, in, "a", "1")
		for _, err := range in.Watch(t.Context(), 0, "") {
			if !errors.Is(err, ipalloc.ErrInvalid) {
				t.Error(err)
			}
		}
		if recs, err := s.Get(t.Context(), nil, "a"); err != nil || recs[0].Rev != 0 {
			t.Errorf("seen before it was committed: %v, %v", recs, err)
		}
		if recs, err := in.Get(t.Context(), nil, "a"); err != nil || recs[0].Rev != rev {
			t.Errorf("not seen inside: %v, %v", recs, err)
		}
		if _, err := in.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "b", Expect: store.AnyRevision}, {Kind: store.Guard, Key: "a", Expect: rev + 1}}); !errors.Is(err, ipalloc.ErrConflict) {
			t.Error(err)
		}
		if _, err := in.Commit(t.Context(), []store.Op{{Kind: store.Put}}); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Error(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if rev2 := put(t, s, "c", ""); rev2>>pastBits != rev>>pastBits || rev2 == rev { // the next commit, and not the same one
			t.Errorf("revision %d after %d was rolled back", rev2, rev)
		}
		if _, err := in.Get(t.Context(), nil, "a"); !errors.Is(err, ipalloc.ErrClosed) {
			t.Error(err)
		}
		if _, err := in.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "a"}}); !errors.Is(err, ipalloc.ErrClosed) {
			t.Error(err)
		}
		if _, err := s.WithTx(t.Context(), tx); !errors.Is(err, ipalloc.ErrClosed) {
			t.Error(err)
		}
		foreign, err := sqliteFile(t).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = foreign.Rollback() }()
		if _, err := s.WithTx(t.Context(), foreign); !errors.Is(err, ipalloc.ErrReplaced) && s.file != nil {
			t.Error(err)
		}
	})
}

// A commit that fails in its middle leaves no part of itself in the transaction, even if the caller commits that all the same.
func TestWithTxFailsInside(t *testing.T) {
	db := sqliteFile(t)
	db.SetMaxOpenConns(1)
	s := openIn(t, db, Options{})
	run(t, db, "PRAGMA max_page_count = 20")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.WithTx(t.Context(), tx)
	if err != nil {
		t.Fatal(err)
	}
	put(t, in, "before", "")
	_, err = in.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "part"}, {Kind: store.Put, Key: "too much", Value: strings.Repeat("v", 1<<20)}})
	if !errors.Is(err, ipalloc.ErrLimit) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Error(err)
	}
	err = tx.Commit()
	if rec := get(t, s, "part"); rec.Rev != 0 {
		t.Errorf("a part of it was committed: %v", rec)
	}
	if rec := get(t, s, "before"); (rec.Rev != 0) != (err == nil) {
		t.Errorf("the rest of the transaction: %v, and the record has revision %d", err, rec.Rev)
	}
}
