package sqlstore

import (
	"context"
	"crypto/tls"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/sqlstore/internal/driver"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// retryable is [store.Retryable], and judges what a *sql.Tx has returned to a function of [Store.InTx] as well.
func retryable(err error) bool {
	return store.Retryable(err) || !errors.As(err, new(*ipalloc.Error)) && stateOf(err).retry
}

// failure returns the error of a call that left no trace. It returns err itself if that is an *ipalloc.Error already.
func (s *Store) failure(ctx context.Context, op string, err error) error {
	if err == nil || errors.As(err, new(*ipalloc.Error)) {
		return err
	}
	return &ipalloc.Error{Package: "sqlstore", Op: op, Err: causeOf(ctx, err)}
}

// unknown returns the error of a commit that may have been made.
func unknown(ctx context.Context, err error) error {
	c := causeOf(ctx, err)
	c.Kind = ipalloc.ErrUnknownOutcome
	return &ipalloc.Error{Package: "sqlstore", Op: "commit", Err: c}
}

func unknownOutcome(err error) bool { return errors.Is(err, ipalloc.ErrUnknownOutcome) }

// isNil returns the error of an argument of a transaction that is nil.
func isNil(field string) error {
	return &ipalloc.Error{Package: "sqlstore", Op: "begin", Field: field, Reason: "is nil", Err: ipalloc.ErrInvalid}
}

// mismatch returns the error of a database that holds something else than the caller expects.
func mismatch(format string, args ...any) error {
	return &ipalloc.Error{Package: "sqlstore", Op: "open", Reason: fmt.Sprintf(format, args...), Err: ipalloc.ErrMismatch}
}

// otherVersion returns the error of a store whose tables have a version that this release does not read.
func otherVersion(found int) error {
	return &ipalloc.Error{Package: "sqlstore", Op: "open", Err: ipalloc.ErrVersion,
		Reason: fmt.Sprintf("the store has version %d of the schema, this release reads version %d", found, version)}
}

// causeOf classifies an error of a call that left no trace.
func causeOf(ctx context.Context, err error) *store.Cause {
	if e := ctx.Err(); e != nil {
		retry := errors.Is(e, context.DeadlineExceeded)
		if !errors.Is(err, e) && !errors.Is(err, context.Canceled) { // what was in the way until then
			e = fmt.Errorf("%w, after: %w", e, err)
		}
		return &store.Cause{Err: e, Retry: retry}
	}
	if errors.Is(err, ipalloc.ErrReplaced) {
		return &store.Cause{Err: err}
	}
	if errors.Is(err, sql.ErrTxDone) || err.Error() == closedDB {
		return &store.Cause{Kind: ipalloc.ErrClosed, Err: err}
	}
	st := stateOf(err)
	c := &store.Cause{Err: err, Retry: st.retry}
	switch {
	case st.absent:
		c.Kind = ipalloc.ErrReplaced
	case st.taken:
		c.Kind = ipalloc.ErrMismatch
	case st.full:
		c.Kind = ipalloc.ErrLimit
	}
	return c
}

// closedDB is the text of the error of a *sql.DB that was closed, for which package sql has no variable.
const closedDB = "sql: database is closed"

// state is what the error of a driver means.
type state struct {
	retry  bool // it passes by itself
	locked bool // as soon as another process gives back the lock of the file: a call waits for it for as long as its context lasts
	absent bool // a table of the store does not exist
	full   bool // no room
	away   bool // the database has another name or admits no connections, which passes for a store that was open
	// foreign: a table of that name has other columns.
	foreign bool
	// taken: the function of the store does not exist, or another one has its name.
	taken bool
	// traceless: the database reports that the statement or the COMMIT was not carried out and will not be, or was
	// never given it.
	traceless bool
}

// stateOf classifies the error of a driver.
func stateOf(err error) state {
	var lite interface {
		error
		Code() int
	}
	if u := (*unsent)(nil); errors.As(err, &u) {
		st := stateOf(u.error)
		st.traceless = true
		return st
	}
	if report, ok := driver.Reported(err); ok {
		return postgresState(report)
	}
	switch {
	case untrusted(err):
		return state{traceless: true}
	case errors.As(err, &lite):
		return sqliteState(lite.Code(), lite.Error())
	case driver.Unsent(err):
		return state{retry: true, traceless: true}
	case errors.Is(err, sqldriver.ErrBadConn), errors.Is(err, sql.ErrConnDone): // only of what was not sent
		return state{retry: true, traceless: true}
	case errors.Is(err, ipalloc.ErrReplaced):
		return state{traceless: true}
	case errors.Is(err, errStandby), errors.Is(err, errForgotten): // it may be promoted, or the next connection leads to the primary
		return state{retry: true, traceless: true}
	}
	var network net.Error
	return state{retry: errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)}
}

// untrusted reports whether TLS failed: a certificate of an unknown authority or another name, or a server without TLS. Such an
// error does not pass by itself.
func untrusted(err error) bool {
	if err == nil {
		return false
	}
	if errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.AlertError)) || errors.As(err, new(tls.RecordHeaderError)) {
		return true
	}
	return strings.Contains(err.Error(), "server refused TLS connection") // pgx has no type for it
}

// undefinedFunction is what PostgreSQL reports of a function that does not exist.
const undefinedFunction = "42883"

// postgresState classifies what a PostgreSQL server reports. After an ERROR the server has rolled back; a FATAL or PANIC ends
// the connection, possibly after a COMMIT was carried out.
func postgresState(pg driver.Report) state {
	st := state{traceless: pg.Severity == "ERROR"}
	switch {
	case pg.Code == "40001", pg.Code == "40P01", pg.Code == "55P03": // serialisation, deadlock, lock not available
		st.retry = true
	case pg.Code[:min(2, len(pg.Code))] == "57", pg.Code == "53300", pg.Code[:min(2, len(pg.Code))] == "08": // shutdown, starting up; too many connections
		st.retry = true
	case pg.Code == "25006": // read-only: a standby that may be promoted
		st.retry = true
	case pg.Code == "25P03", pg.Code == "25P04": // idle in a transaction, or in one, for too long
		st.retry = true
	case pg.Code == "42P01", pg.Code == "3F000": // undefined table, schema
		st.absent = true
	case pg.Code == undefinedFunction, pg.Code == "42P13", pg.Code == "42725": // undefined function; another one of that name
		st.taken = true
	case pg.Code == "3D000", pg.Code == "55000" && pg.Severity == "FATAL": // undefined database; one that admits no connections
		st.away = true
	case pg.Code == "42703": // undefined column
		st.foreign = true
	case pg.Code == "53100":
		st.full = true
	}
	return st
}
