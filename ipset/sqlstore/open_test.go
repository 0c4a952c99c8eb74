package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sqlite3 "modernc.org/sqlite"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// each runs a test on an empty SQLite file and on an empty schema of PostgreSQL. reopen returns a pool of its own on it.
func each(t *testing.T, test func(t *testing.T, reopen func() *sql.DB)) {
	t.Run("SQLite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "store.db")
		test(t, func() *sql.DB { return connect(t, "sqlite", "file:"+path+"?_txlock=immediate") })
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		dsn := postgresSchema(t)
		test(t, func() *sql.DB { return connect(t, "pgx", dsn) })
	})
}

// Open waits for a connection of a full pool no longer than its context.
func TestOpenEnds(t *testing.T) {
	db := sqliteFile(t)
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, db, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func run(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, text := range statements {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// put writes one record at any revision.
func put(t *testing.T, s store.Store, key, value string) uint64 {
	t.Helper()
	rev, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: key, Value: value, Expect: store.AnyRevision}})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// fails verifies that every method of a store fails with want.
func fails(t *testing.T, s *Store, want error) {
	t.Helper()
	_, errGet := s.Get(t.Context(), nil, "a")
	_, _, errList := s.List(t.Context(), store.Range{})
	_, errCommit := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "b", Expect: store.AnyRevision}})
	_, errGuard := s.Commit(t.Context(), []store.Op{{Kind: store.Guard, Key: "b"}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // of a watch that goes on
	defer cancel()
	var errWatch error
	for _, errWatch = range s.Watch(ctx, 0, "") {
	}
	for what, err := range map[string]error{"get": errGet, "list": errList, "commit": errCommit, "guard": errGuard, "watch": errWatch} {
		if !errors.Is(err, want) || store.Retryable(err) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}

func TestReopen(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		s := openIn(t, reopen(), Options{})
		rev := put(t, s, "a", "1")
		again := openIn(t, reopen(), Options{NoCreate: true})
		recs, at, err := again.List(t.Context(), store.Range{})
		want := []store.Record{{Key: "a", Value: "1", Rev: rev}}
		if err != nil || at != rev || !slices.Equal(recs, want) || again.id != s.id {
			t.Errorf("%v at %d, %v", recs, at, err)
		}
		// The changes from before are there as well.
		for ev, err := range again.Watch(t.Context(), 0, "a") {
			if err != nil || ev.Rev != rev || !slices.Equal(ev.Changes, want) {
				t.Errorf("%v, %v", ev, err)
			}
			break
		}
	})
}

// Two stores in one database do not see each other.
func TestPrefixes(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		db := reopen()
		a, b := openIn(t, db, Options{}), openIn(t, db, Options{Prefix: "other_"})
		put(t, a, "a", "1")
		if recs, rev, err := b.List(t.Context(), store.Range{}); len(recs) > 0 || rev != 0 || err != nil {
			t.Errorf("%v at %d, %v", recs, rev, err)
		}
		run(t, db, "DROP TABLE other_records", "DROP TABLE other_changes", "DROP TABLE other_meta")
		fails(t, b, ipalloc.ErrReplaced)
		put(t, a, "a", "2")
	})
}

// Many that open an empty database at once find one store.
func TestOpenAtOnce(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		var wg sync.WaitGroup
		ids := make([]string, 8)
		for i := range ids {
			db := reopen()
			wg.Go(func() {
				s, err := Open(context.Background(), db, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = s.id
			})
		}
		wg.Wait()
		if slices.Sort(ids); ids[0] != ids[len(ids)-1] || ids[0] == "" {
			t.Errorf("stores %q", ids)
		}
	})
}

// A file that another process has locked, for longer than attempts pass, is waited for as long as the context lasts.
func TestOpenWaitsForTheLock(t *testing.T) {
	path := "file:" + filepath.Join(t.TempDir(), "store.db")
	other := begin(t, connect(t, "sqlite", path+"?_txlock=immediate"))
	db := connect(t, "sqlite", path)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, db, Options{}); !errors.Is(err, context.DeadlineExceeded) || !store.Retryable(err) {
		t.Errorf("while it is locked: %v", err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	openIn(t, db, Options{})
}

// A database that is not as Open must find it is refused and not changed.
func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		before []string
		opts   Options
		want   error
	}{
		"no store":         {nil, Options{NoCreate: true}, ipalloc.ErrNotFound},
		"a prefix to hurt": {nil, Options{Prefix: `x"; DROP TABLE y; --`}, ipalloc.ErrInvalid},
		"negative history": {nil, Options{History: -1}, ipalloc.ErrInvalid},
		"negative poll":    {nil, Options{Poll: -1}, ipalloc.ErrInvalid},
		"foreign meta":     {[]string{"CREATE TABLE ipalloc_meta (a integer)"}, Options{}, ipalloc.ErrMismatch},
		"foreign records":  {[]string{"CREATE TABLE ipalloc_records (a integer)"}, Options{}, ipalloc.ErrMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, reopen func() *sql.DB) {
				db := reopen()
				run(t, db, tt.before...)
				if _, err := Open(t.Context(), db, tt.opts); !errors.Is(err, tt.want) {
					t.Errorf("%v, want %v", err, tt.want)
				}
				if len(tt.before) > 0 { // nothing was made beside what was there
					if _, err := db.ExecContext(t.Context(), "CREATE TABLE ipalloc_changes (a integer)"); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
	if _, err := Open(t.Context(), nil, Options{}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
	if _, err := Open(t.Context(), connect(t, "sqlite", ":memory:"), Options{}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
}

// A connection that does not wait for the disk is refused unless that was asked for.
func TestNoSync(t *testing.T) {
	lite := connect(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "x.db")+"?_pragma=synchronous(NORMAL)")
	for _, db := range []func() *sql.DB{
		func() *sql.DB { return lite },
		func() *sql.DB { return connect(t, "pgx", postgresSchema(t)+" synchronous_commit=off") },
	} {
		db := db()
		if _, err := Open(t.Context(), db, Options{}); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Error(err)
		}
		openIn(t, db, Options{NoSync: true})
	}
}

func TestNewerVersion(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		db := reopen()
		put(t, openIn(t, db, Options{}), "a", "")
		for text, want := range map[string]error{"version = 99": ipalloc.ErrVersion, "version = 2": ipalloc.ErrVersion, "version = 1, format = 'other'": ipalloc.ErrMismatch} {
			run(t, db, "UPDATE ipalloc_meta SET format = '"+format+"'")
			run(t, db, "UPDATE ipalloc_meta SET "+text)
			for _, o := range []Options{{}, {Adopt: true}, {NoCreate: true}} {
				if _, err := Open(t.Context(), db, o); !errors.Is(err, want) {
					t.Errorf("%s, %+v: %v", text, o, err)
				}
			}
		}
	})
}

// A store that was wiped, made anew, adopted or set back is not taken for the one that was opened.
func TestReplaced(t *testing.T) {
	wipe := []string{"DROP TABLE ipalloc_records", "DROP TABLE ipalloc_changes", "DROP TABLE ipalloc_meta"}
	for name, change := range map[string]func(t *testing.T, db *sql.DB, pg bool){
		"wiped": func(t *testing.T, db *sql.DB, _ bool) { run(t, db, wipe...) },
		"made anew": func(t *testing.T, db *sql.DB, pg bool) {
			run(t, db, wipe...)
			if pg {
				run(t, db, "DROP FUNCTION ipalloc_commit")
			}
			put(t, openIn(t, db, Options{}), "a", "other")
		},
		"emptied": func(t *testing.T, db *sql.DB, _ bool) { run(t, db, "DELETE FROM ipalloc_meta") },
		"adopted": func(t *testing.T, db *sql.DB, _ bool) { openIn(t, db, Options{Adopt: true}) },
		"set back": func(t *testing.T, db *sql.DB, _ bool) {
			run(t, db, "UPDATE ipalloc_meta SET rev = 1", "DELETE FROM ipalloc_changes WHERE rev > 1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, reopen func() *sql.DB) {
				s := openIn(t, reopen(), Options{})
				put(t, s, "a", "1")
				put(t, s, "a", "2")
				change(t, reopen(), s.file == nil)
				fails(t, s, ipalloc.ErrReplaced)
			})
		})
	}
}

// A SQLite file that was removed, or in whose place another one is, is not written to any more.
func TestReplacedFile(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")
	s := openIn(t, connect(t, "sqlite", "file:"+path), Options{})
	put(t, s, "a", "1")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	fails(t, s, ipalloc.ErrReplaced)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	fails(t, s, ipalloc.ErrReplaced)
}

// A move from memory through both databases and back keeps every record.
func TestMove(t *testing.T) {
	from := store.NewMemory()
	for i := range 300 {
		put(t, from, fmt.Sprintf("b%03d\x00\xff", i), fmt.Sprint(i))
	}
	put(t, from, store.RootKey, "root")
	want, _, err := from.List(t.Context(), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	back := store.NewMemory()
	chain := []store.Store{from, openIn(t, sqliteFile(t), Options{}), openIn(t, postgresDB(t), Options{}), back}
	for i, to := range chain[1:] {
		for range 2 { // the second time there is nothing left to copy
			if report, err := store.Copy(t.Context(), to, chain[i]); err != nil || report.Records != len(want) {
				t.Fatalf("%+v, %v", report, err)
			}
		}
	}
	got, _, err := back.List(t.Context(), store.Range{})
	if err != nil || !slices.EqualFunc(got, want, func(a, b store.Record) bool { return a.Key == b.Key && a.Value == b.Value }) {
		t.Errorf("%d records of %d, %v", len(got), len(want), err)
	}
}

// Revisions that no store reaches are expected by no record, and watched by none.
func TestHugeRevisions(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		s := openIn(t, reopen(), Options{})
		put(t, s, "a", "1")
		for _, expect := range []uint64{1 << 62, 1<<63 - 1, 1 << 63, store.AnyRevision - 1} {
			if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "a", Value: "2", Expect: expect}}); !errors.Is(err, ipalloc.ErrConflict) {
				t.Errorf("%d: %v", expect, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			for ev, err := range s.Watch(ctx, expect, "") {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a watch after %d: %v, %v", expect, ev, err)
				}
			}
			cancel()
		}
	})
}

// A refused Open changes nothing in a file of another program.
func TestRefusedFileUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "foreign.db")
	db := connect(t, "sqlite", "file:"+path)
	run(t, db, "CREATE TABLE ipalloc_records (a)")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{NoCreate: true}, {}} {
		if _, err := Open(t.Context(), db, o); err == nil {
			t.Errorf("%+v: opened", o)
		}
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("%d bytes were changed, %v", len(after), err)
	}
}

// A new file and the logs beside it are their user's alone; one that holds something keeps its mode.
func TestFileMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	put(t, openIn(t, connect(t, "sqlite", "file:"+path), Options{}), "a", "")
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 && filepath.Separator == '/' {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	openIn(t, connect(t, "sqlite", "file:"+path), Options{})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 && filepath.Separator == '/' {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// refusing is a connector to a SQLite file whose connections refuse one query.
type refusing struct{ path, query string }

func (r refusing) Driver() driver.Driver { return &sqlite3.Driver{} }

func (r refusing) Connect(context.Context) (driver.Conn, error) {
	c, err := r.Driver().Open("file:" + r.path)
	return refusingConn{c, r.query}, err
}

type refusingConn struct {
	driver.Conn
	query string
}

func (c refusingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if query == c.query {
		return nil, errors.New("refused")
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

// A setting of the connection that cannot be read refuses the database.
func TestSynchronousUnknown(t *testing.T) {
	db := sql.OpenDB(refusing{filepath.Join(t.TempDir(), "x.db"), "PRAGMA synchronous"})
	t.Cleanup(func() { _ = db.Close() })
	if _, err := Open(t.Context(), db, Options{}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("opened without knowing whether commits wait for the disk: %v", err)
	}
}

// The function that commits is verified, made again, and named where it is missing; so is a schema.
func TestFunction(t *testing.T) {
	db := postgresDB(t)
	s := openIn(t, db, Options{})
	drop := "DROP FUNCTION ipalloc_commit"
	run(t, db, drop)
	_, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "a"}})
	if !errors.Is(err, ipalloc.ErrMismatch) || errors.Is(err, ipalloc.ErrReplaced) || !strings.Contains(err.Error(), "ipalloc_commit") {
		t.Errorf("a commit without it: %v", err)
	}
	if _, err := Open(t.Context(), db, Options{NoCreate: true}); !errors.Is(err, errNoFunction) {
		t.Errorf("NoCreate: %v", err)
	}
	put(t, openIn(t, db, Options{}), "a", "")
	run(t, db, "DROP SCHEMA IF EXISTS with_foreign_function CASCADE", "CREATE SCHEMA with_foreign_function")
	foreign := connect(t, "pgx", sharedServer(t).DSN()+" search_path=with_foreign_function")
	run(t, foreign, "CREATE FUNCTION ipalloc_commit("+commitArgs+") RETURNS int LANGUAGE sql AS 'SELECT 1'")
	if _, err := Open(t.Context(), foreign, Options{}); !errors.Is(err, ipalloc.ErrMismatch) || !strings.Contains(err.Error(), "function") {
		t.Errorf("a foreign function of the name: %v", err)
	}
	if _, err := Open(t.Context(), connect(t, "pgx", sharedServer(t).DSN()+" search_path=nowhere"), Options{}); !errors.Is(err, ipalloc.ErrInvalid) || !strings.Contains(err.Error(), "schema") {
		t.Errorf("no schema: %v", err)
	}
}

// More keys than one statement takes are one view all the same, and the read returns its connection.
func TestManyKeys(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		s := openIn(t, reopen(), Options{})
		keys := make([]string, 17_000)
		for i := range keys {
			keys[i] = fmt.Sprint(i)
		}
		rev := put(t, s, keys[len(keys)-1], "last")
		recs, err := s.Get(t.Context(), nil, keys...)
		if err != nil || len(recs) != len(keys) || recs[0] != (store.Record{Key: "0"}) || recs[len(keys)-1].Rev != rev {
			t.Errorf("%d records, %v", len(recs), err)
		}
		if n := s.db.Stats().InUse; n > 0 {
			t.Errorf("%d connections are still in use", n)
		}
	})
}
