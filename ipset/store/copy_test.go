package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestCopyIntoLimits: the commits of a copy keep to each limit of the destination, and are as few as it allows.
func TestCopyIntoLimits(t *testing.T) {
	src := store.NewMemory()
	const records, size = 100, 200 // of keys and values together
	for i := range records {
		key := fmt.Sprintf("A%03d", i)
		op := store.Op{Kind: store.Put, Key: key, Value: strings.Repeat("v", size-len(key))}
		if _, err := src.Commit(t.Context(), []store.Op{op}); err != nil {
			t.Fatal(err)
		}
	}
	for limits, commits := range map[store.Limits]int{
		{Ops: 10}: records / 10, {Bytes: 10 * size}: records / 10, {Bytes: 10*size - 1}: (records + 8) / 9, {Bytes: size}: records,
		{Ops: 4, Bytes: 10 * size}: records / 4, {Ops: 10, Bytes: 4 * size}: records / 4,
	} {
		mem := store.NewMemory()
		dst := faults.NewLimited(mem, limits)
		if _, err := store.Copy(t.Context(), dst, src); err != nil {
			t.Errorf("%+v: %v", limits, err)
			continue
		}
		if n := dst.Counts().Commits; n < commits || n > commits+2 { // and those that begin and end the copy
			t.Errorf("%+v: %d commits, want %d", limits, n, commits)
		}
		if recs, _, err := mem.List(t.Context(), store.Range{From: "A", To: "B"}); err != nil || len(recs) != records {
			t.Errorf("%+v: %d records, %v", limits, len(recs), err)
		}
	}
}

// TestLongestSpace: a space with the longest name there may be is one like any other, and one byte more is none.
func TestLongestSpace(t *testing.T) {
	mem, name := store.NewMemory(), strings.Repeat("n", 255)
	s, err := store.Space(mem, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "A", Value: "v"}}); err != nil {
		t.Fatal(err)
	}
	again, err := store.Space(mem, name)
	if err != nil {
		t.Fatal(err)
	}
	if recs, err := again.Get(t.Context(), nil, "A"); err != nil || recs[0].Value != "v" {
		t.Errorf("%v, %v", recs, err)
	}
	var names []string
	for n, err := range store.Spaces(t.Context(), mem) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, n)
	}
	if len(names) != 1 || names[0] != name {
		t.Errorf("spaces %q", names)
	}
	if _, err := store.Space(mem, name+"n"); err == nil {
		t.Error("a longer name is taken")
	}
}

// A copy reads both stores a page at a time, whatever they hold.
func TestCopyReadsPages(t *testing.T) {
	src := store.NewMemory()
	const records = 3500
	for i := range records {
		if _, err := src.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: fmt.Sprintf("a%05d", i), Value: "v"}}); err != nil {
			t.Fatal(err)
		}
	}
	from, to := faults.NewFaulty(src), faults.NewFaulty(store.NewMemory())
	for _, s := range []*faults.Faulty{from, to} {
		s.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.Kind == faults.List && (c.Range.Limit == 0 || c.Range.Limit > 1000) {
				t.Errorf("a list of %d records", c.Range.Limit)
			}
			return faults.Outcome{}
		})
	}
	if report, err := store.Copy(t.Context(), to, from); err != nil || report.Records != records || report.Written != records {
		t.Errorf("%+v, %v", report, err)
	}
	if report, err := store.Copy(t.Context(), to, from); err != nil || report.Written != 0 {
		t.Errorf("again: %+v, %v", report, err)
	}
}

// From its first commit to its last, a copy says in the destination that it is not complete: in the store, and in each space. It says so
// after each commit at which it can be stopped, goes on from there, and leaves nothing behind.
func TestCopySaysThatItIsNotComplete(t *testing.T) {
	for name, keys := range map[string][]string{
		"catalogs": {"a1", "a2", "b1", "c", "cp", "xblue\x00a1", "xblue\x00c", "xred\x00c"}, "one": {"c"}, "no catalog": {"X1", "X2", "X3"}, "a space alone": {"xblue\x00a1", "xblue\x00c"},
	} {
		src := store.NewMemory()
		for _, key := range keys {
			if _, err := src.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: key, Value: "value of " + key}}); err != nil {
				t.Fatal(err)
			}
		}
		for stop := 1; ; stop++ {
			dst := store.NewMemory()
			limited := faults.NewFaulty(faults.NewLimited(dst, store.Limits{Ops: 1}))
			n := 0
			limited.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				if c.Kind == faults.Commit {
					if n++; n > stop {
						return faults.Outcome{Err: context.Canceled}
					}
				}
				return faults.Outcome{}
			})
			_, err := store.Copy(t.Context(), limited, src)
			if err == nil {
				if got := store.Complete(t.Context(), dst); got != nil {
					t.Errorf("%s: %v", name, got)
				}
				break
			}
			recs, _, lerr := dst.List(t.Context(), store.Range{})
			if lerr != nil {
				t.Fatal(lerr)
			}
			said := store.Complete(t.Context(), dst)
			for _, space := range []string{"blue", "red"} {
				in, serr := store.Space(dst, space)
				if serr != nil {
					t.Fatal(serr)
				}
				said = errors.Join(said, store.Complete(t.Context(), in))
			}
			if len(recs) < len(keys) && !errors.Is(said, ipalloc.ErrInUse) {
				t.Errorf("%s: stopped after %d commits with %d records: %v", name, stop, len(recs), said)
			}
			if _, err := store.Copy(t.Context(), store.NewMemory(), dst); said != nil && !errors.Is(err, ipalloc.ErrInUse) {
				t.Errorf("%s: a part of a copy is copied on: %v", name, err)
			}
			report, err := store.Copy(t.Context(), dst, src)
			if err != nil || report.Records != len(keys) {
				t.Fatalf("%s: stopped after %d commits: %+v, %v", name, stop, report, err)
			}
			recs, _, lerr = dst.List(t.Context(), store.Range{})
			if lerr != nil || len(recs) != len(keys) || recs[0].Value != "value of "+recs[0].Key {
				t.Errorf("%s: %d records, %v", name, len(recs), lerr)
			}
		}
	}
}

// A copy returns the error of any call of a store that fails, and is whole when repeated.
func TestCopyReturnsErrors(t *testing.T) {
	src := store.NewMemory()
	for _, key := range []string{"a1", "b1", "c", "xblue\x00a1", "xblue\x00c"} {
		if _, err := src.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: key, Value: "value of " + key}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, source := range []bool{false, true} {
		for k, met := 1, true; met; k++ {
			mem := store.NewMemory()
			from, to := faults.NewFaulty(src), faults.NewFaulty(mem)
			failing := to
			if source {
				failing = from
			}
			failing.Script(faults.At(k, faults.Fail(faults.ErrInjected)))
			_, err := store.Copy(t.Context(), to, from)
			met = failing.Counts().Calls() >= k
			if met != errors.Is(err, faults.ErrInjected) || !met && err != nil {
				t.Errorf("source %v, call %d: %v", source, k, err)
			}
			if _, err := store.Copy(t.Context(), mem, src); err != nil {
				t.Errorf("source %v, after call %d: %v", source, k, err)
			}
		}
	}
}
