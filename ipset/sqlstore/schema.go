package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/sqlstore/internal/driver"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// dialect is what differs between the kinds of database.
type dialect interface {
	// poll is the default of Options.Poll.
	poll() time.Duration
	// check refuses a database that a store cannot be in, or cannot be durable in. It changes nothing that holds something.
	check(ctx context.Context, s *Store) error
	// settle brings a database with a store into the state that commits need, or refuses it.
	settle(ctx context.Context, s *Store) error
	// code are the statements that make what belongs to the program in the schema.
	code() []string
	// lockSchema is the first statement of a transaction that creates or changes tables; it admits one at a time.
	lockSchema() string
	// tables are the statements that make the tables of an empty store.
	tables() []string
	// mostKeys is how many keys keyIn takes.
	mostKeys() int
	// keyIn returns a condition on column that holds for each of the keys, and its arguments, the first of which is number n.
	keyIn(column string, n int, keys [][]byte) (string, []any)
	// empty is the literal of a key without bytes.
	empty() string
	// behind returns the error of a server whose reads are behind those of another.
	behind(ctx context.Context, q querier) error
	// current is a condition that no row of a server meets whose reads are behind, or "".
	current() string
	// lock takes the lock of the store until the transaction ends, and returns the revision. since must be a revision of its past.
	lock(ctx context.Context, s *Store, tx *sql.Tx, since uint64) (uint64, error)
	// transact makes the commits of a batch in one transaction. take returns the batch, and a context that ends with those
	// of its callers; it is called at most once. since must be a revision of the store's past. An error that is no
	// *uncertain left no trace.
	transact(s *Store, since uint64, take func() (context.Context, []*call)) ([]result, error)
	// pause returns the wait after an attempt, counted from 1.
	pause(attempt int) time.Duration
	// within makes one commit in a transaction of the caller, all or nothing.
	within(ctx context.Context, s *Store, tx *sql.Tx, ops []store.Op) (result, error)
	// listen calls wake for each commit of another process until ctx ends; it returns early if it cannot.
	listen(ctx context.Context, s *Store, wake func())
}

// format and version are in the meta table of every store.
const (
	format  = "ipalloc store"
	version = 1 // of the tables
)

// live is the condition that the store with the identity $1 is there, with its records, and that $2 is a revision of its past.
// A past older than the horizon is not known any more. The record with the empty key, which no caller can write, tells a table
// that was emptied from one without records.
const live = `WHERE m.id = $1 AND ` + stands

const stands = `EXISTS (SELECT 1 FROM ipalloc_records w WHERE w.key = EMPTY)
	AND (m.rev = $2 OR m.horizon >= $2 OR EXISTS (SELECT 1 FROM ipalloc_changes p WHERE p.rev = $2))`

// queries are the statements that every call of a store shares, with the names of its tables.
type queries struct {
	prefix, empty                               string
	live, meta, get, list, reverse, watch, lock string
}

func newQueries(d dialect, prefix string) queries {
	q := queries{prefix: prefix, empty: d.empty()}
	q.live = q.name(live + d.current())
	list := `SELECT m.rev, r.key, r.value, r.rev FROM ipalloc_meta m LEFT JOIN (SELECT key, value, rev FROM ipalloc_records
		WHERE key >= $3 AND key < $4 ORDER BY key %sLIMIT $5) r ON 1 = 1 `
	q.meta = q.name(`SELECT format, version, id, rev FROM ipalloc_meta`)
	q.get = q.name(`SELECT m.rev, r.key, r.value, r.rev FROM ipalloc_meta m LEFT JOIN ipalloc_records r ON `)
	q.list = q.name(fmt.Sprintf(list, "")) + q.live
	q.reverse = q.name(fmt.Sprintf(list, "DESC ")) + q.live
	q.watch = q.name(`SELECT m.rev, m.horizon, c.rev, c.key, c.value, c.value IS NULL FROM ipalloc_meta m LEFT JOIN ipalloc_changes c ON c.rev > $3 AND c.rev <= $4`)
	q.lock = q.name(`UPDATE ipalloc_meta AS m SET rev = rev `) + q.live + ` RETURNING rev`
	return q
}

// name returns a statement with the names of the store's tables.
func (q queries) name(text string) string {
	return strings.NewReplacer("ipalloc_", q.prefix, "EMPTY", q.empty).Replace(text)
}

// detect asks what kind of database it is: PostgreSQL answers that it does not know the function.
func detect(ctx context.Context, db *sql.DB) (dialect, error) {
	var release string
	err := db.QueryRowContext(ctx, `SELECT sqlite_version()`).Scan(&release)
	var server interface{ SQLState() string } // of every driver for PostgreSQL that is in use
	switch {
	case err == nil:
		return sqlite{}, nil
	case !errors.As(err, &server) || server.SQLState() != undefinedFunction:
		return nil, err
	}
	if _, known := driver.Reported(err); !known {
		return nil, invalid("db", fmt.Sprintf("the driver %T is not known: import _ %q and open with it", db.Driver(), "github.com/ipalloc/ipalloc/ipset/sqlstore/pgx"))
	}
	return postgres{}, nil
}

// meta is the row that tells what a database holds.
type meta struct {
	version int
	id      string
	rev     uint64
}

// readMeta reads it; ok is false if there is no such table, or no row in it.
func (s *Store) readMeta(ctx context.Context, q querier) (m meta, ok bool, err error) {
	var kind string
	err = q.QueryRowContext(ctx, s.q.meta).Scan(&kind, &m.version, &m.id, &m.rev)
	switch {
	case errors.Is(err, sql.ErrNoRows), err != nil && stateOf(err).absent:
		return m, false, nil
	case err != nil && stateOf(err).foreign:
		return m, false, mismatch("the table %smeta is not a store's: %v", s.q.prefix, err)
	case err != nil:
		return m, false, err
	case kind != format || m.version < 1:
		return m, false, mismatch("the table %smeta is not a store's: format %q, version %d", s.q.prefix, kind, m.version)
	}
	return m, true, nil
}

// prepare finds the store, and makes or adopts it where that is needed.
func (s *Store) prepare(ctx context.Context) error {
	m, ok, err := s.readMeta(ctx, s.db)
	if err != nil {
		return err
	}
	switch {
	case ok && m.version != version:
		return otherVersion(m.version)
	case !ok && s.opts.NoCreate:
		return &ipalloc.Error{Package: "sqlstore", Op: "open", Text: s.q.prefix, Reason: "no store with this prefix in the database", Err: ipalloc.ErrNotFound}
	case ok && !s.opts.Adopt:
		s.id = m.id
		if err = s.d.settle(ctx, s); err == nil {
			return s.seen(m.rev, 0)
		}
		if err != errNoFunction || s.opts.NoCreate {
			return err
		}
	}
	if err := s.make(ctx); err != nil {
		return err
	}
	return s.d.settle(ctx, s)
}

// make makes or adopts the store in one transaction.
func (s *Store) make(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if _, err := tx.ExecContext(ctx, s.q.name(s.d.lockSchema())); err != nil {
		return err
	}
	m, ok, err := s.readMetaLocked(ctx, tx)
	if err != nil {
		return err
	}
	texts := s.d.code()
	switch {
	case !ok:
		texts = append(s.d.tables(), texts...)
	case m.version != version:
		return otherVersion(m.version)
	}
	for _, text := range texts {
		if _, err := tx.ExecContext(ctx, s.q.name(text)); err != nil {
			return s.foreign(err)
		}
	}
	switch {
	case !ok:
		m.id = rand.Text()
		insert := s.q.name(`INSERT INTO ipalloc_meta (one, format, version, id, rev, horizon) VALUES (1, $1, $2, $3, 0, 0)`)
		if _, err = tx.ExecContext(ctx, insert, format, version, m.id); err == nil {
			_, err = tx.ExecContext(ctx, s.q.name(`INSERT INTO ipalloc_records (key, rev, value) VALUES (EMPTY, 0, EMPTY)`))
		}
	case s.opts.Adopt:
		m.id = rand.Text()
		_, err = tx.ExecContext(ctx, s.q.name(`UPDATE ipalloc_meta SET id = $1`), m.id)
	}
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.id = m.id
	return s.seen(m.rev, 0)
}

// readMetaLocked is readMeta in a transaction, which a failed statement would end in PostgreSQL.
func (s *Store) readMetaLocked(ctx context.Context, tx *sql.Tx) (meta, bool, error) {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT ipalloc`); err != nil {
		return meta{}, false, err
	}
	m, ok, err := s.readMeta(ctx, tx)
	if err == nil && !ok {
		_, err = tx.ExecContext(ctx, `ROLLBACK TO SAVEPOINT ipalloc`)
	}
	return m, ok, err
}

// foreign returns the error of a statement that makes the schema: a table that is in the way is not the store's.
func (s *Store) foreign(err error) error {
	st := stateOf(err)
	if st.retry || st.full || !st.traceless || !st.taken && !strings.Contains(err.Error(), "exists") {
		return err
	}
	return mismatch("the database holds no store, but a table or function of that name: %v", err)
}
