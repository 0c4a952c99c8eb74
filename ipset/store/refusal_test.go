package store_test

import (
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// badOps are commits that no store takes.
var badOps = map[string][]store.Op{
	"no key":          {{Kind: store.Put}},
	"a kind":          {{Kind: 9, Key: "k"}},
	"an idle guard":   {{Key: "k", Expect: store.AnyRevision}},
	"the same twice":  {{Kind: store.Put, Key: "k"}, {Kind: store.Put, Key: "k"}},
	"a key of spaces": {{Kind: store.Put, Key: "", Value: " "}},
}

// Every call refuses what it must in the form that package ipalloc promises.
func TestRefusals(t *testing.T) {
	ctx, m := t.Context(), store.NewMemory()
	var rows []refusal.Row
	row := func(call, what string, err, is error, op, field string) {
		rows = append(rows, refusal.Row{Call: call, What: what, Err: err, Is: is, Op: op, Field: field})
	}
	_, err := store.Copy(ctx, nil, m)
	row("Copy", "no destination", err, ipalloc.ErrInvalid, "copy", "dst")
	_, err = store.Copy(ctx, m, nil)
	row("Copy", "no source", err, ipalloc.ErrInvalid, "copy", "src")
	row("Complete", "no store", store.Complete(ctx, nil), ipalloc.ErrInvalid, "open", "db")
	row("Together", "no store", store.Together(ctx, nil, func(store.Store) error { return nil }), ipalloc.ErrInvalid, "together", "db")
	_, err = store.Space(nil, "x")
	row("Space", "no store", err, ipalloc.ErrInvalid, "space", "db")
	for _, name := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 256)} {
		_, err = store.Space(m, name)
		row("Space", name, err, ipalloc.ErrInvalid, "space", "name")
	}
	for _, data := range []string{"", "x", "ipalloc store\n"} {
		_, err = store.RestoreMemory([]byte(data))
		row("RestoreMemory", data, err, ipalloc.ErrCorrupt, "restore", "")
	}
	over := store.NewOverlay(store.NewMemory())
	for what, ops := range badOps {
		_, err = m.Commit(ctx, ops)
		row("Memory.Commit", what, err, ipalloc.ErrInvalid, "commit", "ops")
		_, err = over.Commit(ctx, ops)
		row("Memory.Commit", "of an overlay: "+what, err, ipalloc.ErrInvalid, "commit", "ops")
		row("CheckOps", what, store.CheckOps("store", ops, store.Limits{}), ipalloc.ErrInvalid, "commit", "ops")
	}
	put := []store.Op{{Kind: store.Put, Key: "k", Value: "v"}}
	for what, l := range map[string]store.Limits{"long key": {Key: 1}, "long value": {Value: 1}, "many bytes": {Bytes: 1}, "many records": {Ops: 1}} {
		ops := append(put[:1:1], store.Op{Kind: store.Put, Key: "kk", Value: "vv"})
		row("CheckOps", what, store.CheckOps("store", ops, l), ipalloc.ErrLimit, "commit", "")
	}
	row("Conflict", "of itself", store.Conflict("store", "k"), ipalloc.ErrConflict, "commit", "")
	stale := append(put[:1:1], store.Op{Key: "other", Expect: 7})
	_, err = m.Commit(ctx, stale)
	row("Memory.Commit", "an expectation that fails", err, ipalloc.ErrConflict, "commit", "")

	moved := store.NewOverlay(m)
	for _, db := range []store.Store{m, moved, m} {
		if _, err := db.Commit(ctx, []store.Op{{Kind: store.Put, Key: "k", Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = moved.Get(ctx, nil, "k")
	row("Memory.Get", "of an overlay that was changed below", err, ipalloc.ErrMismatch, "get", "")
	_, _, err = moved.List(ctx, store.Range{})
	row("Memory.List", "of an overlay that was changed below", err, ipalloc.ErrMismatch, "list", "")
	_, err = moved.Commit(ctx, []store.Op{{Kind: store.Put, Key: "k", Expect: store.AnyRevision}})
	row("Memory.Commit", "of an overlay that was changed below", err, ipalloc.ErrMismatch, "commit", "")
	for call, f := range map[string]func() error{
		"Memory.Get":           func() error { _, err := m.Get(ctx, nil, "", "k"); return err },
		"Memory.List":          func() error { _, _, err := m.List(ctx, store.Range{From: "z", To: "a", Limit: -1}); return err },
		"Memory.Check":         m.Check,
		"Memory.MarshalBinary": func() error { _, err := m.MarshalBinary(); return err },
	} {
		row(call, "never fails", f(), nil, "", "")
	}
	refusal.Check(t, "store", rows)
}
