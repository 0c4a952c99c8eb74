package ipset

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/check"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func TestFollowTakesWhatOthersChange(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	e := w.engine(w.store)
	if _, err := e.AutoAssign(bg, want("h", 1, "p")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(bg)
	ended := make(chan error)
	go func() { ended <- e.Follow(ctx, alloc.HostOwner("h")) }()
	cachedAt := func(key string) uint64 {
		done := make(chan uint64, 1)
		e.core.Run.Do(bg, planFunc(func(t *txn.Txn) error {
			if known := t.Known(key); known != nil {
				done <- known.Rev
			} else {
				done <- 0
			}
			return nil
		}))
		return <-done
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for range 20000 {
			if ok() {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatal(what)
	}
	eventually("the watch does not begin", func() bool { return cachedAt(record.CatalogKey) == 0 })
	e.AutoAssign(bg, want("h", 1, "q"))
	block := record.BlockKey(record.KindBlock, w.blocksOf("h")[0])
	if cachedAt(block) == 0 || cachedAt(record.CatalogKey) == 0 {
		t.Fatal("nothing is cached")
	}
	current := func(key string) bool {
		recs, err := w.store.Get(bg, nil, key)
		return err == nil && recs[0].Rev == cachedAt(key)
	}
	w.releaseHandle("p") // by another engine
	eventually("a changed block stays", func() bool { return current(block) })
	w.AddPool(bg, poolOf("b", "10.0.1.0/24", 28))
	eventually("a changed catalog stays", func() bool { return current(record.CatalogKey) })
	e.AutoAssign(bg, want("h", 1, "r"))
	w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.1.1"), Owner: alloc.HostOwner("h")})
	eventually("a changed list of blocks stays", func() bool { return current(record.OwnerKey(alloc.HostOwner("h"))) })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow: %v", err)
	}
}

// planFunc makes a plan of a function.
type planFunc func(*txn.Txn) error

func (f planFunc) Plan(t *txn.Txn) error { return f(t) }

// forgetAll empties the cache of an engine.
func forgetAll(e *Engine) {
	e.core.Txn.Cat.Reset()
	e.core.Txn.Blocks.Reset()
	e.core.Txn.Owners.Reset()
	e.core.Txn.Pages.Reset()
}

func TestCollectorAsksOnceMore(t *testing.T) { // checked once more just before
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	w.assign(want("h", 2, "p"))
	calls := 0
	c := w.Operator().NewCollector(time.Minute)
	als, err := c.Collect(bg, func(alloc.Allocation) alloc.Liveness {
		if calls++; calls > 2 {
			return alloc.Alive
		}
		return alloc.Gone
	})
	if err != nil || len(als) != 0 || calls <= 2 {
		t.Errorf("%v, %v, asked %d times", als, err, calls)
	}
}

func TestCheckFindsBlocksThatCannotBe(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 28))
	w.leaves()
	w.assign(want("h", 1, "p"))
	putBlock := func(prefix string) {
		b := mustBlock(t, prefix, block.Options{Owner: alloc.HostOwner("lost")})
		w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: record.BlockKey(record.KindBlock, b.Prefix()), Value: codedBlock(b), Expect: store.AnyRevision}})
	}
	putBlock("10.0.0.0/27") // overlaps, wrong size
	putBlock("10.9.0.0/28") // no pool
	putBlock("10.9.1.0/28")
	w.restore([]store.Record{{Key: "b4\x0a\x09\x01\x00\x1c", Value: "?"}}, "b4\x0a\x09\x01\x00\x1c") // and cannot be read
	w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: "b4zz", Value: "?", Expect: 0}, {Kind: store.Put, Key: "x", Value: "?", Expect: 0}})
	rep, err := w.Operator().Check(bg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []audit.Kind
	for _, p := range rep.Problems {
		if p.String() == "" {
			t.Error("nothing to read")
		}
		if want := map[audit.Kind]string{audit.WrongSize: "pool a has /28", audit.NoPool: "owner host:lost"}[p.Kind]; p.Detail != want && want != "" && p.Prefix.Addr() != ip("10.9.1.0") {
			t.Errorf("%s, want %q", p, want)
		}
		kinds = append(kinds, p.Kind)
	}
	for _, k := range []audit.Kind{audit.WrongSize, audit.NoPool, audit.Damaged} {
		if !slices.Contains(kinds, k) {
			t.Errorf("%s is not among %v", k, kinds)
		}
	}
	if overlaps := record.StartOf(alloc.HostOwner("h"), netip.MustParsePrefix("10.0.0.0/26"), 28).Overlaps(netip.MustParsePrefix("10.0.0.0/27")); overlaps != slices.Contains(kinds, audit.Overlapping) {
		t.Errorf("overlap found: %v", !overlaps)
	}
}

// TestGarbageInTheStore: records that nobody wrote are reported, and break nothing.
func TestGarbageInTheStore(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 28))
	w.leaves()
	w.assign(want("h", 1, "p"))
	var recs []store.Record
	for _, kind := range []string{"", "a", "b", "c2", "d", "e", "h", "l", "n", "o", "q", "t", "tq", "tl", "tq\x00\x00\x00\x00\x00\x00\x00\x01", "tl\x00\x00\x00\x00\x00\x00\x00\x01l", "r", "s", "u", "z"} {
		for _, rest := range []string{"", "\x00", "4", "6zz", "4\x0a\x00\x00\x00\x1c\x00", "\x00\x00\x00\x00\x00\x00\x00\x00"} {
			if key := kind + rest; key != "" {
				recs = append(recs, store.Record{Key: key, Value: "?", Rev: 1})
				w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: key, Value: "?", Expect: store.AnyRevision}})
			}
		}
	}
	recs = append(recs, store.Record{})
	if rep := check.Check(recs, nil); len(rep.Problems) < len(recs)/2 {
		t.Errorf("%d problems in %d records", len(rep.Problems), len(recs))
	}
	if _, err := w.Operator().Check(bg, nil); err != nil {
		t.Error(err)
	}
	w.clock.add(time.Hour)
	w.Operator().Sweep(bg, alloc.SweepArgs{IdleAfter: 1, Unselected: true, RequestsAfter: 1, StickyAfter: 1})
	if got, err := w.AutoAssign(bg, want("h", 1, "q")); err != nil || len(got.V4) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}
