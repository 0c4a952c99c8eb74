package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// sqlite is the dialect of SQLite. A commit is some statements in a transaction; the calls do not leave the process.
type sqlite struct{}

func (sqlite) poll() time.Duration { return 100 * time.Millisecond }

// lockSchema takes the lock of the file, because it writes: a transaction that began by reading could not write after another.
func (sqlite) lockSchema() string { return sqliteMeta }

const sqliteMeta = `CREATE TABLE IF NOT EXISTS ipalloc_meta (one INTEGER PRIMARY KEY CHECK (one = 1), format TEXT NOT NULL,
	version INTEGER NOT NULL, id TEXT NOT NULL, rev INTEGER NOT NULL, horizon INTEGER NOT NULL) STRICT`

// tables returns tables with a rowid and the value in the last column, so that a search for a key skips no large values.
func (sqlite) tables() []string {
	return []string{
		`CREATE TABLE ipalloc_records (key BLOB NOT NULL PRIMARY KEY, rev INTEGER NOT NULL, value BLOB NOT NULL) STRICT`,
		`CREATE TABLE ipalloc_changes (rev INTEGER NOT NULL, key BLOB NOT NULL, value BLOB) STRICT`,
		`CREATE INDEX ipalloc_changes_rev ON ipalloc_changes (rev)`,
	}
}

// check refuses a database in memory, and asks whether a commit waits for the disk. It sets the mode of a file that is still
// empty to 0600, because a user that can read a SQLite file can block all its writers.
func (sqlite) check(ctx context.Context, s *Store) error {
	if err := s.db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&s.path); err != nil {
		return err
	}
	if s.path == "" {
		return invalid("db", "is a SQLite database in memory; use store.NewMemory")
	}
	var err error
	if s.file, err = os.Stat(s.path); err != nil {
		return err
	}
	if s.file.Size() == 0 && !s.opts.NoCreate {
		if err := os.Chmod(s.path, 0o600); err != nil {
			return err
		}
	}
	var synchronous int
	if err := s.db.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&synchronous); err != nil {
		return err
	}
	if synchronous < 2 && !s.opts.NoSync {
		return invalid("db", "has synchronous below FULL, so a commit would not wait for the disk; see Options.NoSync")
	}
	return nil
}

// settle sets the WAL mode, which the file keeps.
func (sqlite) settle(ctx context.Context, s *Store) error {
	var mode string
	if err := s.db.QueryRowContext(ctx, `PRAGMA journal_mode = WAL`).Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return invalid("db", fmt.Sprintf("keeps the journal mode %q; the store needs wal", mode))
	}
	return nil
}

func (sqlite) code() []string { return nil }

// mostKeys keeps a statement below SQLite's bound of 32,766 arguments, and its preparation, which is quadratic, short.
func (sqlite) mostKeys() int { return 512 }

// sameFile verifies that the file of the database is the one that Open found: connections keep a removed one open.
func (s *Store) sameFile() error {
	if s.file == nil {
		return nil
	}
	if now, err := os.Stat(s.path); err != nil || !os.SameFile(now, s.file) {
		return fmt.Errorf("%w: the file %s is another one", ipalloc.ErrReplaced, s.path)
	}
	return nil
}

func (sqlite) keyIn(column string, n int, keys [][]byte) (string, []any) {
	var text strings.Builder
	args := make([]any, len(keys))
	for i, k := range keys {
		args[i] = k
		fmt.Fprintf(&text, ",$%d", n+i)
	}
	return column + " IN (" + text.String()[1:] + ")", args
}

func (sqlite) empty() string { return "x''" }

func (sqlite) current() string { return "" }

func (sqlite) behind(context.Context, querier) error { return nil }

// lock writes, because only a writer has the lock of the file.
func (sqlite) lock(ctx context.Context, s *Store, tx *sql.Tx, since uint64) (rev uint64, err error) {
	err = tx.QueryRowContext(ctx, s.q.lock, s.id, int64(since)).Scan(&rev)
	if errors.Is(err, sql.ErrNoRows) {
		err = s.gone(ctx, tx, since)
	}
	return rev, err
}

// The lock of a file has no queue: the first process that asks when it is free gets it. It is shared fairly if all ask equally
// often, so a writer that has just had it waits as long as the others, while there are others.
const (
	lockPoll  = 2 * time.Millisecond
	shareNext = 16 // transactions after one of another writer
)

func (sqlite) pause(int) time.Duration { return rand.N(lockPoll) }

// rivals notes whether others wrote since the last transaction of the store's queue.
func (w *liteWriter) rivals() {
	if s := w.s; s.mine != 0 && s.mine != w.was {
		s.share = shareNext
	}
	w.s.mine = w.rev
}

// ownPolling has a connection report a locked file at once, in place of the waits of SQLite's own, which grow. restore ends that.
func ownPolling(ctx context.Context, conn *sql.Conn) (restore func(), err error) {
	var was int
	if err := conn.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&was); err != nil || was == 0 {
		return func() {}, err
	}
	set := func(ms int) error {
		_, err := conn.ExecContext(ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, ms))
		return err
	}
	return func() { _ = set(was) }, set(0)
}

// transact waits for the lock of the file before it takes the batch, so that all who wait meanwhile share the transaction.
// Statements are not cut off when ctx ends: they do not wait, and an interrupted one ends its transaction.
func (d sqlite) transact(s *Store, since uint64, take func() (context.Context, []*call)) ([]result, error) {
	ctx := context.Background()
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	restore, err := ownPolling(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer restore()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	w, err := d.begin(ctx, s, tx, since)
	if err != nil {
		return nil, err
	}
	_, batch := take()
	results := make([]result, len(batch))
	for i, c := range batch {
		if results[i], err = w.commit(ctx, c.Ops); err != nil {
			return nil, err
		}
	}
	if err := w.end(ctx); err != nil {
		return nil, err
	}
	if err := tx.Commit(); err != nil {
		if !stateOf(err).traceless {
			err = &uncertain{err}
		}
		return nil, err
	}
	w.rivals()
	return results, nil
}

// within uses a savepoint, because a commit is several statements.
func (d sqlite) within(ctx context.Context, s *Store, tx *sql.Tx, ops []store.Op) (result, error) {
	ctx = context.WithoutCancel(ctx)
	if _, err := tx.ExecContext(ctx, `SAVEPOINT ipalloc`); err != nil {
		return result{}, err
	}
	var res result
	w, err := d.begin(ctx, s, tx, 0)
	if err == nil {
		res, err = w.commit(ctx, ops)
	}
	if err == nil {
		err = w.end(ctx)
	}
	if err != nil {
		_, _ = tx.ExecContext(ctx, `ROLLBACK TO ipalloc`)
		return result{}, err
	}
	_, err = tx.ExecContext(ctx, `RELEASE ipalloc`)
	return res, err
}

// listen only waits: SQLite tells other processes nothing.
func (sqlite) listen(ctx context.Context, _ *Store, _ func()) { <-ctx.Done() }

// liteWriter makes commits in a transaction.
type liteWriter struct {
	s                     *Store
	tx                    *sql.Tx
	rev, was              uint64
	find, put, drop, note *sql.Stmt
}

// begin takes the lock of the file and prepares the statements of a commit; they end with the transaction.
func (d sqlite) begin(ctx context.Context, s *Store, tx *sql.Tx, since uint64) (*liteWriter, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	rev, err := d.lock(ctx, s, tx, since)
	if err != nil {
		return nil, err
	}
	w := &liteWriter{s: s, tx: tx, rev: rev, was: rev}
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&w.find, `SELECT rev FROM ipalloc_records WHERE key = $1`},
		{&w.put, `INSERT INTO ipalloc_records (key, value, rev) VALUES ($1, $2, $3) ON CONFLICT (key) DO UPDATE SET value = excluded.value, rev = excluded.rev`},
		{&w.drop, `DELETE FROM ipalloc_records WHERE key = $1`},
		{&w.note, `INSERT INTO ipalloc_changes (rev, key, value) VALUES ($1, $2, $3)`},
	} {
		if *p.stmt, err = tx.PrepareContext(ctx, s.q.name(p.text)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// commit makes one commit unless an expectation fails. After an error the transaction holds a part of it.
func (w *liteWriter) commit(ctx context.Context, ops []store.Op) (result, error) {
	for i := range ops {
		op := &ops[i]
		if op.Expect == store.AnyRevision {
			continue
		}
		have := uint64(0)
		if err := w.find.QueryRowContext(ctx, []byte(op.Key)).Scan(&have); err != nil && err != sql.ErrNoRows {
			return result{}, err
		}
		if have != op.Expect {
			return result{conflict: i + 1}, nil
		}
	}
	next := stepAfter(w.rev, uint64(salts(1)[0]))
	for i := range ops {
		wrote, err := w.write(ctx, &ops[i], next)
		if err != nil {
			return result{}, err
		}
		if wrote { // a revision without a change would be in nobody's past
			w.rev = next
		}
	}
	return result{rev: w.rev}, nil
}

// write reports whether it changed the record.
func (w *liteWriter) write(ctx context.Context, op *store.Op, rev uint64) (bool, error) {
	key, value := []byte(op.Key), []byte(nil)
	switch op.Kind {
	case store.Put:
		value = []byte(op.Value)
		if _, err := w.put.ExecContext(ctx, key, value, rev); err != nil {
			return false, err
		}
	case store.Delete:
		res, err := w.drop.ExecContext(ctx, key)
		if err != nil {
			return false, err
		}
		if n, err := res.RowsAffected(); n == 0 || err != nil {
			return false, err
		}
	default:
		return false, nil
	}
	_, err := w.note.ExecContext(ctx, rev, key, value)
	return true, err
}

// compactEvery is how many commits there are from one removal of old changes to the next.
const compactEvery = 64

// end writes the revision, and now and then removes changes that are older than the history.
func (w *liteWriter) end(ctx context.Context) error {
	if w.rev == w.was {
		return nil
	}
	horizon := uint64(0)
	commits, before, keep := w.rev>>pastBits, w.was>>pastBits, uint64(w.s.opts.History)
	if commits/compactEvery > before/compactEvery && commits > keep {
		horizon = (commits-keep+1)<<pastBits - 1
		if _, err := w.tx.ExecContext(ctx, w.s.q.name(`DELETE FROM ipalloc_changes WHERE rev <= $1`), horizon); err != nil {
			return err
		}
	}
	_, err := w.tx.ExecContext(ctx, w.s.q.name(`UPDATE ipalloc_meta SET rev = $1, horizon = max(horizon, $2)`), w.rev, horizon)
	return err
}

// sqliteState classifies a result code of SQLite. After an error of the disk during a COMMIT the log may hold the transaction.
func sqliteState(code int, text string) state {
	switch code & 0xff {
	case 5, 6, 15: // busy, locked, locking protocol
		return state{retry: true, traceless: true, locked: true}
	case 10: // I/O error
		return state{}
	case 13: // full
		return state{full: true, traceless: true}
	}
	return state{traceless: true, absent: strings.Contains(text, "no such table"), foreign: strings.Contains(text, "no such column")}
}
