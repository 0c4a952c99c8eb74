package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// space returns a space of a store.
func space(t testing.TB, db store.Store, name string) store.Store {
	t.Helper()
	s, err := store.Space(db, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Keys next to those of the space "team" in every direction.
var around = []string{"a", "c", "w", "xtea\x00k", "xteam", "xteam\x01", "xteam ", "xteam2\x00k", "xteam\x01k", "xu\x00k", "y", "\xff"}

// A space keeps the contract of a store in the middle of other records, and leaves these alone.
func TestSpace(t *testing.T) {
	for name, open := range map[string]func() store.Store{
		"memory": func() store.Store { return store.NewMemory() },
		"limited": func() store.Store {
			return faults.NewLimited(store.NewMemory(), store.Limits{Ops: 30, Key: 300, Value: 1 << 15, Bytes: 1 << 16})
		},
		"bytes": func() store.Store {
			return faults.NewLimited(store.NewMemory(), store.Limits{Key: 300, Value: 1 << 15, Bytes: 1 << 16})
		},
		"in a space": func() store.Store { return space(t, store.NewMemory(), "outer") },
	} {
		t.Run(name, func(t *testing.T) {
			storetest.TestStore(t, func(t *testing.T) store.Store {
				db := open()
				for _, k := range around {
					if _, err := db.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: k, Value: "not yours"}}); err != nil {
						t.Fatal(err)
					}
				}
				before, _, err := db.List(t.Context(), store.Range{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					after, _, err := db.List(context.Background(), store.Range{})
					after = slices.DeleteFunc(after, func(r store.Record) bool { return strings.HasPrefix(r.Key, "xteam\x00") })
					if err != nil || !slices.Equal(before, after) {
						t.Errorf("the records outside are %v, were %v, %v", after, before, err)
					}
				})
				return space(t, db, "team")
			})
		})
	}
}

// Two spaces and the one without a name do not see each other: gets, lists, watches, conflicts.
func TestSpacesApart(t *testing.T) {
	db := store.NewMemory()
	all := map[string]store.Store{"": db, "a": space(t, db, "a"), "ab": space(t, db, "ab"), "a/é": space(t, db, "a/é")}
	for name, s := range all {
		if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "k", Value: name}, {Kind: store.Put, Key: name + "own"}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range all {
		recs, _, err := s.List(t.Context(), store.Range{To: "x"})
		if err != nil || len(recs) != 2 {
			t.Errorf("space %q lists %v, %v", name, recs, err)
		}
		if recs, err := s.Get(t.Context(), nil, "k"); err != nil || recs[0].Value != name {
			t.Errorf("space %q has %v, %v", name, recs, err)
		}
		_, err = s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "k"}})
		if key, ok := store.ConflictKey(err); !ok || key != "k" {
			t.Errorf("space %q: conflict about %q", name, key)
		}
	}
	var names []string
	for name, err := range store.Spaces(t.Context(), db) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if want := []string{"a", "a/é", "ab"}; !slices.Equal(names, want) {
		t.Errorf("spaces %q, want %q", names, want)
	}
}

// Listing the spaces reads one record of each, and passes over keys that name none.
func TestSpacesSkip(t *testing.T) {
	f := faults.NewFaulty(store.NewMemory())
	const n = 20
	for i := range n {
		s := space(t, f, fmt.Sprintf("s%02d", i))
		for j := range 50 {
			if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: fmt.Sprint("k", j)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	list := func() (names int, last error) {
		for _, err := range store.Spaces(t.Context(), f) {
			if last = err; err == nil {
				names++
			}
		}
		return names, last
	}
	f.Reset()
	if names, err := list(); names != n || err != nil {
		t.Errorf("%d spaces, %v", names, err)
	}
	if c := f.Reset(); c.Read != n || c.Lists != n+1 {
		t.Errorf("%d spaces cost %d lists of %d records", n, c.Lists, c.Read)
	}
	for _, key := range []string{"x", "x\x00k", "xs05", "x\xff\x00k", "xs06\x00", "x" + strings.Repeat("n", 256) + "\x00k"} {
		if _, err := f.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: key}}); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := list(); names != n || !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("with damaged keys: %d spaces, %v", names, err)
	}
	f.Script(faults.At(6, faults.Fail(faults.ErrInjected)))
	if names, err := list(); names != 2 || !errors.Is(err, faults.ErrInjected) {
		t.Errorf("with a failing store: %d spaces, %v", names, err)
	}
}

// A name that a key cannot carry is refused, and so is one for which the store has no room.
func TestSpaceNames(t *testing.T) {
	for _, name := range []string{"a", " ", "C", "x", "é", strings.Repeat("n", 255)} {
		if _, err := store.Space(store.NewMemory(), name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "a\x00", "\x00a", "\xff", strings.Repeat("n", 256)} {
		if _, err := store.Space(store.NewMemory(), name); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, l := range []store.Limits{{Key: 10}, {Ops: 5, Bytes: 30}, {Bytes: 1}} {
		if _, err := store.Space(faults.NewLimited(store.NewMemory(), l), "12345678"); !errors.Is(err, ipalloc.ErrLimit) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for key, want := range map[string]string{"xa\x00c": "a c", "xa\x00": "", "xa": "", "c": "", "": "", "Xa\x00c": "", "xa\x00xb\x00c": "a xb\x00c"} {
		name, inside, ok := store.SpaceOf(key)
		if got := strings.TrimSpace(name + " " + inside); got != want || ok != (want != "") {
			t.Errorf("SpaceOf(%q) = %q, %q, %v", key, name, inside, ok)
		}
	}
}

// What a space allows in a commit fits into one of its store.
func TestSpaceLimits(t *testing.T) {
	for _, l := range []store.Limits{{Ops: 127, Value: 400_000, Bytes: 400_000}, {Ops: 1024, Value: 512 << 10, Bytes: 512 << 10}} {
		for _, name := range []string{"a", strings.Repeat("n", 255)} {
			s := space(t, faults.NewLimited(store.NewMemory(), l), name)
			in := s.Limits()
			var ops []store.Op // as many ops as it allows, and then as many bytes
			for i := range in.Ops {
				ops = append(ops, store.Op{Kind: store.Put, Key: fmt.Sprintf("p%04d", i), Expect: store.AnyRevision},
					store.Op{Kind: store.Guard, Key: fmt.Sprintf("g%04d", i)})
			}
			ops[0].Value = strings.Repeat("v", in.Bytes-10*in.Ops)
			if _, err := s.Commit(t.Context(), ops); err != nil {
				t.Errorf("%+v of %+v: %v", in, l, err)
			}
			ops[0].Value += "v"
			if _, err := s.Commit(t.Context(), ops); !errors.Is(err, ipalloc.ErrLimit) {
				t.Errorf("a byte more: %v", err)
			}
		}
	}
}

// A commit in a space costs one allocation more than in its store, and a get two.
func TestSpaceAllocations(t *testing.T) {
	var ops []store.Op
	var keys []string
	for i := range 10 {
		keys = append(keys, fmt.Sprint("k", i))
		ops = append(ops, store.Op{Kind: store.Put, Key: keys[i], Expect: store.AnyRevision})
	}
	cost := func(s store.Store) (commit, get float64) {
		return testing.AllocsPerRun(2000, func() {
				if _, err := s.Commit(t.Context(), ops); err != nil {
					t.Fatal(err)
				}
			}), testing.AllocsPerRun(100, func() {
				if _, err := s.Get(t.Context(), nil, keys...); err != nil {
					t.Fatal(err)
				}
			})
	}
	db := store.NewMemory()
	cost(db) // makes room for the commits that it remembers
	commit, get := cost(db)
	if c, g := cost(space(t, db, "team")); c > commit+1 || g > get+2 {
		t.Errorf("%v and %v allocations in a space, %v and %v without", c, g, commit, get)
	}
}

// A copy of a store with spaces writes the root of every space after all that is not one, goes on when interrupted among the
// roots, and is refused once a space is in use.
func TestCopySpaces(t *testing.T) {
	src := store.NewMemory()
	put := func(s store.Store, key, value string) {
		t.Helper()
		if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: key, Value: value, Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
	}
	nested := space(t, space(t, src, "b"), "n")
	for _, s := range []store.Store{src, space(t, src, "a"), space(t, src, "b"), nested} {
		put(s, "c", "root")
		put(s, "b1", "block")
		put(s, "z", "last")
	}
	want, _, _ := src.List(t.Context(), store.Range{})
	const marks = 4 // the first commits
	for k := 1; ; k++ {
		mem := store.NewMemory()
		dst := faults.NewLimited(mem, store.Limits{Ops: 1})
		dst.Script(faults.AtCommit(k, faults.Fail(faults.ErrInjected)))
		_, err := store.Copy(t.Context(), dst, src)
		there, _, _ := mem.List(t.Context(), store.Range{})
		for _, r := range there {
			if strings.HasSuffix(r.Key, "c") && r.Value == "root" && len(there) < len(want) {
				t.Fatalf("root %q is among the first %d records of %d", r.Key, len(there), len(want))
			}
		}
		if err == nil {
			break
		}
		if k == len(want)+marks { // one root is missing; the others are, and one space loses a record
			if _, err := mem.Commit(t.Context(), []store.Op{{Kind: store.Delete, Key: "xa\x00b1", Expect: store.AnyRevision}}); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Copy(t.Context(), mem, src); !errors.Is(err, ipalloc.ErrExists) {
				t.Errorf("into a store in use: %v", err)
			}
			put(mem, "xa\x00b1", "block")
		}
		dst.Script(nil)
		if rep, err := store.Copy(t.Context(), dst, src); err != nil || rep.Written != len(want)-max(0, k-1-marks) {
			t.Fatalf("after fault %d: %+v, %v", k, rep, err)
		}
		got, _, _ := mem.List(t.Context(), store.Range{})
		if !slices.EqualFunc(got, want, func(a, b store.Record) bool { return a.Key == b.Key && a.Value == b.Value }) {
			t.Fatalf("after fault %d: %v", k, got)
		}
	}
	// One space alone goes to another name in another store.
	other := space(t, store.NewMemory(), "renamed")
	if rep, err := store.Copy(t.Context(), other, space(t, src, "b")); err != nil || rep.Written != 6 {
		t.Errorf("one space: %+v, %v", rep, err)
	}
}
