package boltstore

import (
	"context"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// maxTable bounds the name of a table.
const maxTable = 1024

// Table is a separate, named set of records in the file of a [Store]. Its commits share
// transactions, and syncs, with all others on the file. It shares the revisions of the
// store. A watch of the store does not show these commits. [Store.OpenTable] returns a
// Table. All methods are safe for concurrent use.
type Table struct {
	store *Store
	name  string
}

// OpenTable opens a table; the first commit to it creates it. A table can be open only
// once at a time; [Table.Close] ends that.
//
// Errors: ipalloc.ErrInvalid for a name that is empty or longer than 1,024 bytes;
// ipalloc.ErrInUse if the table is open; ipalloc.ErrClosed.
func (s *Store) OpenTable(name string) (*Table, error) {
	fail := func(reason string, err error) (*Table, error) {
		return nil, &ipalloc.Error{Package: "boltstore", Op: "open table", Name: name, Reason: reason, Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case name == "" || len(name) > maxTable:
		return nil, &ipalloc.Error{Package: "boltstore", Op: "open table", Field: "name", Reason: "must have 1 to 1024 bytes", Err: ipalloc.ErrInvalid}
	case s.closed:
		return fail("", ipalloc.ErrClosed)
	case s.tables[name]:
		return fail("it is open already", ipalloc.ErrInUse)
	case s.tables == nil:
		s.tables = make(map[string]bool)
	}
	s.tables[name] = true
	return &Table{store: s, name: name}, nil
}

// Close lets others open the table. The table must not be used after that.
func (t *Table) Close() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	delete(t.store.tables, t.name)
}

// bucket returns the name of the bbolt bucket.
func (t *Table) bucket() string { return tablePrefix + t.name }

// Commit is [Store.Commit] for the records of the table.
func (t *Table) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	return t.store.commit(ctx, t.bucket(), ops)
}

// List is [Store.List] for the records of the table.
func (t *Table) List(ctx context.Context, r store.Range) (recs []store.Record, rev uint64, err error) {
	return t.store.list(ctx, t.bucket(), r)
}

// Tables returns the names of the tables that hold records, ascending.
func (s *Store) Tables(ctx context.Context) ([]string, error) {
	var names []string
	err := s.view(ctx, "list tables", func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			n, ok := strings.CutPrefix(string(name), tablePrefix)
			if first, _ := b.Cursor().First(); ok && first != nil {
				names = append(names, n)
			}
			return nil
		})
	})
	return names, err
}
