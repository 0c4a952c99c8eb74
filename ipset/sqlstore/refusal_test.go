package sqlstore

import (
	"database/sql"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Every call refuses what it must in the form that package ipalloc promises.
func TestRefusals(t *testing.T) {
	ctx := t.Context()
	var rows []refusal.Row
	row := func(call, what string, err, is error, op, field string) {
		rows = append(rows, refusal.Row{Call: call, What: what, Err: err, Is: is, Op: op, Field: field})
	}
	open := func(what string, db *sql.DB, o Options, is error, field string) {
		_, err := Open(ctx, db, o)
		row("Open", what, err, is, "open", field)
	}
	file := sqliteFile(t)
	open("nil", nil, Options{}, ipalloc.ErrInvalid, "db")
	open("in memory", connect(t, "sqlite", ":memory:"), Options{}, ipalloc.ErrInvalid, "db")
	open("a prefix", file, Options{Prefix: "A b"}, ipalloc.ErrInvalid, "Options.Prefix")
	open("history", file, Options{History: -1}, ipalloc.ErrInvalid, "Options.History")
	open("poll", file, Options{Poll: -1}, ipalloc.ErrInvalid, "Options.Poll")
	open("nothing there", file, Options{NoCreate: true}, ipalloc.ErrNotFound, "")

	s := openIn(t, file, Options{})
	_, err := s.Commit(ctx, []store.Op{{Kind: store.Put}})
	row("Store.Commit", "no key", err, ipalloc.ErrInvalid, "commit", "ops")
	_, err = s.WithTx(ctx, nil)
	row("Store.WithTx", "nil", err, ipalloc.ErrInvalid, "begin", "tx")
	row("Store.InTx", "nil", s.InTx(ctx, nil), ipalloc.ErrInvalid, "begin", "f")
	tx, err := file.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	_, err = s.WithTx(ctx, tx)
	row("Store.WithTx", "ended", err, ipalloc.ErrClosed, "begin", "")

	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	closed := func(call, op string, err error) { row(call, "closed", err, ipalloc.ErrClosed, op, "") }
	_, err = s.Get(ctx, nil, "k")
	closed("Store.Get", "get", err)
	_, _, err = s.List(ctx, store.Range{})
	closed("Store.List", "list", err)
	_, err = s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "k"}})
	closed("Store.Commit", "commit", err)
	closed("Store.InTx", "begin", s.InTx(ctx, func(*sql.Tx, store.Store) error { return nil }))
	refusal.Check(t, "sqlstore", rows)
}
