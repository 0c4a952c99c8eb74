package faults

import (
	"context"
	"errors"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// Each outcome of a commit is what the caller sees and what the store holds afterwards.
func TestOutcomes(t *testing.T) {
	late := make(chan struct{})
	for name, tt := range map[string]struct {
		outcome Outcome
		want    error // nil is success
		unknown bool
		made    bool
	}{
		"passed on":      {Outcome{}, nil, false, true},
		"failed":         {Fail(ErrInjected), ErrInjected, false, false},
		"in conflict":    {Conflict("k"), ipalloc.ErrConflict, false, false},
		"lost, made":     {Unknown(true), ErrInjected, true, true},
		"lost, not made": {Unknown(false), ErrInjected, true, false},
		"late":           {Late(late), ErrInjected, true, false},
		"a lie":          {Outcome{Lie: true}, nil, false, false},
		"other ops":      {Outcome{Ops: []store.Op{put("other", "")}}, nil, false, false},
	} {
		mem := store.NewMemory()
		f := NewFaulty(mem)
		f.Script(AtCommit(1, tt.outcome))
		_, err := f.Commit(context.Background(), []store.Op{put("k", "value")})
		if !errors.Is(err, tt.want) || errors.Is(err, ipalloc.ErrUnknownOutcome) != tt.unknown {
			t.Errorf("%s: %v", name, err)
		}
		if e := (*ipalloc.Error)(nil); err != nil && !errors.As(err, &e) {
			t.Errorf("%s: %T is no *ipalloc.Error", name, err)
		}
		if made := revision(t, mem, "k") != 0; made != tt.made {
			t.Errorf("%s: made is %v", name, made)
		}
		if name == "late" {
			close(late)
			f.Settle()
			if revision(t, mem, "k") == 0 {
				t.Error("a late commit was not made")
			}
		}
	}
}

// A script sees every call with its arguments and number, and the counts are exact.
func TestCounts(t *testing.T) {
	f := NewFaulty(store.NewMemory())
	var seen []Call
	f.Script(func(_ context.Context, c Call) Outcome {
		seen = append(seen, c)
		if c.Kind == List && c.Nth == 2 {
			return Outcome{Cut: 1}
		}
		return Outcome{}
	})
	if _, err := f.Commit(context.Background(), []store.Op{put("a", "12"), put("bc", "3"), {Kind: store.Delete, Key: "x"}, {Key: "y"}}); err != nil {
		t.Fatal(err)
	}
	revision(t, f, "a")
	for i, want := range []int{2, 1} {
		if recs, _, err := f.List(context.Background(), store.Range{To: "z"}); err != nil || len(recs) != want {
			t.Errorf("list %d: %v, %v", i, recs, err)
		}
	}
	for range f.Watch(context.Background(), 0, "a", "b") {
		break
	}
	want := Counts{Gets: 1, Lists: 2, Commits: 1, Watches: 1, Read: 4, Written: 3, Guards: 1, Keys: 5, Values: 3, Changes: 2}
	if got := f.Counts(); got != want || got.Calls() != 4 {
		t.Errorf("%+v, want %+v", got, want)
	}
	if len(seen) != 5 || len(seen[0].Ops) != 4 || seen[1].Keys[0] != "a" || seen[3].Range.To != "z" || seen[3].N != 4 || len(seen[4].Keys) != 2 {
		t.Errorf("%+v", seen)
	}
	if got := f.Reset(); got != want || f.Counts() != (Counts{}) {
		t.Errorf("after Reset: %+v", f.Counts())
	}
}

// Limits of its own are reported and enforced.
func TestLimited(t *testing.T) {
	f := NewLimited(store.NewMemory(), store.Limits{Ops: 1})
	if f.Limits().Ops != 1 {
		t.Error(f.Limits())
	}
	if _, err := f.Commit(context.Background(), []store.Op{put("a", ""), put("b", "")}); !errors.Is(err, ipalloc.ErrLimit) {
		t.Error(err)
	}
}

// A fault in a call whose context has ended returns the error of the context.
func TestFaultAfterContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	f := NewFaulty(store.NewMemory())
	f.Script(func(context.Context, Call) Outcome {
		cancel()
		return Fail(ErrInjected)
	})
	if _, err := f.Get(ctx, nil, "a"); !errors.Is(err, context.Canceled) || errors.Is(err, ErrInjected) {
		t.Error(err)
	}
	if _, _, err := f.List(context.Background(), store.Range{}); !errors.Is(err, ErrInjected) {
		t.Error(err)
	}
	for _, err := range f.Watch(context.Background(), 0, "a") {
		if !errors.Is(err, ErrInjected) {
			t.Error(err)
		}
	}
	f.Script(From(2, Fail(ErrInjected)))
	for i := range 3 {
		if _, err := f.Get(context.Background(), nil, "a"); (err != nil) != (i > 0) {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
}

// Without a script a faulty store keeps the contract.
func TestPassesOn(t *testing.T) {
	storetest.TestStore(t, func(*testing.T) store.Store { return NewFaulty(store.NewMemory()) })
}

func put(key, value string) store.Op { return store.Op{Kind: store.Put, Key: key, Value: value} }

// revision returns the revision of a record.
func revision(t *testing.T, s store.Store, key string) uint64 {
	t.Helper()
	recs, err := s.Get(context.Background(), nil, key)
	if err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}
	return recs[0].Rev
}
