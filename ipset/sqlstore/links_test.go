package sqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/sqlstore/internal/driver"
)

// A program that keeps its store in SQLite links no driver for PostgreSQL; package pgx links it.
func TestLinksNoPostgres(t *testing.T) {
	for path, want := range map[string]bool{".": false, "./pgx": true} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := strings.Contains(string(out), "github.com/jackc/"); got != want {
			t.Errorf("pgx is among the dependencies of %s: %v, want %v", path, got, want)
		}
	}
}

// A PostgreSQL behind a driver that was not announced is refused with the import that is missing.
func TestUnannouncedDriver(t *testing.T) {
	known := driver.Postgres
	driver.Postgres = nil
	defer func() { driver.Postgres = known }()
	_, err := Open(t.Context(), sql.OpenDB(foreignServer{}), Options{})
	if !errors.Is(err, ipalloc.ErrInvalid) || !strings.Contains(err.Error(), "ipset/sqlstore/pgx") {
		t.Errorf("got %v, want ErrInvalid and what to import", err)
	}
}

// foreignServer answers every statement as a PostgreSQL without the function does.
type foreignServer struct{}

type undefined struct{ error }

func (undefined) SQLState() string { return undefinedFunction }

func (f foreignServer) Connect(context.Context) (sqldriver.Conn, error) { return f, nil }
func (f foreignServer) Driver() sqldriver.Driver                        { return f }
func (f foreignServer) Open(string) (sqldriver.Conn, error)             { return f, nil }
func (foreignServer) Close() error                                      { return nil }
func (foreignServer) Begin() (sqldriver.Tx, error)                      { return nil, sqldriver.ErrSkip }
func (foreignServer) Prepare(string) (sqldriver.Stmt, error) {
	return nil, undefined{errors.New("function sqlite_version() does not exist")}
}
