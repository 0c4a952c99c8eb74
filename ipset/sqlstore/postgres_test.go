package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/enginetest"
	_ "github.com/ipalloc/ipalloc/ipset/sqlstore/pgx"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// shared is the one server that most tests use, each in a database of its own.
var shared struct {
	sync.Once
	server *servers.Postgres
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// sharedServer returns the server that tests share.
func sharedServer(t testing.TB) *servers.Postgres {
	t.Helper()
	shared.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		shared.server, shared.err = servers.StartPostgres(ctx, servers.PostgresOptions{NoSync: true})
	})
	if errors.Is(shared.err, servers.ErrSkip) {
		t.Skip(shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

var databases atomic.Int64

// postgresSchema returns the connection string of a schema of the test's own.
func postgresSchema(t testing.TB) string {
	t.Helper()
	server := sharedServer(t)
	name := fmt.Sprint("test", databases.Add(1))
	db, err := sql.Open("pgx", server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(context.Background(), "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	return server.DSN() + " search_path=" + name
}

// postgresDB returns a database in a schema of the test's own.
func postgresDB(t testing.TB) *sql.DB { return connect(t, "pgx", postgresSchema(t)) }

func TestPostgres(t *testing.T) {
	storetest.TestStore(t, func(t *testing.T) store.Store { return openIn(t, postgresDB(t), Options{}) })
}

func TestInSpacePostgres(t *testing.T) {
	storetest.TestStore(t, storetest.InSpace(func(t *testing.T) store.Store { return openIn(t, postgresDB(t), Options{}) }))
}

func TestEnginePostgres(t *testing.T) {
	enginetest.Test(t, func(t *testing.T) store.Store { return openIn(t, postgresDB(t), Options{}) })
}
