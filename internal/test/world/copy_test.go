package world

import (
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// records returns all records of a store without their revisions.
func records(t *testing.T, db store.Store) map[string]string {
	t.Helper()
	recs, _, err := db.List(t.Context(), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, r := range recs {
		m[r.Key] = r.Value
	}
	return m
}

// same fails the test unless two stores have the same records and show the same world.
func (w *World) same(t *testing.T, is, want store.Store) {
	t.Helper()
	a, b := records(t, is), records(t, want)
	for k, v := range b {
		if a[k] != v {
			t.Errorf("record %q is %x, want %x", k, a[k], v)
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d records, want %d", len(a), len(b))
	}
	for _, line := range Diff(w.Look(t, want), w.Look(t, is)) {
		t.Error(line)
	}
}

// A snapshot of the store in memory is the same world.
func TestSnapshotIsTheSameWorld(t *testing.T) {
	w := New(t)
	w.same(t, w.Copy(t).DB, w.DB)
}

// A copy is the same world on every store, whatever its limits, also if it is cut off at any commit and repeated.
func TestCopyIsTheSameWorld(t *testing.T) {
	w := New(t)
	for _, l := range []store.Limits{{}, {Ops: 127}, {Bytes: 4096}, {Ops: 24, Bytes: 2048}} {
		to := faults.NewLimited(store.NewMemory(), l)
		if _, err := store.Copy(t.Context(), to, w.DB); err != nil {
			t.Fatal(l, err)
		}
		w.same(t, to, w.DB)
		commits := to.Counts().Commits
		for k := 1; k <= commits; k += 1 + commits/20 {
			for _, made := range []bool{false, true} {
				to := faults.NewLimited(store.NewMemory(), l)
				to.Script(faults.AtCommit(k, faults.Unknown(made)))
				_, _ = store.Copy(t.Context(), to, w.DB)
				to.Script(nil)
				if _, err := store.Copy(t.Context(), to, w.DB); err != nil {
					t.Fatal(err)
				}
				w.same(t, to, w.DB)
			}
		}
	}
}

// A copy of one space to another name carries that space and nothing else.
func TestCopyOfASpace(t *testing.T) {
	w := New(t)
	from, err := store.Space(w.DB, "blue")
	if err != nil {
		t.Fatal(err)
	}
	to := store.NewMemory()
	if _, err := store.Copy(t.Context(), to, from); err != nil {
		t.Fatal(err)
	}
	moved := &World{DB: to, Clock: w.Clock}
	for key, want := range w.Look(t, w.DB) {
		if key[:5] == "blue/" {
			if got := moved.Look(t, to)[key[4:]]; got != want {
				t.Fatalf("%s is %s, want %s", key, got, want)
			}
		}
	}
}

// everything is the range of all records.
var everything = store.Range{}
