package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// testSizes verifies what a store that reads pages or sends batches would cut: 1,001 records of a list, 65 expectations, 129 keys.
func testSizes(t *testing.T, s store.Store) {
	const n = 1001
	batch := most(s, 91)
	var keys []string
	for from := 0; from < n; from += batch {
		var ops []store.Op
		for i := range min(batch, n-from) {
			keys = append(keys, fmt.Sprintf("k%05d", from+i))
			ops = append(ops, put(keys[from+i], fmt.Sprint(from+i), 0))
		}
		commit(t, s, ops...)
	}
	for _, r := range []store.Range{{}, {From: "k"}, {Reverse: true}, {Limit: n}, {Limit: n + 1, Reverse: true}} {
		recs, _, err := s.List(context.Background(), r)
		if r.Reverse {
			slices.Reverse(recs)
		}
		if err != nil || !slices.EqualFunc(recs, keys, func(r store.Record, key string) bool { return r.Key == key }) {
			t.Errorf("%+v: %d records of %d, %v", r, len(recs), n, err)
		}
	}
	for _, n := range []int{64, 65, 127, 128, 129, 257} {
		recs, err := s.Get(context.Background(), nil, keys[:n]...)
		if err != nil || len(recs) != n {
			t.Fatalf("%d records of %d, %v", len(recs), n, err)
		}
		for i, r := range recs {
			if r.Key != keys[i] || r.Value != fmt.Sprint(i) || r.Rev == 0 {
				t.Errorf("record %d of %d: %+v", i, n, r)
			}
		}
	}
	recs, err := s.Get(context.Background(), nil, keys[:batch]...)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []int{0, min(63, batch-1), min(64, batch-1), batch - 1} {
		var guards, puts []store.Op
		for i, r := range recs {
			rev := r.Rev
			if i == wrong {
				rev++
			}
			guards, puts = append(guards, guard(r.Key, rev)), append(puts, put(r.Key, "never", rev))
		}
		conflict(t, s, keys[wrong], guards...)
		conflict(t, s, keys[wrong], append(guards, put("z", "never", store.AnyRevision))...)
		conflict(t, s, keys[wrong], puts...)
	}
}

// most returns n, or what a commit to s takes if that is less.
func most(s store.Store, n int) int {
	if limit := s.Limits().Ops; limit > 0 {
		return min(n, limit)
	}
	return n
}

// testOneView has a Get of many records see none but one commit, while all of them are written again and again.
func testOneView(t *testing.T, s store.Store) {
	const writes, reads = 40, 200
	records := most(s, 90)
	var keys []string
	var ops []store.Op
	for i := range records {
		keys = append(keys, fmt.Sprintf("k%03d", i))
		ops = append(ops, put(keys[i], "", store.AnyRevision))
	}
	commit(t, s, ops...)
	var read, wrote atomic.Int64
	done := make(chan error)
	go func() {
		for wrote.Load() < writes || read.Load() < reads {
			if _, err := s.Commit(context.Background(), ops); err != nil {
				done <- err
				return
			}
			wrote.Add(1)
		}
		done <- nil
	}()
	for wrote.Load() < writes || read.Load() < reads {
		recs, err := s.Get(context.Background(), nil, keys...)
		if err != nil || slices.ContainsFunc(recs, func(r store.Record) bool { return r.Rev != recs[0].Rev }) {
			t.Errorf("a Get shows more than one commit: %v, %v", recs, err)
			break
		}
		read.Add(1)
	}
	read.Store(reads)
	wrote.Store(max(wrote.Load(), writes))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// testModel makes random commits and compares what they answer, and what is there after each, with a map.
func testModel(t *testing.T, s store.Store) {
	const steps, records = 1200, 12
	rng := rand.New(rand.NewPCG(1, 2))
	model := make([]store.Record, records)
	var keys []string
	for i := range model {
		keys = append(keys, fmt.Sprint("m", i))
		model[i].Key = keys[i]
	}
	old := uint64(0) // a revision that no record has any more
	for step := range steps {
		next, failing := slices.Clone(model), ""
		var ops []store.Op
		for _, i := range rng.Perm(records)[:1+rng.IntN(4)] {
			op := store.Op{Kind: store.Kind(rng.IntN(3)), Key: keys[i], Expect: model[i].Rev}
			switch {
			case op.Kind != store.Guard && rng.IntN(4) == 0:
				op.Expect = store.AnyRevision
			case rng.IntN(8) == 0 && old != model[i].Rev:
				op.Expect = old
				if failing == "" {
					failing = op.Key
				}
			}
			switch op.Kind {
			case store.Put:
				op.Value = fmt.Sprint(step)[:rng.IntN(2)]
				next[i].Value, next[i].Rev = op.Value, 1
			case store.Delete:
				next[i] = store.Record{Key: op.Key}
			}
			ops = append(ops, op)
		}
		rev, err := s.Commit(context.Background(), ops)
		if key, _ := store.ConflictKey(err); key != failing || failing == "" && err != nil {
			t.Fatalf("step %d: %+v: %v, want a conflict about %q", step, ops, err, failing)
		}
		if err == nil {
			for i, op := range next {
				if op.Rev == 1 && slices.ContainsFunc(ops, func(op store.Op) bool { return op.Key == keys[i] && op.Kind == store.Put }) {
					next[i].Rev = rev
				}
			}
			if old = model[0].Rev; old == 0 {
				old = 1 << 40
			}
			model = next
		}
		if recs, err := s.Get(context.Background(), nil, keys...); err != nil || !slices.Equal(recs, model) {
			t.Fatalf("step %d: after %+v: %v, %v, want %v", step, ops, recs, err, model)
		}
		listed, _, err := s.List(context.Background(), store.Range{From: "m", To: "n"})
		slices.SortFunc(listed, func(a, b store.Record) int { return slices.Index(keys, a.Key) - slices.Index(keys, b.Key) })
		there := slices.DeleteFunc(slices.Clone(model), func(r store.Record) bool { return r.Rev == 0 })
		if err != nil || !slices.Equal(listed, there) {
			t.Fatalf("step %d: after %+v: List: %v, %v, want %v", step, ops, listed, err, there)
		}
	}
	for i := range 200 { // each guard counts
		if _, err := s.Commit(context.Background(), []store.Op{guard(keys[i%records], 1<<41), put("never", "", store.AnyRevision)}); err == nil {
			t.Errorf("guard %d was not compared", i)
		}
	}
}
