package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
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

func TestCollector(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	leaked := w.assign(want("h", 2, "leaked")).V4
	half := w.assign(want("h", 2, "half")).V4
	w.assign(want("h", 1, "gone"))
	w.assign(want("h", 1, "late"))
	w.assign(want("h", 1, ""))
	state := map[string]alloc.Liveness{"leaked": alloc.Leaked, "late": alloc.Leaked, "gone": alloc.Gone}
	live := func(al alloc.Allocation) alloc.Liveness {
		if al.Handle == "half" && al.Address == half[0].Address {
			return alloc.Leaked
		}
		return state[al.Handle]
	}
	c := w.Operator().NewCollector(15 * time.Minute)
	collect := func() (hs []string) {
		t.Helper()
		als, err := c.Collect(bg, live)
		if err != nil {
			t.Fatal(err)
		}
		for _, al := range als {
			hs = append(hs, al.Handle)
		}
		w.check()
		return hs
	}
	if hs := collect(); !slices.Equal(hs, []string{"gone"}) {
		t.Errorf("at once: %v", hs)
	}
	w.clock.add(10 * time.Minute)
	state["late"] = alloc.Alive
	if hs := collect(); len(hs) != 0 {
		t.Errorf("before the grace period is over: %v", hs)
	}
	state["late"] = alloc.Leaked // begins anew
	w.clock.add(5 * time.Minute)
	if hs := collect(); !slices.Equal(hs, []string{"leaked", "leaked"}) {
		t.Errorf("after it: %v", hs)
	}
	if _, err := w.Lookup(bg, half[0].Address); err != nil {
		t.Errorf("half of a handle went: %v", err)
	}
	// An address that got another owner under the same handle starts anew.
	w.AssignIP(bg, alloc.AssignIPArgs{Address: leaked[0].Address, Owner: alloc.HostOwner("h"), Handle: "leaked"})
	if hs := collect(); slices.Contains(hs, "leaked") {
		t.Errorf("the successor went: %v", hs)
	}
	w.clock.add(time.Hour)
	if hs := collect(); !slices.Equal(hs, []string{"late", "leaked"}) {
		t.Errorf("at last: %v", hs)
	}
	if c.Candidates() != 1 {
		t.Errorf("%d candidates left", c.Candidates())
	}
	never := w.Operator().NewCollector(0)
	if als, err := never.Collect(bg, func(alloc.Allocation) alloc.Liveness { return alloc.Leaked }); err != nil || len(als) != 0 {
		t.Errorf("without grace: %v, %v", als, err)
	}
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

// TestCheckFindsAndRepairs breaks each kind of record and repairs it.
func TestCheckFindsAndRepairs(t *testing.T) {
	build := func() *world {
		p := poolOf("a", "10.0.0.0/26", 28)
		p.Cooldown = time.Hour
		w := newWorld(t, alloc.Config{}, p)
		w.assign(want("h", 3, "p"))
		w.assign(want("gone", 3, "q"))
		w.assign(want("empty", 1, "r"))
		lease := want("h", 1, "s")
		lease.TTL = time.Hour
		w.assign(lease)
		w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("gone")})
		w.check()
		return w
	}
	w := build()
	all := w.list(store.Range{})
	for _, rec := range all {
		if rec.Key[:1] == record.KindBlock || rec.Key[:1] == record.KindCatalog {
			continue
		}
		for _, wrong := range []store.Op{
			{Kind: store.Delete, Key: rec.Key, Expect: store.AnyRevision},
			{Kind: store.Put, Key: rec.Key, Value: rec.Value + "x", Expect: store.AnyRevision},
			{Kind: store.Put, Key: rec.Key[:len(rec.Key)-1] + "\x1b", Value: rec.Value, Expect: store.AnyRevision},
		} {
			w := build()
			w.store.Commit(bg, []store.Op{wrong})
			rep, err := w.Operator().Check(bg, nil)
			if err != nil {
				t.Fatal(err)
			}
			if rec.Key[:1] == record.KindHandle && wrong.Kind == store.Put && wrong.Key == rec.Key && len(rep.Problems) == 0 {
				t.Errorf("%q: a wrong value goes unseen", wrong.Key)
			}
			if len(rep.Problems) == 0 || len(rep.Repair) == 0 {
				t.Errorf("%v of %q: %d problems, %d steps", wrong.Kind, wrong.Key, len(rep.Problems), len(rep.Repair))
				continue
			}
			// A block or an address that was lost is restored first, and what follows from it after.
			for range 2 {
				if _, err := w.Operator().Repair(bg, rep.Repair); err != nil {
					t.Errorf("%q: %v", wrong.Key, err)
				}
				if rep, err = w.Operator().Check(bg, nil); err != nil {
					t.Fatal(err)
				}
			}
			w.check()
		}
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

func TestCheckAgainstUses(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 28))
	held := w.assign(want("h", 4, "p")).V4
	uses := []audit.InUse{
		{Address: held[0].Address, Handle: "p"}, {Address: held[1].Address, Handle: ""}, {Address: held[2].Address, Handle: "other"},
		{Address: ip("10.0.0.63"), Handle: "nobody"}, {Address: ip("192.0.2.1"), Handle: ""}, {Address: held[0].Address, Handle: "twice"},
	}
	rep, err := w.Operator().Check(bg, slices.Values(uses))
	if err != nil {
		t.Fatal(err)
	}
	got := map[audit.Kind]netip.Addr{}
	for _, p := range rep.Problems {
		got[p.Kind] = p.Addr
	}
	for k, a := range map[audit.Kind]netip.Addr{
		audit.OtherHandle: held[2].Address, audit.Unused: held[3].Address, audit.NotHeld: ip("10.0.0.63"), audit.OutsideOfPool: ip("192.0.2.1"), audit.UsedTwice: held[0].Address,
	} {
		if got[k] != a {
			t.Errorf("%s: %v, want %v", k, got[k], a)
		}
	}
	if !slices.ContainsFunc(rep.Problems, func(p audit.Problem) bool {
		return p.Kind == audit.UsedTwice && p.Detail == "held by p, used by twice too"
	}) {
		t.Errorf("the rightful holder of two is not named: %v", rep.Problems)
	}
	if n, err := w.Operator().Repair(bg, rep.Repair); n != 1 || err != nil {
		t.Fatalf("%d steps, %v", n, err)
	}
	if als, _ := w.IPsByHandle(bg, "p"); len(als) != 3 {
		t.Errorf("left: %v", als)
	}
}

func TestRepairDoesNotUndoWhatHappenedSince(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 28))
	al := w.assign(want("h", 1, "p")).V4[0]
	key := string(record.AppendNameKey(nil, record.KindHandle, "p", al.Prefix()))
	w.store.Commit(bg, []store.Op{{Kind: store.Delete, Key: key, Expect: store.AnyRevision}})
	rep, _ := w.Operator().Check(bg, nil)
	w.ReleaseIPs(bg, alloc.Release{Address: al.Address})
	if n, err := w.Operator().Repair(bg, rep.Repair); n != 0 || err != nil {
		t.Errorf("%d steps on old revisions, %v", n, err)
	}
}

func TestImportBlock(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 30))
	w.leaves(audit.NoPool)
	fresh := func() *block.Block {
		p := netip.MustParsePrefix("10.0.0.4/30")
		b, err := block.Restore(p, block.Options{Owner: alloc.HostOwner("node-a"), Seq: 1767323045000000007}, []netip.Addr{ip("10.0.0.6")}, []alloc.Allocation{
			{Address: ip("10.0.0.4"), Host: alloc.HostOwner("node-a"), Handle: "pod-1", Seq: 1767323045000000001},
			{Address: ip("10.0.0.5"), Host: alloc.HostOwner("node-a"), Handle: "pod-1", Seq: 1767323045000000001},
			{Address: ip("10.0.0.7"), Host: alloc.HostOwner("node-b"), Handle: "pod-2", Seq: 3},
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if err := w.Operator().ImportBlock(bg, fresh()); err != nil {
		t.Fatal(err)
	}
	w.check()
	if err := w.Operator().ImportBlock(bg, fresh()); !errors.Is(err, cause.Covered) {
		t.Errorf("again: %v", err)
	}
	if als, _ := w.IPsByHandle(bg, "pod-1"); len(als) != 2 {
		t.Errorf("pod-1: %v", als)
	}
	got := w.assign(want("node-a", 2, "new"))
	if got.V4[0].Address != ip("10.0.0.6") || got.V4[1].Seq <= 1767323045000000007 {
		t.Errorf("%+v", got.V4)
	}
	w.check()
	w.RemovePool(bg, "a")
	if err := w.Operator().ImportBlock(bg, mustBlock(t, "10.0.0.8/30", block.Options{})); !errors.Is(err, cause.UnknownPool) {
		t.Errorf("no pool: %v", err)
	}
}

func TestEnsureBlock(t *testing.T) {
	w := newWorld(t, alloc.Config{Strict: true}, poolOf("a", "10.0.0.0/28", 29), poolOf("b", "2001:db8::/124", 125))
	a := want("h", 1, "")
	a.Num6, a.Blocks.Head, a.Blocks.Tail = 1, 3, 1
	blocks, err := w.EnsureBlock(bg, a)
	if err != nil || len(blocks) != 2 || w.records(record.KindHandle) != 0 {
		t.Fatalf("%v, %v", blocks, err)
	}
	again, err := w.EnsureBlock(bg, a)
	if err != nil || !slices.Equal(again, blocks) {
		t.Errorf("again: %v, %v", again, err)
	}
	for i := range 2 {
		w.EnsureBlock(bg, want(fmt.Sprint("g", i), 1, ""))
	}
	if _, err := w.EnsureBlock(bg, want("last", 1, "")); !errors.Is(err, cause.Short) {
		t.Errorf("no block left: %v", err)
	}
}

// TestSweepIsNotStoppedByConflicts: a conflict while old request keys are forgotten is met again, and any other error is
// returned.
func TestSweepIsNotStoppedByConflicts(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	a := want("h", 1, "p")
	a.Request = "r"
	w.assign(a)
	w.clock.add(48 * time.Hour)
	refuse := func(n int, err error) *faults.Faulty {
		return scripted(w.store, func(_ context.Context, c faults.Call) faults.Outcome {
			if c.Kind == faults.Commit && c.Nth <= n {
				return faults.Fail(err)
			}
			return faults.Outcome{}
		})
	}
	full, conflict := errors.New("the disk is full"), store.Conflict("test", "q")
	if _, err := w.engine(refuse(1, full)).Operator().Sweep(bg, alloc.SweepArgs{}); !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
	if s, err := w.engine(refuse(3, conflict)).Operator().Sweep(bg, alloc.SweepArgs{}); err != nil || s.Requests != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	w.assign(a)
	w.clock.add(48 * time.Hour)
	if _, err := w.engine(refuse(1000, conflict)).Operator().Sweep(bg, alloc.SweepArgs{}); !errors.Is(err, conflict) {
		t.Errorf("conflicts without end: %v", err)
	}
}
