package sqlstore

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// What ends a process, and what does not.
func TestPast(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		stores := 0
		db := reopen()
		storetest.TestPast(t, func(t *testing.T) storetest.Past {
			stores++
			o := Options{Prefix: fmt.Sprintf("p%d_", stores)}
			open := func(t *testing.T) store.Store { return openIn(t, reopen(), o) }
			do := func(statements ...string) func(*testing.T) {
				return func(t *testing.T) {
					run(t, db, strings.Split(strings.ReplaceAll(strings.Join(statements, "\n"), "ipalloc_", o.Prefix), "\n")...)
				}
			}
			p := storetest.Past{Open: open, Many: func(t *testing.T) store.Store { return openIn(t, db, o) }, Same: map[string]func(*testing.T){
				"idle for longer than the history": func(t *testing.T) {
					other := openIn(t, reopen(), Options{Prefix: o.Prefix, History: 1})
					for range 2 * compactEvery {
						put(t, other, "b", "")
					}
				},
				"transaction rolled back": func(t *testing.T) {
					tx := begin(t, db)
					in, err := openIn(t, reopen(), o).WithTx(t.Context(), tx)
					if err != nil {
						t.Fatal(err)
					}
					put(t, in, "x", "never")
					_ = tx.Rollback()
				},
			}, Other: map[string]func(*testing.T){
				"wiped":    do("DROP TABLE ipalloc_records", "DROP TABLE ipalloc_changes", "DROP TABLE ipalloc_meta"),
				"emptied":  do("DELETE FROM ipalloc_records"),
				"restored": func(t *testing.T) { openIn(t, reopen(), Options{Prefix: o.Prefix, Adopt: true}) },
				"set back": do("UPDATE ipalloc_meta SET rev = 1", "DELETE FROM ipalloc_changes", "DELETE FROM ipalloc_records WHERE rev > 0"),
			}}
			if openIn(t, db, o).file == nil {
				p.Same["snapshot isolation"] = func(t *testing.T) {
					s := openIn(t, reopen(), o)
					tx, err := s.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = tx.Rollback() }()
					var n int
					if err := tx.QueryRowContext(t.Context(), s.q.name("SELECT count(*) FROM ipalloc_records")).Scan(&n); err != nil {
						t.Fatal(err)
					}
					put(t, openIn(t, reopen(), o), "y", "")
					if _, err := s.WithTx(t.Context(), tx); !store.Retryable(err) {
						t.Errorf("a transaction with an old view: %v", err)
					}
				}
				p.Same["connections end"] = do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
			}
			return p
		})
	})
}
