package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/ipset/sqlstore/internal/driver"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// postgres is the dialect of PostgreSQL. A commit is one call of a function, and that is one transaction: one round trip.
//
// The function takes the lock of the store before anything else: that of a table without rows, which PostgreSQL hands on in the
// order of arrival, and to roles that may write to it alone. The lock of the meta row by itself would often go to the session that
// has just given it back. Each statement of the function sees what was committed when it begins, so the expectations are compared
// with the state that the commit changes, and revisions become visible in their order. A statement with common table expressions
// alone would compare with the state from before it waited for the lock.
type postgres struct{}

func (postgres) poll() time.Duration { return time.Second }

// lockSchema makes the table of the queue, which is not there at first, and takes its lock. Who makes it second waits for the first.
func (postgres) lockSchema() string {
	return `DO $$ BEGIN CREATE TABLE IF NOT EXISTS ipalloc_queue (); EXCEPTION WHEN unique_violation OR duplicate_table OR duplicate_object THEN NULL; END $$;` + lockQueue
}

const lockQueue = `LOCK TABLE ipalloc_queue IN EXCLUSIVE MODE`

func (postgres) empty() string { return "''::bytea" }

// current leaves out a hot standby.
func (postgres) current() string { return " AND NOT pg_is_in_recovery()" }

// lock makes a commit without ops. Above read committed, a statement sees what was committed before it waited, unless it only locks.
func (d postgres) lock(ctx context.Context, s *Store, tx *sql.Tx, since uint64) (uint64, error) {
	if s.isolated {
		if _, err := tx.ExecContext(ctx, s.q.name(lockQueue)); err != nil {
			return 0, err
		}
	}
	results, err := d.call(ctx, s, tx, since, [][]store.Op{nil})
	if err != nil {
		return 0, err
	}
	return results[0].rev, nil
}

func (postgres) tables() []string {
	return []string{
		`CREATE TABLE ipalloc_meta (one smallint PRIMARY KEY CHECK (one = 1), format text NOT NULL,
	version integer NOT NULL, id text NOT NULL, rev bigint NOT NULL, horizon bigint NOT NULL) WITH (fillfactor = 10)`,
		`CREATE TABLE ipalloc_records (key bytea PRIMARY KEY, rev bigint NOT NULL, value bytea NOT NULL)`,
		`CREATE TABLE ipalloc_changes (rev bigint NOT NULL, key bytea NOT NULL, value bytea, PRIMARY KEY (rev, key))`,
	}
}

// code returns the function, which Open makes again where it is missing, as after a restore of the tables alone.
func (postgres) code() []string {
	return []string{strings.NewReplacer("LOCK", lockQueue, "STANDS", strings.ReplaceAll(stands, "$2", "since")).Replace(commitFunction)}
}

func (postgres) mostKeys() int { return math.MaxInt }

// commitFunction makes commits, one after the other, in one transaction. sizes has the number of ops of each; the other arrays
// have an element for each op, and salts one for each commit. It returns a row for each commit, and none if the store is not there
// or since is not in its past. A commit that changes nothing takes no revision, because no row of changes would show it. Locking
// the row of the store fails in a transaction whose view is older than that row, so the past is compared in no such view.
//
// The planner settings keep it from plans that were made when the tables were empty.
const commitFunction = `
CREATE OR REPLACE FUNCTION ipalloc_commit(store text, since bigint, history bigint, salts bigint[], sizes int[], kinds int[], keys bytea[], vals bytea[], expects bigint[])
RETURNS TABLE (at bigint, conflict int) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
	old bigint;
	cur bigint;
	next bigint;
	there boolean;
	size int;
	lo int := 1;
	hi int;
	n int := 0;
	kept bigint;
BEGIN
	LOCK;
	SELECT m.rev, STANDS INTO old, there FROM ipalloc_meta m WHERE m.id = store FOR UPDATE;
	IF there IS NOT TRUE THEN
		RETURN;
	END IF;
	cur := old;
	FOREACH size IN ARRAY sizes LOOP
		n := n + 1;
		hi := lo + size - 1;
		SELECT coalesce(min(o.n), 0) INTO conflict
		FROM unnest(keys[lo:hi], expects[lo:hi]) WITH ORDINALITY AS o(key, expect, n)
		LEFT JOIN ipalloc_records r ON r.key = o.key
		WHERE o.expect <> -1 AND coalesce(r.rev, 0) <> o.expect;
		IF conflict = 0 AND NOT (0 = ALL (kinds[lo:hi])) THEN
			next := ((cur >> 24) + 1 << 24) + salts[n];
			WITH ops AS (
				SELECT * FROM unnest(kinds[lo:hi], keys[lo:hi], vals[lo:hi]) AS o(kind, key, val)
			), gone AS (
				DELETE FROM ipalloc_records r USING ops o WHERE o.kind = 2 AND r.key = o.key RETURNING r.key
			), put AS (
				INSERT INTO ipalloc_records AS r (key, value, rev) SELECT o.key, o.val, next FROM ops o WHERE o.kind = 1
				ON CONFLICT (key) DO UPDATE SET value = excluded.value, rev = excluded.rev
			)
			INSERT INTO ipalloc_changes (rev, key, value)
			SELECT next, g.key, NULL FROM gone g UNION ALL SELECT next, o.key, o.val FROM ops o WHERE o.kind = 1;
			IF FOUND THEN
				cur := next;
			END IF;
		END IF;
		at := cur;
		RETURN NEXT;
		lo := hi + 1;
	END LOOP;
	IF cur = old THEN
		RETURN;
	END IF;
	IF (cur >> 24) / 64 > (old >> 24) / 64 AND cur >> 24 > history THEN
		kept := (cur >> 24) - history + 1 << 24;
		DELETE FROM ipalloc_changes c WHERE c.rev < kept;
		UPDATE ipalloc_meta m SET rev = cur, horizon = greatest(m.horizon, kept - 1) WHERE m.id = store;
	ELSE
		UPDATE ipalloc_meta m SET rev = cur WHERE m.id = store;
	END IF;
	PERFORM pg_notify('ipalloc_commit', store);
END $$`

// commitArgs are the types of its arguments.
const commitArgs = `text,bigint,bigint,bigint[],int[],int[],bytea[],bytea[],bigint[]`

// errStandby is the error of a server whose reads may be behind the primary's.
var errStandby = errors.New("the server is a hot standby")

// behind returns [errStandby] if the server is one.
func (postgres) behind(ctx context.Context, q querier) error {
	var standby bool
	if err := q.QueryRowContext(ctx, `SELECT pg_is_in_recovery()`).Scan(&standby); err != nil || !standby {
		return err
	}
	return errStandby
}

// check refuses a hot standby and a connection without a schema, and asks whether a commit waits for the disk.
func (d postgres) check(ctx context.Context, s *Store) error {
	if err := d.behind(ctx, s.db); err != nil {
		return err
	}
	var synchronous string
	var schema sql.NullString
	if err := s.db.QueryRowContext(ctx, `SELECT current_setting('synchronous_commit'), current_schema(), current_setting('default_transaction_isolation') IN ('repeatable read', 'serializable')`).Scan(&synchronous, &schema, &s.isolated); err != nil {
		return err
	}
	if !schema.Valid {
		return invalid("db", "has no schema: none of those in search_path exists, or the role may not use it")
	}
	if synchronous == "off" && !s.opts.NoSync {
		return invalid("db", "has synchronous_commit off, so a commit would not wait for the disk; see Options.NoSync")
	}
	return nil
}

// settle refuses a store without its function or its queue.
func (postgres) settle(ctx context.Context, s *Store) error {
	var there bool
	err := s.db.QueryRowContext(ctx, s.q.name(`SELECT to_regprocedure('ipalloc_commit('||$1||')') IS NOT NULL AND to_regclass('ipalloc_queue') IS NOT NULL`), commitArgs).Scan(&there)
	if err == nil && !there {
		err = errNoFunction
	}
	return err
}

// errNoFunction is the error of a database with the records of a store but without its function.
var errNoFunction = mismatch("the function that commits, or the table that it locks, is missing; open the store once without NoCreate, as a role that may create it")

func (postgres) keyIn(column string, n int, keys [][]byte) (string, []any) {
	return fmt.Sprintf("%s = ANY ($%d)", column, n), []any{keys}
}

// pause is at least half of 1 ms doubled for each attempt up to 64 ms.
func (postgres) pause(attempt int) time.Duration {
	most := time.Millisecond << min(attempt-1, 6)
	return most/2 + rand.N(most/2)
}

func (d postgres) transact(s *Store, since uint64, take func() (context.Context, []*call)) ([]result, error) {
	ctx, calls := take()
	var batch [][]store.Op
	for _, c := range calls {
		batch = append(batch, c.Ops)
	}
	if len(batch) == 0 { // its callers have left
		return nil, nil
	}
	if err := s.usable(); err != nil {
		return nil, err
	}
	conn, err := s.db.Conn(ctx) // before anything is sent
	if err != nil {
		return nil, &unsent{err}
	}
	defer func() { _ = conn.Close() }()
	q, commit := querier(conn), func() error { return nil }
	if s.isolated {
		tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return nil, &unsent{err}
		}
		defer func() { _ = tx.Rollback() }() // does nothing after a commit
		q, commit = tx, tx.Commit
	}
	results, err := d.call(ctx, s, q, since, batch)
	if err == nil {
		err = commit()
	}
	if err != nil && !stateOf(err).traceless {
		err = &uncertain{err}
	}
	return results, err
}

func (d postgres) within(ctx context.Context, s *Store, tx *sql.Tx, ops []store.Op) (result, error) {
	results, err := d.call(ctx, s, tx, 0, [][]store.Op{ops})
	if err != nil {
		return result{}, err
	}
	return results[0], nil
}

// call makes a batch of commits.
func (postgres) call(ctx context.Context, s *Store, q querier, since uint64, batch [][]store.Op) ([]result, error) {
	var sizes, kinds []int32
	var keys, values [][]byte
	var expects []int64
	for _, ops := range batch {
		sizes = append(sizes, int32(len(ops)))
		for i := range ops {
			op := &ops[i]
			kinds, keys, values = append(kinds, int32(op.Kind)), append(keys, []byte(op.Key)), append(values, []byte(op.Value))
			expect := int64(-1)
			if op.Expect != store.AnyRevision {
				expect = int64(op.Expect)
			}
			expects = append(expects, expect)
		}
	}
	rows, err := q.QueryContext(ctx, s.q.name(`SELECT at, conflict FROM ipalloc_commit($1, $2, $3, $4, $5, $6, $7, $8, $9)`),
		s.id, int64(since), s.opts.History, salts(len(batch)), sizes, kinds, keys, values, expects)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var results []result
	for rows.Next() {
		var r result
		if err := rows.Scan(&r.rev, &r.conflict); err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	switch err := rows.Err(); { // the transaction is made when the rows have ended
	case err != nil:
		return nil, err
	case len(results) != len(batch):
		return nil, s.gone(ctx, q, since)
	}
	return results, nil
}

// listen keeps a connection for the notifications, if the pool has one to spare.
func (postgres) listen(ctx context.Context, s *Store, wake func()) {
	if s.db.Stats().MaxOpenConnections == 1 {
		return
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.Raw(func(raw any) error {
		return driver.Postgres.Listen(ctx, raw, s.q.name("ipalloc_commit"), wake, func(payload string) {
			if strings.EqualFold(payload, s.id) {
				wake()
			}
		})
	})
}
