package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// overlayPair is an overlay of a memory store, and a plain store to which every commit to either is made.
type overlayPair struct {
	t       *testing.T
	below   *store.Memory
	over    store.Store
	plain   *store.Memory
	written map[string]bool // by the overlay
}

func newOverlayPair(t *testing.T) *overlayPair {
	below := store.NewMemory()
	return &overlayPair{t, below, store.NewOverlay(below), store.NewMemory(), map[string]bool{}}
}

// contents returns keys and values of records.
func contents(recs []store.Record) (s []string) {
	for _, r := range recs {
		s = append(s, fmt.Sprint(r.Key, "=", r.Value, r.Rev != 0))
	}
	return s
}

// op returns an op for each of two stores with the same expectation, which may fail.
func (p *overlayPair) op(r *rand.Rand, key string, a, b store.Store) (store.Op, store.Op) {
	op := store.Op{Kind: store.Kind(r.IntN(3)), Key: key}
	if op.Kind == store.Put {
		op.Value = fmt.Sprint(r.IntN(1000))
	}
	expect := func(s store.Store) uint64 {
		recs, err := s.Get(context.Background(), nil, key)
		if err != nil {
			p.t.Fatal(err)
		}
		return recs[0].Rev
	}
	of, other := op, op
	of.Expect, other.Expect = expect(a), expect(b)
	switch r.IntN(6) {
	case 0: // at a revision that no record has
		of.Expect, other.Expect = 1<<62, 1<<62
	case 1: // not there
		of.Expect, other.Expect = 0, 0
	case 2:
		if op.Kind != store.Guard {
			of.Expect, other.Expect = store.AnyRevision, store.AnyRevision
		}
	}
	return of, other
}

// commit commits the same to two stores.
func (p *overlayPair) commit(r *rand.Rand, a store.Store, keys []string) {
	var ops, other []store.Op
	for _, key := range keys {
		x, y := p.op(r, key, a, p.plain)
		ops, other = append(ops, x), append(other, y)
	}
	_, err := a.Commit(context.Background(), ops)
	_, want := p.plain.Commit(context.Background(), other)
	if fmt.Sprint(err) != fmt.Sprint(want) {
		p.t.Fatalf("commit %+v: %v, want %v", ops, err, want)
	}
	if err == nil && a == store.Store(p.over) {
		for _, op := range ops {
			p.written[op.Key] = p.written[op.Key] || op.Kind != store.Guard
		}
	}
}

// compare compares what the overlay and the plain store return.
func (p *overlayPair) compare(r *rand.Rand, keys []string) {
	p.t.Helper()
	got, err := p.over.Get(context.Background(), []store.Record{{Key: "first"}}, keys...)
	want, _ := p.plain.Get(context.Background(), []store.Record{{Key: "first"}}, keys...)
	if err != nil || !slices.Equal(contents(got), contents(want)) {
		p.t.Fatalf("get %v: %v, %v, want %v", keys, contents(got), err, contents(want))
	}
	q := store.Range{From: keys[0], Limit: r.IntN(6), Reverse: r.IntN(2) == 0}
	if r.IntN(2) == 0 {
		q.To = keys[len(keys)-1]
	}
	got, rev, err := p.over.List(context.Background(), q)
	want, _, _ = p.plain.List(context.Background(), q)
	if err != nil || !slices.Equal(contents(got), contents(want)) {
		p.t.Fatalf("list %+v: %v, %v, want %v", q, contents(got), err, contents(want))
	}
	if _, below, _ := p.below.List(context.Background(), q); rev != below {
		p.t.Fatalf("list at revision %d, the store below has %d", rev, below)
	}
}

// An overlay answers what a store would to which the commits had been made, and leaves the one below as it was, also while others
// change what the overlay has not written.
func TestOverlayIsAStore(t *testing.T) {
	for seed := range seeds.Each(t, 200, 200) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := newOverlayPair(t)
		key := func() string { return fmt.Sprintf("k%02d", r.IntN(30)) }
		for range 200 {
			keys := []string{key(), key(), key()}
			slices.Sort(keys)
			if keys = slices.Compact(keys); r.IntN(3) == 0 {
				keys = slices.DeleteFunc(keys, func(k string) bool { return p.written[k] })
				if len(keys) > 0 {
					p.commit(r, p.below, keys)
				}
				continue
			}
			before, _ := p.below.MarshalBinary()
			p.commit(r, p.over, keys)
			p.compare(r, keys)
			if after, _ := p.below.MarshalBinary(); string(after) != string(before) {
				t.Fatal("the store below changed")
			}
		}
	}
}

// A record that the overlay has written and that changes below shows as a mismatch in every call that meets it, and in no other.
func TestOverlayMoved(t *testing.T) {
	ctx := context.Background()
	below := store.NewMemory()
	put := func(s store.Store, key string) {
		t.Helper()
		if _, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: key, Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
	}
	put(below, "a")
	over := store.NewOverlay(below)
	put(over, "a")
	put(over, "b")
	put(below, "c")
	if recs, _, err := over.List(ctx, store.Range{}); err != nil || len(recs) != 3 {
		t.Fatalf("%v, %v", recs, err)
	}
	for _, key := range []string{"a", "b"} {
		put(below, key)
		_, getErr := over.Get(ctx, nil, "c", key)
		_, _, listErr := over.List(ctx, store.Range{From: key, To: key + "\x00"})
		_, commitErr := over.Commit(ctx, []store.Op{{Kind: store.Put, Key: key, Expect: store.AnyRevision}})
		for _, err := range []error{getErr, listErr, commitErr} {
			if !errors.Is(err, ipalloc.ErrMismatch) {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
	if recs, err := over.Get(ctx, nil, "c"); err != nil || recs[0].Rev == 0 {
		t.Errorf("%v, %v", recs, err)
	}
}

// Of many overlays on one store none sees another, and the callers of each get the answers of one store: one of several creations
// of a record succeeds. An overlay of an overlay has revisions of its own.
func TestOverlaysAtOnce(t *testing.T) {
	ctx := context.Background()
	below := store.NewMemory()
	overs := []store.Store{store.NewOverlay(below), store.NewOverlay(below)}
	overs = append(overs, store.NewOverlay(overs[0]))
	var wg sync.WaitGroup
	for _, o := range overs[1:] {
		var mu sync.Mutex
		won := map[string]int{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			var callers sync.WaitGroup
			for c := range 4 {
				callers.Add(1)
				go func() {
					defer callers.Done()
					for i := range 100 {
						key := fmt.Sprint("k", i)
						_, err := o.Commit(ctx, []store.Op{{Kind: store.Put, Key: key, Value: fmt.Sprint(c)}})
						if err == nil {
							mu.Lock()
							won[key]++
							mu.Unlock()
						} else if !errors.Is(err, ipalloc.ErrConflict) {
							t.Error(err)
						}
						if _, _, err := o.List(ctx, store.Range{From: key, Limit: 3}); err != nil {
							t.Error(err)
						}
					}
				}()
			}
			callers.Wait()
			for key, n := range won {
				if n != 1 {
					t.Errorf("%s created %d times", key, n)
				}
			}
			if recs, _, err := o.List(ctx, store.Range{}); err != nil || len(recs) != 100 || len(won) != 100 {
				t.Errorf("%d records, %v, %d created", len(recs), err, len(won))
			}
		}()
	}
	wg.Wait()
	for i, s := range []store.Store{below, overs[0]} {
		if recs, _, _ := s.List(ctx, store.Range{}); len(recs) != 0 {
			t.Errorf("store %d got %d records", i, len(recs))
		}
	}
}

// Two commits to an overlay that meet while they read the store below are one after the other: the second is verified again. An
// overlay of an overlay has revisions of its own.
func TestOverlayCommitsMeet(t *testing.T) {
	ctx := context.Background()
	db := faults.NewFaulty(store.NewMemory())
	over := store.NewOverlay(db)
	create := func(o store.Store, key string) (uint64, error) {
		return o.Commit(ctx, []store.Op{{Kind: store.Put, Key: key}})
	}
	met := false
	db.Script(func(context.Context, faults.Call) faults.Outcome {
		if !met {
			met = true
			if _, err := create(over, "a"); err != nil {
				t.Error(err)
			}
		}
		return faults.Outcome{}
	})
	if _, err := create(over, "a"); !errors.Is(err, ipalloc.ErrConflict) || !met {
		t.Errorf("created twice: %v", err)
	}
	recs, err := over.Get(ctx, nil, "a")
	if err != nil {
		t.Fatal(err)
	}
	if rev, err := create(store.NewOverlay(over), "b"); err != nil || rev == recs[0].Rev {
		t.Errorf("revision %d, %v, as in the overlay below", rev, err)
	}
}

// Every call of an overlay costs one call of the store below, fails with its error, and refuses what it refuses.
func TestOverlayCost(t *testing.T) {
	ctx := context.Background()
	db := faults.NewLimited(store.NewMemory(), store.Limits{Ops: 2})
	over := store.NewOverlay(db)
	op := func(key string) store.Op { return store.Op{Kind: store.Put, Key: key} }
	if _, err := over.Commit(ctx, []store.Op{op("a"), op("b")}); err != nil {
		t.Fatal(err)
	}
	if _, err := over.Get(ctx, nil, "a", "b", "c"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := over.List(ctx, store.Range{Limit: 2}); err != nil {
		t.Fatal(err)
	}
	if n := db.Counts(); n.Gets != 2 || n.Lists != 1 || n.Commits != 0 {
		t.Errorf("%+v", n)
	}
	if _, err := over.Commit(ctx, []store.Op{op("d"), op("e"), op("f")}); !errors.Is(err, ipalloc.ErrLimit) {
		t.Errorf("three records: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := over.Commit(ended, []store.Op{op("d")}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	db.Reset()
	db.Script(faults.From(1, faults.Fail(faults.ErrInjected)))
	_, getErr := over.Get(ctx, nil, "a")
	_, _, listErr := over.List(ctx, store.Range{})
	_, commitErr := over.Commit(ctx, []store.Op{op("d")})
	for _, err := range []error{getErr, listErr, commitErr} {
		if !errors.Is(err, faults.ErrInjected) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Error(err)
		}
	}
}
