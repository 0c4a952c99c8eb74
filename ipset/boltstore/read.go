package boltstore

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// A file that is not verified when it is opened is verified where it is read. A record that is found has its checksum. A
// record that is not found, and the ends of a list, have that of their neighbours: a key whose bits flipped, in a leaf or in
// a branch above it, misleads the search to a place where the keys beside it are out of order or have wrong checksums.

// record returns what is under a key of a table; raw is nil if that is nothing.
func (s *Store) record(table string, key, raw []byte) (rev uint64, value []byte, err error) {
	if raw == nil {
		return 0, nil, nil
	}
	rev, _, value, err = decodeRecord(table, key, raw)
	if err != nil {
		err = damaged(s.path, -1, err.Error())
	}
	return rev, value, err
}

// lookup returns what a bucket holds under a key, nil if that is nothing.
func (s *Store) lookup(b *bbolt.Bucket, table string, key []byte) ([]byte, error) {
	c := b.Cursor()
	k, raw := c.Seek(key)
	if bytes.Equal(k, key) {
		return raw, nil
	}
	if err := s.neighbour(table, k, raw, bytes.Compare(k, key) > 0); err != nil {
		return nil, err
	}
	k, raw = before(c, k)
	return nil, s.neighbour(table, k, raw, bytes.Compare(k, key) < 0)
}

// before returns the entry before the one that a cursor is at, which has key k; nil is behind the last.
func before(c *bbolt.Cursor, k []byte) (key, raw []byte) {
	if k == nil {
		return c.Last()
	}
	return c.Prev()
}

// neighbour verifies an entry beside a place where none was found. ordered says whether it is on the right side of it. A nil key
// is the end of the table.
func (s *Store) neighbour(table string, key, raw []byte, ordered bool) error {
	if key == nil {
		return nil
	}
	if !ordered {
		return damaged(s.path, -1, fmt.Sprintf("record %q: order of keys", key))
	}
	_, _, err := s.record(table, key, raw)
	return err
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	n := len(dst)
	err := s.view(ctx, "get", func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(recordsBucket))
		for _, k := range keys {
			key := []byte(k)
			raw, err := s.lookup(b, recordsBucket, key)
			if err != nil {
				return err
			}
			rev, value, err := s.record(recordsBucket, key, raw)
			if err != nil {
				return err
			}
			dst = append(dst, store.Record{Key: k, Value: string(value), Rev: rev})
		}
		return nil
	})
	if err != nil {
		return dst[:n], err
	}
	return dst, nil
}

// List implements store.Store. A commit that needs more room than the file has mapped waits for the list, and every later
// call waits for that commit; see the package comment.
func (s *Store) List(ctx context.Context, r store.Range) (recs []store.Record, rev uint64, err error) {
	return s.list(ctx, recordsBucket, r)
}

// list returns the records of a range of a table.
func (s *Store) list(ctx context.Context, table string, r store.Range) (recs []store.Record, rev uint64, err error) {
	err = s.view(ctx, "list", func(tx *bbolt.Tx) error {
		st, err := parseState(tx.Bucket([]byte(stateBucket)).Get([]byte(stateKey)))
		if err != nil {
			return damaged(s.path, -1, err.Error())
		}
		rev = st.rev
		bucket := tx.Bucket([]byte(table))
		if bucket == nil {
			return nil
		}
		l := lister{s: s, ctx: ctx, table: table, r: r}
		err = l.run(bucket.Cursor())
		recs = l.recs
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return recs, rev, nil
}

// lister collects the records of a range.
type lister struct {
	s     *Store
	ctx   context.Context
	table string
	r     store.Range
	recs  []store.Record
	last  []byte // the key before, nil at first
}

// checkEvery is after how many records a list looks at its context and at the meta pages.
const checkEvery = 1 << 10

// run lists from the entry before the range, which is verified as the one behind it is.
func (l *lister) run(c *bbolt.Cursor) error {
	k, raw, err := l.begin(c)
	if err != nil {
		return err
	}
	next := c.Next
	if l.r.Reverse {
		next = c.Prev
	}
	for ; k != nil; k, raw = next() {
		if more, err := l.take(k, raw); err != nil || !more {
			return err
		}
	}
	return nil
}

// begin moves a cursor to the last entry before the range, in the order of the list; to the first one if there is none.
func (l *lister) begin(c *bbolt.Cursor) (k, raw []byte, err error) {
	if l.r.Reverse {
		if l.r.To == "" {
			k, raw = c.Last()
			return k, raw, nil
		}
		if k, raw = c.Seek([]byte(l.r.To)); k == nil {
			k, raw = c.Last()
			return k, raw, nil
		}
		if string(k) < l.r.To {
			err = l.s.neighbour(l.table, k, raw, false)
		}
		return k, raw, err
	}
	k, _ = c.Seek([]byte(l.r.From))
	if k, raw = before(c, k); k == nil {
		k, raw = c.First()
		return k, raw, nil
	}
	if string(k) >= l.r.From {
		err = l.s.neighbour(l.table, k, raw, false)
	}
	return k, raw, err
}

// take verifies an entry and keeps it if it is in the range. It returns whether the list goes on.
func (l *lister) take(k, raw []byte) (more bool, err error) {
	if len(l.recs)%checkEvery == 0 {
		if err := l.ctx.Err(); err != nil {
			return false, err
		}
		if err := l.s.untouched(); err != nil {
			return false, err
		}
	}
	if l.r.Limit > 0 && len(l.recs) == l.r.Limit {
		return false, nil
	}
	rev, value, err := l.s.record(l.table, k, raw)
	if err != nil {
		return false, err
	}
	if way := bytes.Compare(k, l.last); l.last != nil && (way == 0 || way > 0 == l.r.Reverse) {
		return false, damaged(l.s.path, -1, fmt.Sprintf("record %q after %q: order of keys", k, l.last))
	}
	l.last = k
	key := string(k)
	below, above := key < l.r.From, l.r.To != "" && key >= l.r.To
	if below || above {
		return below != l.r.Reverse, nil
	}
	l.recs = append(l.recs, store.Record{Key: key, Value: string(value), Rev: rev})
	return true, nil
}
