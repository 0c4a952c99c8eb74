package boltstore_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Every call refuses what it must in the form that package ipalloc promises.
func TestRefusals(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	path, missing := filepath.Join(dir, "store.db"), filepath.Join(dir, "no", "store.db")
	s := reopen(t, path, boltstore.Options{NoSync: true})
	var rows []refusal.Row
	row := func(call, what string, err, is error, op, field string) {
		rows = append(rows, refusal.Row{Call: call, What: what, Err: err, Is: is, Op: op, Field: field})
	}
	open := func(what, path string, o boltstore.Options, is error, field string) {
		_, err := boltstore.Open(ctx, path, o)
		row("Open", what, err, is, "open", field)
	}
	for field, o := range map[string]boltstore.Options{
		"Verify": {Verify: 9}, "MaxSize": {MaxSize: -1}, "InitialMap": {InitialMap: -1}, "Boot": {Boot: strings.Repeat("x", 65)},
		"History": {History: -1}, "Mode": {Mode: os.ModeDir},
	} {
		open(field, path, o, ipalloc.ErrInvalid, "Options."+field)
	}
	open("no directory", missing, boltstore.Options{}, ipalloc.ErrNotFound, "")
	open("no file", filepath.Join(dir, "none"), boltstore.Options{NoCreate: true}, ipalloc.ErrNotFound, "")
	open("a directory", dir, boltstore.Options{}, ipalloc.ErrMismatch, "")
	open("locked", path, boltstore.Options{}, ipalloc.ErrInUse, "")

	there := filepath.Join(dir, "there")
	if err := s.Compact(ctx, there); err != nil {
		t.Fatal(err)
	}
	row("Restore", "there", boltstore.Restore(ctx, strings.NewReader(""), there), ipalloc.ErrExists, "restore", "")
	row("Restore", "no directory", boltstore.Restore(ctx, strings.NewReader(""), missing), ipalloc.ErrNotFound, "restore", "")
	row("Store.Compact", "there", s.Compact(ctx, path), ipalloc.ErrExists, "compact into", "")
	row("Snapshot", "there", boltstore.Snapshot(ctx, path, path), ipalloc.ErrExists, "snapshot", "")
	row("Snapshot", "no file", boltstore.Snapshot(ctx, missing, filepath.Join(dir, "new")), ipalloc.ErrNotFound, "snapshot", "")
	_, err := boltstore.Salvage(ctx, missing, filepath.Join(dir, "new"))
	row("Salvage", "no file", err, ipalloc.ErrNotFound, "salvage", "")
	for _, name := range []string{"", strings.Repeat("x", 1025)} {
		_, err = s.OpenTable(name)
		row("Store.OpenTable", name, err, ipalloc.ErrInvalid, "open table", "name")
	}
	table, err := s.OpenTable("t")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.OpenTable("t")
	row("Store.OpenTable", "open", err, ipalloc.ErrInUse, "open table", "")
	bad := []store.Op{{Kind: store.Put}}
	_, err = s.Commit(ctx, bad)
	row("Store.Commit", "no key", err, ipalloc.ErrInvalid, "commit", "ops")
	_, err = table.Commit(ctx, bad)
	row("Table.Commit", "no key", err, ipalloc.ErrInvalid, "commit", "ops")

	row("Store.Close", "open", s.Close(), nil, "", "")
	row("Store.Abandon", "closed", s.Abandon(), nil, "", "")
	closed := func(call, op string, err error) { row(call, "closed", err, ipalloc.ErrClosed, op, "") }
	_, err = s.Get(ctx, nil, "k")
	closed("Store.Get", "get", err)
	_, _, err = s.List(ctx, store.Range{})
	closed("Store.List", "list", err)
	_, err = s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "k"}})
	closed("Store.Commit", "commit", err)
	_, err = s.Backup(ctx, &bytes.Buffer{})
	closed("Store.Backup", "back up", err)
	_, _, err = table.List(ctx, store.Range{})
	closed("Table.List", "list", err)
	_, err = s.Tables(ctx)
	closed("Store.Tables", "list tables", err)
	_, err = s.OpenTable("u")
	closed("Store.OpenTable", "open table", err)
	s = reopen(t, path, boltstore.Options{ReadOnly: true})
	_, err = s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "k"}})
	row("Store.Commit", "read-only", err, ipalloc.ErrMismatch, "commit", "")
	refusal.Check(t, "boltstore", rows)
}
