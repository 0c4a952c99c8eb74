package metrics_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
	"github.com/ipalloc/ipalloc/metrics"
)

// Commits are counted by their outcome, and an unknown one is unsettled until a later commit is made.
func TestStore(t *testing.T) {
	faulty := faults.NewFaulty(store.NewMemory())
	db := metrics.NewStore("pods", faulty)
	ctx := t.Context()
	commit := func(ops ...store.Op) { _, _ = db.Commit(ctx, ops) }
	commit(store.Op{Kind: store.Put, Key: "a", Value: "123"}, store.Op{Kind: store.Put, Key: "c"}, store.Op{Kind: store.Put, Key: "d"})
	commit(store.Op{Kind: store.Put, Key: "a", Value: "123"}) // expects that there is none
	faulty.Script(faults.AtCommit(1, faults.Unknown(true)))
	commit(store.Op{Kind: store.Delete, Key: "a", Expect: store.AnyRevision})
	faulty.Script(nil)
	commit(store.Op{}) // not well formed
	_, _ = db.Get(ctx, nil, "a")
	_, _, _ = db.List(ctx, store.Range{})
	got := scrape(t, db)
	want(t, got, "store_commits_total", map[string]float64{"outcome=made": 1, "outcome=conflict": 1, "outcome=unknown": 1, "outcome=failed": 1})
	want(t, got, "store_unsettled_commits", map[string]float64{"": 1})
	want(t, got, "store_records_written_total", map[string]float64{"": 3})
	want(t, got, "store_bytes_written_total", map[string]float64{"": 6})
	want(t, got, "store_operation_seconds", map[string]float64{"op=commit": 4, "op=get": 1, "op=list": 1})

	commit(store.Op{Kind: store.Put, Key: "b"})
	want(t, scrape(t, db), "store_unsettled_commits", map[string]float64{"": 0})
}

// Retries after conflicts wait by way of the wrapper.
func TestRetry(t *testing.T) {
	faulty := faults.NewFaulty(store.NewMemory())
	e, db := newEngine(t, faulty, "10.0.0.0/24")
	faulty.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Commit && c.Nth <= 3 {
			return faults.Conflict("c")
		}
		return faults.Outcome{}
	})
	must(e.Assign(t.Context(), alloc.HostOwner("a"), "h"))(t)
	got := scrape(t, db)
	if n := values(got["ipalloc_store_commits_total"])["outcome=conflict"]; n != 3 {
		t.Errorf("%v conflicts", n)
	}
	want(t, got, "store_retry_waits_total", map[string]float64{"": 2}) // the first retry does not wait
}

// The wrapper keeps the contract of a store.
func TestStoreContract(t *testing.T) {
	storetest.TestStore(t, func(*testing.T) store.Store { return metrics.NewStore("a", store.NewMemory()) })
}

// Counting and timing a call allocates nothing.
func TestStoreAllocations(t *testing.T) {
	cost := func(s store.Store) (n [3]float64) {
		ops := []store.Op{{Kind: store.Put, Key: "a", Value: "1", Expect: store.AnyRevision}}
		dst := make([]store.Record, 0, 1)
		n[0] = testing.AllocsPerRun(200, func() { _, _ = s.Commit(t.Context(), ops) })
		n[1] = testing.AllocsPerRun(200, func() { _, _ = s.Get(t.Context(), dst, "a") })
		n[2] = testing.AllocsPerRun(200, func() { _, _, _ = s.List(t.Context(), store.Range{}) })
		return n
	}
	inner, counted := cost(store.NewMemory()), cost(metrics.NewStore("a", store.NewMemory()))
	if inner != counted {
		t.Errorf("commit, get and list: %v allocations, %v through the wrapper", inner, counted)
	}
}

// A store that is missing stays missing, so the constructor that gets it refuses it.
func TestNilStore(t *testing.T) {
	if _, err := ipset.New(metrics.NewStore("x", (*store.Memory)(nil)), ipset.Options{}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
}
