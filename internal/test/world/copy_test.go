package world

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
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
		if rep, err := store.Copy(t.Context(), to, w.DB); err != nil || rep.Written != 0 {
			t.Errorf("again: %+v, %v", rep, err)
		}
		for k := 1; k <= commits; k += 1 + commits/20 {
			for _, made := range []bool{false, true} {
				to := faults.NewLimited(store.NewMemory(), l)
				to.Script(faults.AtCommit(k, faults.Unknown(made)))
				_, _ = store.Copy(t.Context(), to, w.DB)
				to.Script(nil)
				if err := store.Complete(t.Context(), to); k > 1 && err == nil { // then other spaces' roots alone may be missing
					have := records(t, to)
					for key := range records(t, w.DB) {
						if _, ok := have[key]; !ok && !strings.HasSuffix(key, store.RootKey) {
							t.Errorf("cut off at commit %d of %d the copy counts as complete, without %q", k, commits, key)
						}
					}
				}
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

// refused reports whether a store says that it is being copied into, and an engine on it assigns nothing.
func refused(t *testing.T, db store.Store) bool {
	t.Helper()
	e, err := ipset.New(db, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, assigned := e.Assign(t.Context(), alloc.HostOwner("h"), "somebody")
	added := e.AddPool(t.Context(), alloc.Pool{Name: "new", Prefix: netip.MustParsePrefix("10.77.0.0/24")})
	_, listed := e.Pools(t.Context())
	return errors.Is(store.Complete(t.Context(), db), ipalloc.ErrInUse) && assigned != nil && added != nil && listed != nil
}

// A store that changes while it is copied is not taken for whole, and one that holds something else is not written to.
func TestCopyRefuses(t *testing.T) {
	w := New(t)
	src := w.DB
	busy := faults.NewFaulty(src)
	busy.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.List && c.Nth == 2 {
			if _, err := src.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "q-somebody", Expect: store.AnyRevision}}); err != nil {
				t.Error(err)
			}
		}
		return faults.Outcome{}
	})
	dst := store.NewMemory()
	if _, err := store.Copy(t.Context(), dst, busy); !errors.Is(err, ipalloc.ErrMismatch) {
		t.Errorf("a busy source: %v", err)
	}
	if !refused(t, dst) {
		t.Error("the catalog was written")
	}
	other := store.NewMemory()
	if _, err := other.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "x"}}); err != nil {
		t.Fatal(err)
	}
	if rep, err := store.Copy(t.Context(), other, src); !errors.Is(err, ipalloc.ErrExists) || rep.Written != 0 {
		t.Errorf("onto something else: %+v, %v", rep, err)
	}
	mem := store.NewMemory()
	racing := faults.NewFaulty(mem)
	racing.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Commit && c.Nth == 2 { // the first one is the mark
			if _, err := mem.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "q-somebody"}}); err != nil {
				t.Error(err)
			}
		}
		return faults.Outcome{}
	})
	if _, err := store.Copy(t.Context(), racing, src); !errors.Is(err, ipalloc.ErrExists) {
		t.Errorf("onto a store that somebody writes to: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Copy(ctx, store.NewMemory(), src); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if rep, err := store.Copy(t.Context(), store.NewMemory(), store.NewMemory()); err != nil || rep != (store.Copied{}) {
		t.Errorf("nothing: %+v, %v", rep, err)
	}
}
