// Package sqlstore keeps the records of package ipset in a SQL database: SQLite for one machine, PostgreSQL for any number of
// them. An assignment can be part of a transaction of yours.
//
//	import _ "modernc.org/sqlite" // or _ "github.com/ipalloc/ipalloc/ipset/sqlstore/pgx"
//
//	db, err := sql.Open("sqlite", "file:/var/lib/vpn.db?_txlock=immediate&_pragma=busy_timeout(10000)")
//	s, err := sqlstore.Open(ctx, db, sqlstore.Options{})
//	engine, err := ipset.New(s, ipset.Options{})
//
// Terms: the store is tables, whose names begin with Options.Prefix:
//
//	ipalloc_records   key, value, rev: the records
//	ipalloc_changes   rev, key, value: what the last commits wrote, for watches
//	ipalloc_meta      one row: version of the schema, identity of the store, revision, horizon of the changes
//	ipalloc_queue     PostgreSQL: no rows; commits lock it
//
// The identity is drawn when the store is made. A revision is the number of a commit and 24 random bits, so two pasts of one
// database have no revision in common. Every statement verifies the identity, and that the highest revision that this process
// has seen is in the past of the database. The horizon is the lowest revision that a watch can start after.
//
// # Policy
//
// One commit at a time holds the store's lock: on the table ipalloc_queue, in SQLite on the file. It compares the revisions that
// its caller expects, writes, and raises the store's revision by one. Revisions therefore become visible in their order, and a
// watch misses none. Callers of one Store that commit at the same time share a transaction: one sync of the disk, one round trip.
//
// On PostgreSQL a transaction is one call of a function in the schema, ipalloc_commit, and so one round trip, in conflict or
// not. On SQLite it is a few statements in WAL mode. A read is one statement on either.
//
// [Store.WithTx] is the store inside a transaction of the caller.
//
// # Outcomes
//
// A commit that failed left no trace, unless its error matches ipalloc.ErrUnknownOutcome. The causes are: the context ended or the
// connection broke while the commit was in flight, the server closed the connection without an answer, or SQLite had an I/O error
// during COMMIT. Deadlocks, serialisation failures and refused connections are repeated for about a second. All calls, including
// Open and reads, wait for a locked SQLite file until the context ends. Contending processes get the lock about equally often. A
// certificate that is not trusted and a server without TLS are final errors. [store.Retryable] reports of every error whether trying
// again can help.
//
// # Requirements
//
// Every read, watch and commit fails with [ipalloc.ErrReplaced] if the tables differ from the tables that Open read, or if a SQLite
// file was removed or replaced. The same error reports that the past of the database has changed: it was set back, or a replica that
// lacked the last commits was promoted. A wiped store, or an emptied table of records, never reads as an empty store. A process
// whose last seen revision is older than Options.History does not notice another past; its commits still conflict wherever a record
// differs. If a transaction of the caller has an older view than the process, it fails with an error that is [store.Retryable], and
// the store continues.
//
// PostgreSQL must be 12 or newer, with the right to create tables and a plpgsql function in the schema that search_path names
// first; a hot standby is refused. Behind a pooler that shares connections between transactions, use pgx's
// default_query_exec_mode=exec; notifications then do not arrive, and watches ask every Options.Poll. SQLite must be 3.37 or
// newer, in a file on a local file system. The drivers tested are modernc.org/sqlite and pgx; PostgreSQL needs the import of package
// sqlstore/pgx, which a program on SQLite leaves out.
//
// # Limits
//
// A key has at most 2,500 bytes, a value 16 MiB, a commit 64 MiB. A watch can begin at any of the last Options.History commits.
// A transaction of yours that has called WithTx, and a PostgreSQL session that is idle in a transaction, hold up every commit.
//
// # Complexity
//
// In round trips on PostgreSQL; on SQLite the calls do not leave the process:
//
//	Commit    1, shared with the callers that wait
//	Get       1; in SQLite one statement for each 512 keys
//	List      1; the result is in memory as a whole
//	Watch     1 for each wake-up, and for each 256 revisions; changes are filtered by the server
//	WithTx    1; an engine in the transaction starts with an empty cache: an assignment takes up to 6
//	Open      4; about 20 if it makes the store
//
// If default_transaction_isolation is above read committed, Commit and WithTx take 2 more.
//
// A connection that meets a statement for the first time prepares it, in one round trip more.
//
// A commit writes every value twice: in its record and for the watches. Every 64th commit removes changes older than the history.
//
// # Security
//
// A SQLite file that Open makes, and its logs, have mode 0600: a user that can read such a file can block all its writers. The
// mode of a file that holds tables already is yours to set. For PostgreSQL over a network set sslmode=verify-full and sslrootcert.
// The default of pgx, prefer, sends the password and all records in clear text if the server, or an attacker in between, claims that
// it has no TLS. A role without write permission on any of the tables cannot block a commit.
//
// Concurrency: all methods are safe for concurrent use, by any number of processes. Restart: a Store holds no state that
// outlives it. A goroutine exists while there is something to commit or to watch, and at no other time.
//
// How to back up, restore, move and remove a store: README.md beside this file.
package sqlstore
