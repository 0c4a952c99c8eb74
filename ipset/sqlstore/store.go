package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/combine"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Options are the options of [Open]; the zero value is useful.
type Options struct {
	// Prefix begins the names of the store's tables; "" is "ipalloc_". Stores with different prefixes share a database.
	Prefix string
	// NoCreate refuses a database that holds no store.
	NoCreate bool
	// Adopt gives the store a new identity: every store opened before ends with [ipalloc.ErrReplaced]. Set it once after a restore.
	Adopt bool
	// NoSync accepts connections that do not wait for the disk: SQLite's synchronous below FULL, PostgreSQL's
	// synchronous_commit off. Acknowledged commits then survive a crash of the process but not of the machine.
	NoSync bool
	// History is the number of commits kept for watches; 0 is 10,000. Every 64th commit removes older ones, by the History of the
	// store that makes it.
	History int
	// Poll is the interval between queries of a watch for commits of other processes. The default is 100 ms in SQLite and 1 s in
	// PostgreSQL, where a notification usually arrives first.
	Poll time.Duration
}

// Store is a store.Store in a SQL database. [Open] makes one. All methods are safe for concurrent use; any number of stores, in
// any number of processes, may work on one database.
//
// It holds nothing that must be closed; the *sql.DB is the caller's, and must outlive it.
type Store struct {
	db    *sql.DB
	d     dialect
	q     queries
	opts  Options
	id    string      // of the store in the database
	file  os.FileInfo // of a SQLite database
	path  string
	high  atomic.Uint64         // the highest revision seen
	lost  atomic.Pointer[error] // set when the database no longer has that revision
	hub   hub
	queue *combine.Queue
	// isolated: transactions of PostgreSQL are above read committed unless they say otherwise.
	isolated bool

	mine  uint64 // the revision of the last transaction of the queue
	share int    // how many of its next transactions leave the lock of a file to others first
	alone int    // how many of its next transactions make one commit, because there was no room for all of them in one
}

// limits of one commit. A page of PostgreSQL's index holds a key of 2,700 bytes.
var limits = store.Limits{Key: 2500, Value: 16 << 20, Bytes: 64 << 20}

// Limits implements [store.Store]: 2,500 bytes for a key, 16 MiB for a value, 64 MiB for a commit, any number of records.
func (s *Store) Limits() store.Limits { return limits }

// prefixes are the prefixes that need no quotes in either language.
var prefixes = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,31}$`)

// Open returns the store in a database, and creates an empty one if there is none. Open asks the database which kind it is. If
// another process has locked the file, Open waits until ctx ends.
//
// Errors, nothing changed: [ipalloc.ErrMismatch] for tables that are not a store's. [ipalloc.ErrVersion] for a schema of
// another version. [ipalloc.ErrNotFound] if there is no store and NoCreate is set. [ipalloc.ErrInvalid] for impossible options,
// a SQLite database in memory, and, unless NoSync is set, connections that do not wait for the disk. Errors of the database.
func Open(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	if o.Prefix == "" {
		o.Prefix = "ipalloc_"
	}
	if o.History == 0 {
		o.History = 10_000
	}
	switch {
	case db == nil:
		return nil, invalid("db", "is nil")
	case !prefixes.MatchString(o.Prefix):
		return nil, invalid("Options.Prefix", fmt.Sprintf("%q is no plain lower-case name of at most 32 bytes", o.Prefix))
	case o.History < 0:
		return nil, invalid("Options.History", fmt.Sprintf("%d is negative", o.History))
	case o.Poll < 0:
		return nil, invalid("Options.Poll", fmt.Sprintf("%v is negative", o.Poll))
	}
	s := &Store{db: db, d: postgres{}, opts: o} // until the database has been asked
	s.queue = combine.New(false, s.batch)
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// open finds out what the database is, and what is in it.
func (s *Store) open(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := s.openOnce(ctx)
		if err == nil || !s.again(ctx, attempt, s.failure(ctx, "open", err)) {
			return s.failure(ctx, "open", err) // of a context that has ended meanwhile
		}
	}
}

func (s *Store) openOnce(ctx context.Context) error {
	d, err := detect(ctx, s.db)
	if err != nil {
		return err
	}
	s.d = d
	s.q = newQueries(s.d, s.opts.Prefix)
	if s.opts.Poll == 0 {
		s.opts.Poll = s.d.poll()
	}
	if err := s.d.check(ctx, s); err != nil {
		return err
	}
	return s.prepare(ctx)
}

// How often a call is repeated that failed for a reason that passes, left no trace, and was not in conflict: a deadlock,
// a serialisation failure, a connection that could not be made. A locked file is waited for.
const attempts = 20

// again waits before the next attempt of a call, and reports whether there should be one.
func (s *Store) again(ctx context.Context, attempt int, err error) bool {
	if attempt >= attempts && !stateOf(err).locked || !retryable(err) || unknownOutcome(err) || ctx.Err() != nil {
		return false
	}
	return combine.Sleep(ctx, s.d.pause(attempt)) == nil
}

// invalid returns the error of an argument.
func invalid(field, reason string) error {
	return &ipalloc.Error{Package: "sqlstore", Op: "open", Field: field, Reason: reason, Err: ipalloc.ErrInvalid}
}
