package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ipalloc/ipalloc"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// wire counts what goes over the connections of a pool, and breaks one of them.
type wire struct {
	mu            sync.Mutex
	writes, reads int
	breakWrite    int // the write that is lost, and with it the connection; 0 breaks none
	breakRead     int
}

func (w *wire) arm(write, read int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes, w.reads, w.breakWrite, w.breakRead = 0, 0, write, read
}

// count returns the number of writes since the last arm, each of which is a round trip.
func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

type wireConn struct {
	net.Conn
	w *wire
}

var errCut = errors.New("connection cut")

func (c *wireConn) Write(b []byte) (int, error) {
	c.w.mu.Lock()
	c.w.writes++
	cut := c.w.writes == c.w.breakWrite
	c.w.mu.Unlock()
	if cut {
		_ = c.Close()
		return 0, errCut
	}
	return c.Conn.Write(b)
}

func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.w.mu.Lock()
	c.w.reads++
	cut := c.w.reads == c.w.breakRead
	c.w.mu.Unlock()
	if cut {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// wired returns a pool whose connections go through a wire.
func wired(t *testing.T, dsn string) (*sql.DB, *wire) {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wireConn{conn, w}, nil
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return db, w
}

// A connection that breaks anywhere: a commit that returned nothing but an unknown outcome was made exactly if it says so. Before
// anything of it is sent it is made on another connection.
func TestConnectionBreaks(t *testing.T) {
	dsn := postgresSchema(t)
	clean := openIn(t, connect(t, "pgx", dsn), Options{})
	unknowns := 0
	for _, reads := range []bool{false, true} {
		for n := 1; n <= 8; n++ {
			db, w := wired(t, dsn)
			s := openIn(t, db, Options{})
			write, read := n, 0
			if reads {
				write, read = 0, n
			}
			w.arm(write, read)
			key := fmt.Sprintf("reads=%v, %d", reads, n)
			_, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: key}})
			w.arm(0, 0)
			switch rec := get(t, clean, key); {
			case errors.Is(err, ipalloc.ErrUnknownOutcome):
				if unknowns++; !store.Retryable(err) {
					t.Errorf("%s: %v is not retryable", key, err)
				}
				put(t, s, "after it", "") // the lock has passed on: the outcome is final
			case (err == nil) != (rec.Rev != 0):
				t.Errorf("%s: %v, and the record has revision %d", key, err, rec.Rev)
			}
			if _, err := s.Get(t.Context(), nil, key); err != nil {
				t.Errorf("%s: a read after it: %v", key, err)
			}
		}
	}
	if unknowns == 0 {
		t.Error("no outcome was ever unknown")
	}
}

func get(t *testing.T, s store.Store, key string) store.Record {
	t.Helper()
	recs, err := s.Get(t.Context(), nil, key)
	if err != nil {
		t.Fatal(err)
	}
	return recs[0]
}

// A read of which the connection breaks is repeated.
func TestReadsAreRepeated(t *testing.T) {
	dsn := postgresSchema(t)
	put(t, openIn(t, connect(t, "pgx", dsn), Options{}), "a", "1")
	for n := 1; n <= 3; n++ {
		for _, at := range [][2]int{{n, 0}, {0, n}} {
			db, w := wired(t, dsn)
			s := openIn(t, db, Options{})
			w.arm(at[0], at[1])
			if rec := get(t, s, "a"); rec.Value != "1" {
				t.Errorf("%v: %v", at, rec)
			}
		}
	}
}

// An Open of which the connection breaks is repeated, whether it makes the store or finds it.
func TestOpenIsRepeated(t *testing.T) {
	for n := 1; n <= 30; n += 3 {
		for _, at := range [][2]int{{n, 0}, {0, n}} {
			t.Run(fmt.Sprint(at), func(t *testing.T) {
				dsn := postgresSchema(t)
				for range 2 {
					db, w := wired(t, dsn)
					w.arm(at[0], at[1])
					_, err := Open(t.Context(), db, Options{})
					if err != nil && !store.Retryable(err) {
						t.Error(err)
					}
				}
				put(t, openIn(t, connect(t, "pgx", dsn), Options{}), "a", "1")
			})
		}
	}
}

// What a call costs in round trips once the connection knows its statement.
func TestRoundTrips(t *testing.T) {
	db, w := wired(t, postgresSchema(t))
	s := openIn(t, db, Options{})
	ctx := t.Context()
	var rev uint64
	for name, tt := range map[string]struct {
		call func() error
		want int
	}{
		"commit": {func() (err error) {
			rev, err = s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "a", Expect: rev}, {Kind: store.Put, Key: "b", Expect: store.AnyRevision}})
			return err
		}, 1},
		"conflict": {func() error {
			if _, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "a", Expect: 999}}); !errors.Is(err, ipalloc.ErrConflict) {
				return err
			}
			return nil
		}, 1},
		"get":  {func() error { _, err := s.Get(ctx, nil, "a", "b", "c"); return err }, 1},
		"list": {func() error { _, _, err := s.List(ctx, store.Range{From: "a"}); return err }, 1},
		"in a transaction": {func() error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			in, err := s.WithTx(ctx, tx)
			if err == nil {
				_, err = in.Commit(ctx, []store.Op{{Kind: store.Put, Key: "c", Expect: store.AnyRevision}})
			}
			return errors.Join(err, tx.Commit())
		}, 4},
	} {
		for range 2 {
			if err := tt.call(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		w.arm(0, 0)
		if err := tt.call(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := w.count(); n != tt.want {
			t.Errorf("%s: %d round trips, want %d", name, n, tt.want)
		}
	}
}

// An engine in a transaction: what one assignment costs beside BEGIN and COMMIT.
func TestRoundTripsWithTx(t *testing.T) {
	db, w := wired(t, postgresSchema(t))
	s, e := machines(t, db)
	if _, err := e.Assign(t.Context(), alloc.HostOwner("control"), "first"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		w.arm(0, 0)
		if _, err := enrol(t, s, db, fmt.Sprint("m", i), func(tx *sql.Tx) error { return tx.Commit() }); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.count() - 3; n > 6 { // beside BEGIN, COMMIT and the row of the caller
		t.Errorf("an assignment in a transaction took %d round trips", n)
	}
	t.Logf("%d round trips beside BEGIN, INSERT and COMMIT", w.count()-3)
}

// What a machine costs that is enrolled, removed and enrolled again under one name: a list and a commit for each call.
func TestRoundTripsOfAHandle(t *testing.T) {
	db, w := wired(t, postgresSchema(t))
	_, e := machines(t, db)
	for i := range 4 {
		w.arm(0, 0)
		assign(t, e, "machine")
		n := w.count()
		if _, err := e.ReleaseByHandle(t.Context(), "machine"); err != nil {
			t.Fatal(err)
		}
		if both := w.count(); i > 1 && (n != 2 || both != 4) { // the first calls prepare their statements
			t.Errorf("round %d: %d round trips to assign, %d with the release", i, n, both)
		}
	}
}

// Many callers at once share transactions.
func TestCallersShareATransaction(t *testing.T) {
	db, w := wired(t, postgresSchema(t))
	s := openIn(t, db, Options{})
	tx, err := db.BeginTx(t.Context(), nil) // holds the lock until all have come
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WithTx(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	w.arm(0, 0)
	var wg sync.WaitGroup
	const callers = 20
	wg.Go(func() { put(t, s, "first", "") })
	for w.count() == 0 {
		time.Sleep(time.Millisecond)
	}
	for i := range callers - 1 {
		wg.Go(func() { put(t, s, fmt.Sprint(i), "") })
	}
	for s.queue.Waiting() < callers-1 {
		time.Sleep(time.Millisecond)
	}
	w.arm(0, 0)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if n := w.count(); n > callers/2 { // the rollback, and the statement of all others, which a new connection has to prepare
		t.Errorf("%d round trips for %d commits", n, callers-1)
	}
	if recs, _, err := s.List(t.Context(), store.Range{}); err != nil || len(recs) != callers {
		t.Errorf("%d records, %v", len(recs), err)
	}
}

// A commit waits for a transaction of the caller, gives up with its context, and leaves no trace if it did not begin.
func TestWaitsForTheLock(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		db := reopen()
		s := openIn(t, reopen(), Options{})
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.WithTx(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "a"}})
		if !errors.Is(err, context.DeadlineExceeded) || !store.Retryable(err) || s.file != nil && errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Errorf("%v", err)
		}
		unknown := errors.Is(err, ipalloc.ErrUnknownOutcome)
		done := make(chan error)
		go func() {
			_, err := s.Commit(context.Background(), []store.Op{{Kind: store.Put, Key: "b"}})
			done <- err
		}()
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if rec := get(t, s, "a"); rec.Rev != 0 && !unknown {
			t.Errorf("made: %v", rec)
		}
	})
}

// Deadlocks and serialisation failures do not reach the caller of a commit.
func TestSerialisationFailures(t *testing.T) {
	dsn := postgresSchema(t) + " default_transaction_isolation=serializable"
	var wg sync.WaitGroup
	for w := range 4 {
		s := openIn(t, connect(t, "pgx", dsn), Options{})
		wg.Go(func() {
			for i := range 25 {
				if _, err := s.Commit(context.Background(), []store.Op{{Kind: store.Put, Key: fmt.Sprint(w, i)}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// The modes of pgx that poolers ask for: statements that are not prepared.
func TestQueryModes(t *testing.T) {
	for _, mode := range []string{"exec", "cache_describe", "describe_exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			s := openIn(t, connect(t, "pgx", postgresSchema(t)+" default_query_exec_mode="+mode), Options{})
			rev := put(t, s, "a\x00\xff", "1\x00\xff")
			if rec := get(t, s, "a\x00\xff"); rec.Value != "1\x00\xff" || rec.Rev != rev {
				t.Errorf("%+v", rec)
			}
			if recs, _, err := s.List(t.Context(), store.Range{From: "a"}); err != nil || len(recs) != 1 {
				t.Errorf("%v, %v", recs, err)
			}
			if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "a\x00\xff"}, {Kind: store.Delete, Key: "b", Expect: store.AnyRevision}}); !errors.Is(err, ipalloc.ErrConflict) {
				t.Error(err)
			}
			if ev := <-follow(t, s, 0); ev.Rev != rev {
				t.Errorf("%+v", ev)
			}
		})
	}
}

// Stores in several pools increment one counter: no two commits have one revision, and none is lost.
func TestManyStores(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		const stores, rounds = 4, 15
		var mu sync.Mutex
		revs := make(map[uint64]bool)
		var wg sync.WaitGroup
		for range stores {
			s := openIn(t, reopen(), Options{})
			wg.Go(func() {
				for i := 0; i < rounds; {
					recs, err := s.Get(context.Background(), nil, "n")
					if err != nil {
						t.Error(err)
						return
					}
					rev, err := s.Commit(context.Background(), []store.Op{{Kind: store.Put, Key: "n", Value: recs[0].Value + "x", Expect: recs[0].Rev}})
					if errors.Is(err, ipalloc.ErrConflict) {
						continue
					}
					i++
					mu.Lock()
					if err != nil || revs[rev] {
						t.Errorf("revision %d twice, or %v", rev, err)
					}
					revs[rev] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if n := len(get(t, openIn(t, reopen(), Options{}), "n").Value); n != stores*rounds {
			t.Errorf("counted to %d, want %d", n, stores*rounds)
		}
	})
}

// A transaction that fails in passing is made again, a limited number of times. The error of one that may have been made is that of
// the context, if it has ended.
func TestTransactionsAreRepeated(t *testing.T) {
	s := openIn(t, sqliteFile(t), Options{})
	for attempt, want := range map[int]bool{1: true, attempts - 1: true, attempts: false} {
		if got := s.repeat(nil, attempt, driver.ErrBadConn); got != want {
			t.Errorf("attempt %d: %v", attempt, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := unknown(ctx, io.ErrUnexpectedEOF); !errors.Is(err, context.Canceled) || !errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) {
		t.Error(err)
	}
}

// Each statement of a commit fails once: the commit fails, and changes nothing.
func TestStatementsFail(t *testing.T) {
	db := sqliteFile(t)
	s := openIn(t, db, Options{})
	put(t, s, "old", "1")
	before, _, err := s.List(t.Context(), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"INSERT ON ipalloc_records", "DELETE ON ipalloc_records", "INSERT ON ipalloc_changes", "UPDATE ON ipalloc_meta"} {
		run(t, db, "CREATE TRIGGER fails BEFORE "+when+" BEGIN SELECT RAISE(ABORT, 'made up'); END")
		ops := []store.Op{{Kind: store.Put, Key: "new", Expect: 0}, {Kind: store.Delete, Key: "old", Expect: before[0].Rev}}
		if _, err := s.Commit(t.Context(), ops); err == nil || !strings.Contains(err.Error(), "made up") || errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Errorf("%s: %v", when, err)
		}
		tx := begin(t, db)
		in, err := s.WithTx(t.Context(), tx)
		if err == nil {
			_, err = in.Commit(t.Context(), ops)
		}
		if err == nil || !strings.Contains(err.Error(), "made up") {
			t.Errorf("%s in a transaction: %v", when, err)
		}
		if err := tx.Commit(); err != nil { // against the advice
			t.Fatal(err)
		}
		run(t, db, "DROP TRIGGER fails")
		if after, _, err := s.List(t.Context(), store.Range{}); err != nil || !slices.Equal(after, before) {
			t.Errorf("%s: %v, %v", when, after, err)
		}
	}
	put(t, s, "new", "2")
}
