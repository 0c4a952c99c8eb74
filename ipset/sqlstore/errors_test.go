package sqlstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A full database fails the commit and changes nothing; commits succeed when there is room again.
func TestNoSpace(t *testing.T) {
	db := sqliteFile(t)
	db.SetMaxOpenConns(1) // the bound is one connection's
	s := openIn(t, db, Options{})
	run(t, db, "PRAGMA max_page_count = 20")
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		_, err = s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: fmt.Sprint(n), Value: strings.Repeat("v", 1000)}})
	}
	if !errors.Is(err, ipalloc.ErrLimit) || errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) {
		t.Fatalf("after %d commits: %v", n, err)
	}
	if recs, _, err := s.List(t.Context(), store.Range{}); err != nil || len(recs) != n-1 {
		t.Errorf("%d records after %d commits, %v", len(recs), n-1, err)
	}
	run(t, db, "PRAGMA max_page_count = 2000")
	put(t, s, "more", "")
}

// A commit that has no room takes none of those down that wait with it and have it.
func TestNoSpaceForOneOfSeveral(t *testing.T) {
	path := "file:" + filepath.Join(t.TempDir(), "store.db")
	db, other := connect(t, "sqlite", path), connect(t, "sqlite", path)
	db.SetMaxOpenConns(1) // the bound is one connection's
	s := openIn(t, db, Options{})
	run(t, db, "PRAGMA max_page_count = 40")
	tx, err := other.BeginTx(t.Context(), nil) // holds the lock until all have come
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := openIn(t, other, Options{}).WithTx(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		value := strings.Repeat("v", i%2<<20)
		wg.Go(func() {
			_, errs[i] = s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: fmt.Sprint(i), Value: value}})
		})
	}
	for s.queue.Waiting() < len(errs) {
		time.Sleep(time.Millisecond)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for i, err := range errs {
		if i%2 == 1 && !errors.Is(err, ipalloc.ErrLimit) || i%2 == 0 && err != nil {
			t.Errorf("commit %d: %v", i, err)
		}
	}
	if recs, _, err := s.List(t.Context(), store.Range{}); err != nil || len(recs) != 3 {
		t.Errorf("%d records, want 3, %v", len(recs), err)
	}
}

// What an error says about the call, and whether a COMMIT that ended so may have been made.
func TestErrorStates(t *testing.T) {
	pg := func(code, severity string) error {
		return &pgconn.PgError{Code: code, Severity: severity, SeverityUnlocalized: severity}
	}
	for _, tt := range []struct {
		err  error
		want state
	}{
		{pg("40001", "ERROR"), state{retry: true, traceless: true}},
		{pg("40P01", "ERROR"), state{retry: true, traceless: true}},
		{pg("57014", "ERROR"), state{retry: true, traceless: true}}, // cancelled, by a statement_timeout
		{pg("57P01", "FATAL"), state{retry: true}},
		{pg("57P02", "FATAL"), state{retry: true}},
		{&unsent{pg("57P03", "FATAL")}, state{retry: true, traceless: true}},
		{&unsent{pg("28P01", "FATAL")}, state{traceless: true}},
		{pg("42501", "ERROR"), state{traceless: true}}, // permission denied
		{pg("42P01", "ERROR"), state{absent: true, traceless: true}},
		{pg("42883", "ERROR"), state{taken: true, traceless: true}},
		{pg("25P03", "FATAL"), state{retry: true}}, // idle in a transaction for too long
		{&unsent{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}, state{traceless: true}},
		{&unsent{errors.New("server refused TLS connection")}, state{traceless: true}},
		{pg("42703", "ERROR"), state{foreign: true, traceless: true}},
		{pg("53100", "ERROR"), state{full: true, traceless: true}},
		{driver.ErrBadConn, state{retry: true, traceless: true}},
		{sql.ErrConnDone, state{retry: true, traceless: true}},
		{io.ErrUnexpectedEOF, state{retry: true}},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, state{retry: true}},
		{errors.New("anything"), state{}},
		{pg("55P03", "ERROR"), state{retry: true, traceless: true}},  // a lock_timeout
		{pg("53300", "FATAL"), state{retry: true}},                   // too many connections
		{pg("08006", "FATAL"), state{retry: true}},                   // the connection failed
		{pg("25006", "ERROR"), state{retry: true, traceless: true}},  // a standby
		{pg("25P04", "FATAL"), state{retry: true}},                   // a transaction_timeout
		{pg("3F000", "ERROR"), state{absent: true, traceless: true}}, // no such schema
		{pg("42P13", "ERROR"), state{taken: true, traceless: true}},  // the function returns something else
		{pg("42725", "ERROR"), state{taken: true, traceless: true}},  // there are two of that name
		{pg("57P01", "ERROR"), state{retry: true, traceless: true}},  // the server ends
		{pg("", "ERROR"), state{traceless: true}},                    // of a pooler
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, state{traceless: true}},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, state{traceless: true}},
		{tls.AlertError(40), state{traceless: true}},
		{&unsent{io.EOF}, state{retry: true, traceless: true}},
		{&unsent{ipalloc.ErrReplaced}, state{traceless: true}},
		{ipalloc.ErrReplaced, state{traceless: true}},
		{errStandby, state{retry: true, traceless: true}},
		{io.EOF, state{retry: true}},
	} {
		if got := stateOf(fmt.Errorf("wrapped: %w", tt.err)); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.err, got, tt.want)
		}
	}
	for code, want := range map[int]state{
		5: {retry: true, traceless: true, locked: true}, 517: {retry: true, traceless: true, locked: true}, 6: {retry: true, traceless: true, locked: true},
		13: {full: true, traceless: true}, 10: {}, 10 | 4<<8: {}, 19: {traceless: true},
	} {
		if got := sqliteState(code, ""); got != want {
			t.Errorf("SQLite %d: %+v, want %+v", code, got, want)
		}
	}
}

// An error that a call was given while it was repeated wraps the error of its context.
func TestErrorsWrapTheContexts(t *testing.T) {
	db := connect(t, "pgx", "host="+t.TempDir()+" user=postgres") // nothing listens
	s := &Store{db: db, d: postgres{}, q: newQueries(postgres{}, "ipalloc_")}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, errGet := s.Get(ctx, nil, "a")
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, errOpen := Open(ctx, db, Options{})
	for _, err := range []error{errGet, errOpen} {
		if !errors.Is(err, context.DeadlineExceeded) || !store.Retryable(err) {
			t.Error(err)
		}
	}
}
