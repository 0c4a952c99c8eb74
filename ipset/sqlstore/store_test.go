package sqlstore

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/ipalloc/ipalloc/ipset/enginetest"
	"github.com/ipalloc/ipalloc/ipset/prefixes/prefixestest"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// connect opens a database and closes it with the test.
func connect(t testing.TB, driver, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// openIn opens a store.
func openIn(t testing.TB, db *sql.DB, o Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sqliteFile returns a database in a file of its own.
func sqliteFile(t testing.TB) *sql.DB {
	return connect(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "store.db"))
}

func TestSQLite(t *testing.T) {
	storetest.TestStore(t, func(t *testing.T) store.Store { return openIn(t, sqliteFile(t), Options{}) })
}

// A space of it keeps the same contract, and serves an engine.
func TestInSpaceSQLite(t *testing.T) {
	in := storetest.InSpace(func(t *testing.T) store.Store {
		db := connect(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "store.db")+"?_pragma=synchronous(OFF)")
		return openIn(t, db, Options{NoSync: true})
	})
	storetest.TestStore(t, in)
	enginetest.Test(t, in)
}

// An engine on it. What syncing adds is time alone, which the rest of these tests spends.
func TestEngineSQLite(t *testing.T) {
	enginetest.Test(t, func(t *testing.T) store.Store {
		db := connect(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "store.db")+"?_pragma=synchronous(OFF)")
		return openIn(t, db, Options{NoSync: true})
	})
}

// An allocator of prefixes on it.
func TestPrefixesSQLite(t *testing.T) {
	prefixestest.Test(t, func(t *testing.T) store.Store {
		db := connect(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "store.db")+"?_pragma=synchronous(OFF)")
		return openIn(t, db, Options{NoSync: true})
	})
}
