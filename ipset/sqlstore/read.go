package sqlstore

import (
	"context"
	"database/sql"
	"math"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// querier is a *sql.DB, a *sql.Conn or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// first is the first key that a record can have, and afterAll is above every key.
var first, afterAll = []byte{0}, []byte(strings.Repeat("\xff", limits.Key+1))

// Get implements [store.Store]: one statement; on SQLite one for each 512 keys.
func (s *Store) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	var recs []store.Record
	err := s.reading(ctx, "get", func(since uint64) (rev uint64, err error) {
		if len(keys) <= s.d.mostKeys() {
			recs, rev, err = s.get(ctx, s.db, since, dst, keys)
			return rev, err
		}
		tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // for one view in several statements
		if err != nil {
			return 0, err
		}
		defer func() { _ = tx.Rollback() }()
		recs, rev, err = s.get(ctx, tx, since, dst, keys)
		return rev, err
	})
	if err != nil {
		return dst, err
	}
	return recs, nil
}

// List implements [store.Store]: one statement. It holds the whole result in memory.
func (s *Store) List(ctx context.Context, r store.Range) (recs []store.Record, rev uint64, err error) {
	err = s.reading(ctx, "list", func(since uint64) (uint64, error) {
		recs, rev, err = s.list(ctx, s.db, since, r)
		return rev, err
	})
	if err != nil {
		return nil, 0, err
	}
	return recs, rev, nil
}

// reading calls f, which reads a database that has since in its past, and returns the revision that it saw; again if it fails for
// a reason that passes.
func (s *Store) reading(ctx context.Context, op string, f func(since uint64) (uint64, error)) error {
	for attempt := 1; ; attempt++ {
		err := ctx.Err()
		if err == nil {
			err = s.usable()
		}
		if err == nil {
			since := s.high.Load()
			var rev uint64
			if rev, err = f(since); err == nil {
				err = s.seen(rev, since)
			}
		}
		if err == nil {
			return nil
		}
		if failed := s.failure(ctx, op, err); !s.again(ctx, attempt, failed) {
			return s.failure(ctx, op, err) // of a context that has ended meanwhile
		}
	}
}

// get appends the records of keys to dst.
func (s *Store) get(ctx context.Context, q querier, since uint64, dst []store.Record, keys []string) ([]store.Record, uint64, error) {
	if len(keys) == 0 {
		return dst, s.high.Load(), nil
	}
	found := make(map[string]store.Record, len(keys))
	rev := uint64(0)
	for part := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(keys))), s.d.mostKeys()) {
		raw := make([][]byte, len(part), 2*len(part))
		for i, k := range part {
			raw[i] = []byte(k)
		}
		for n := len(raw); n&(n-1) != 0; n++ { // few lengths, so that few statements are prepared
			raw = append(raw, raw[0])
		}
		condition, args := s.d.keyIn("r.key", 3, raw)
		recs, at, err := s.records(ctx, q, s.q.get+condition+" "+s.q.live, since, args...)
		if err != nil {
			return dst, 0, err
		}
		for rev = at; len(recs) > 0; recs = recs[1:] {
			found[recs[0].Key] = recs[0]
		}
	}
	delete(found, "")
	for _, k := range keys {
		r := found[k]
		r.Key = k
		dst = append(dst, r)
	}
	return dst, rev, nil
}

// list returns the records of a range.
func (s *Store) list(ctx context.Context, q querier, since uint64, r store.Range) ([]store.Record, uint64, error) {
	text, from, to, limit := s.q.list, first, afterAll, int64(math.MaxInt64)
	if r.Reverse {
		text = s.q.reverse
	}
	if r.From != "" {
		from = []byte(r.From)
	}
	if r.To != "" {
		to = []byte(r.To)
	}
	if r.Limit > 0 {
		limit = int64(r.Limit)
	}
	recs, rev, err := s.records(ctx, q, text, since, from, to, limit)
	order := func(a, b store.Record) int { return strings.Compare(a.Key, b.Key) }
	if r.Reverse {
		order = func(a, b store.Record) int { return strings.Compare(b.Key, a.Key) }
	}
	slices.SortFunc(recs, order) // a join keeps the order of its operand, but does not promise it
	return recs, rev, err
}

// records runs a query for the revision of the store and records beside it. No row at all means that the store is not there.
func (s *Store) records(ctx context.Context, q querier, text string, since uint64, args ...any) (recs []store.Record, rev uint64, err error) {
	rows, err := q.QueryContext(ctx, text, append([]any{s.id, int64(since)}, args...)...)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rows.Close() }()
	any := false
	for rows.Next() {
		var key, value sql.RawBytes
		var at sql.NullInt64
		if err := rows.Scan(&rev, &key, &value, &at); err != nil {
			return nil, 0, err
		}
		any = true
		if at.Valid {
			recs = append(recs, store.Record{Key: string(key), Value: string(value), Rev: uint64(at.Int64)})
		}
	}
	if err := rows.Err(); err != nil {
		return nil, 0, err
	}
	if !any {
		return nil, 0, s.gone(ctx, q, since)
	}
	return recs, rev, nil
}
