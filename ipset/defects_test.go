package ipset

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// TestLargestDurations: the largest time to live and the largest cooldown are without end; they do not wrap into the past.
func TestLargestDurations(t *testing.T) {
	for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, 200 * 365 * 24 * time.Hour} {
		p := poolOf("a", "10.0.0.0/30", 30)
		p.Cooldown = d
		w := newWorld(t, Config{}, p)
		a := want("h", 2, "p")
		a.TTL = d
		first := w.assign(a)
		w.clock.add(100 * 365 * 24 * time.Hour)
		if als, err := w.IPsByHandle(bg, "p"); err != nil || len(als) != 2 || !als[0].Until.After(w.clock.now()) {
			t.Fatalf("%v: %v, %v", d, als, err)
		}
		if n, err := w.Renew(bg, "p", d); len(n) != 2 || err != nil {
			t.Fatal(n, err)
		}
		w.assign(want("h", 1, "q")) // touches the block
		w.check()
		w.releaseHandle("p")
		w.clock.add(time.Hour)
		if got := w.assign(want("h", 4, "r")); len(got.V4) != 1 {
			t.Errorf("%v: %v, of which %v cool", d, got.V4, first.V4)
		}
		w.check()
	}
}

// TestGenerationIsUsedSparingly: a change of pools that brings in no address and no block size leaves the generation as it
// is, and so does one where no block of another size ever was. One that changes nothing writes nothing.
func TestGenerationIsUsedSparingly(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 26))
	generation := func() uint64 {
		cat, err := w.core.ReadCatalog(bg)
		if err != nil {
			t.Fatal(err)
		}
		return cat.Generation
	}
	p := poolOf("a", "10.0.0.0/24", 26)
	for _, tt := range []struct {
		what   string
		do     func() error
		raises bool
		writes bool
	}{
		{"the same pool", func() error { return w.UpdatePool(bg, p) }, false, false},
		{"another priority", func() error { p.Priority = 3; return w.UpdatePool(bg, p) }, false, true},
		{"drain", func() error { _, err := w.Operator().Drain(bg, "a"); return err }, false, true},
		{"drain again", func() error { _, err := w.Operator().Drain(bg, "a"); return err }, false, false},
		{"split", func() error { return w.Operator().SplitPool(bg, "a", 1) }, false, true},
		{"merge", func() error { return w.Operator().MergePools(bg, "a", "a-0", "a-1") }, false, true},
		{"another block size", func() error { p.BlockBits = 27; return w.UpdatePool(bg, p) }, true, true},
		{"the same configuration", func() error { return w.Operator().SetConfig(bg, Config{}) }, false, false},
		{"remove", func() error { return w.RemovePool(bg, "a") }, false, true},
		{"add", func() error { return w.AddPool(bg, p) }, false, true},
		{"add another where all blocks are of its size", func() error {
			w.assign(want("h", 1, "p"))
			return w.AddPool(bg, poolOf("b", "10.1.0.0/24", 27))
		}, false, true},
		{"add another where a block has another size", func() error { return w.AddPool(bg, poolOf("c", "10.2.0.0/24", 28)) }, true, true},
		{"add another where such a block was", func() error {
			w.releaseHandle("p")
			if _, err := w.DisownBlocks(bg, DisownArgs{Owner: HostOwner("h"), OnlyEmpty: true}); err != nil {
				return err
			}
			return w.AddPool(bg, poolOf("d", "10.3.0.0/24", 28))
		}, true, true},
		{"add one of the other family", func() error { return w.AddPool(bg, poolOf("six", "2001:db8::/112", 122)) }, false, true},
		{"no reservations", func() error { _, err := w.Operator().SetReservations(bg, nil); return err }, false, false},
	} {
		before, rev := generation(), w.rev()
		if err := tt.do(); err != nil {
			t.Fatal(tt.what, err)
		}
		if raised := generation() != before; raised != tt.raises {
			t.Errorf("%s: raised the generation: %v", tt.what, raised)
		}
		if wrote := w.rev() != rev; wrote != tt.writes {
			t.Errorf("%s: wrote: %v", tt.what, wrote)
		}
	}
}

func (w *world) rev() uint64 {
	_, rev, err := w.store.List(bg, store.Range{Limit: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	return rev
}

// TestLeaseGivenBackLeavesNoEntry: the entry that says when time changes a block follows the lease that ends first.
func TestLeaseGivenBackLeavesNoEntry(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/28", 28))
	for i, ttl := range []time.Duration{time.Hour, 2 * time.Hour, 2 * time.Hour} {
		a := want("h", 1, fmt.Sprint("p", i))
		a.TTL = ttl
		w.assign(a)
	}
	due := func() time.Duration {
		recs := w.list(store.Range{From: record.KindDue, To: record.KindDue + "\xff"})
		if len(recs) == 0 {
			return 0
		}
		at := int64(0)
		for _, c := range []byte(recs[0].Key[1:record.DueTimeEnd]) {
			at = at<<8 | int64(c)
		}
		return time.Duration(at - block.Stamp(w.clock.now()))
	}
	if got := due(); got != time.Hour {
		t.Fatal(got)
	}
	w.releaseHandle("p0")
	if got := due(); got != 2*time.Hour {
		t.Errorf("the first given back: %v", got)
	}
	if _, err := w.Renew(bg, "p1", 3*time.Hour); err != nil {
		t.Fatal(err)
	}
	w.releaseHandle("p2")
	if got := due(); got != 3*time.Hour {
		t.Errorf("the rest renewed: %v", got)
	}
	w.check()
	w.releaseHandle("p1")
	if got := due(); got != 0 {
		t.Errorf("none left: %v", got)
	}
	w.check()
}

// TestStickyOfTwoEngines: two engines that serve one sticky handle at the same time leave one entry by age.
func TestStickyOfTwoEngines(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 26))
	a := want("h", 1, "vm")
	a.Sticky = true
	w.assign(a)
	w.clock.add(time.Minute)
	r := newRacing(w.store)
	r.before = func([]store.Op) {
		w.assign(a)
		w.clock.add(time.Minute)
	}
	if _, err := w.engine(r).AutoAssign(bg, a); err != nil {
		t.Fatal(err)
	}
	w.check()
	if n := w.records(record.KindAged); n != 1 {
		t.Errorf("%d entries by age", n)
	}
}

// TestStickyTwiceInOneBatch: two calls of one sticky handle that come together leave one record.
func TestStickyTwiceInOneBatch(t *testing.T) {
	w, g, e := newGated(t)
	go e.AutoAssign(bg, want("h", 1, "first"))
	<-g.arrived
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			a := want("h", 1, "vm")
			a.Sticky = true
			if _, err := e.AutoAssign(bg, a); err != nil {
				t.Error(err)
			}
		}()
		waitFor(e, i+1)
	}
	close(g.open)
	wg.Wait()
	w.check()
	if n, aged := w.records(record.KindSticky), w.records(record.KindAged); n != 1 || aged != 1 {
		t.Errorf("%d records, %d entries", n, aged)
	}
}

// TestSkew: an engine whose clock is ahead by no more than Skew ends nothing that another still holds; what has ended by every
// clock ends.
func TestSkew(t *testing.T) {
	p := poolOf("a", "10.0.0.0/30", 30)
	p.Cooldown = 10 * time.Minute
	w := newWorld(t, Config{}, p)
	ahead, err := New(w.store, Options{Now: func() time.Time { return w.clock.now().Add(time.Hour) }, Skew: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	a := want("h", 4, "lease")
	a.TTL = 20 * time.Minute
	w.assign(a)
	got := func() int {
		res, err := ahead.AutoAssign(bg, want("h", 1, "thief"))
		if err != nil {
			t.Fatal(err)
		}
		return len(res.V4)
	}
	w.clock.add(19 * time.Minute)
	if n := got(); n != 0 {
		t.Fatalf("%d while the lease runs", n)
	}
	if s, err := ahead.Operator().Sweep(bg, SweepArgs{}); err != nil || s.Advanced != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	if als, err := ahead.IPsByHandle(bg, "lease"); err != nil || len(als) != 4 {
		t.Fatal(als, err)
	}
	if n, err := w.Renew(bg, "lease", 20*time.Minute); len(n) != 4 || err != nil {
		t.Fatal(n, err)
	}
	w.clock.add(21 * time.Minute)
	if n := got(); n != 0 {
		t.Fatalf("%d while they cool", n)
	}
	w.clock.add(10 * time.Minute)
	if n := got(); n != 1 {
		t.Fatalf("%d after the cooldown", n)
	}
	w.check()
	if _, err := New(w.store, Options{Skew: -1}); !errors.Is(err, cause.BadArgument) {
		t.Error(err)
	}
}

// TestSweepIsNotStoppedByConflicts: a conflict while old request keys are forgotten is met again, and any other error is
// returned.
func TestSweepIsNotStoppedByConflicts(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 26))
	a := want("h", 1, "p")
	a.Request = "r"
	w.assign(a)
	w.clock.add(48 * time.Hour)
	refuse := func(n int, err error) *storetest.Faulty {
		return scripted(w.store, func(_ context.Context, c storetest.Call) storetest.Outcome {
			if c.Kind == storetest.Commit && c.Nth <= n {
				return storetest.Fail(err)
			}
			return storetest.Outcome{}
		})
	}
	full, conflict := errors.New("the disk is full"), store.Conflict("test", "q")
	if _, err := w.engine(refuse(1, full)).Operator().Sweep(bg, SweepArgs{}); !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
	if s, err := w.engine(refuse(3, conflict)).Operator().Sweep(bg, SweepArgs{}); err != nil || s.Requests != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	w.assign(a)
	w.clock.add(48 * time.Hour)
	if _, err := w.engine(refuse(1000, conflict)).Operator().Sweep(bg, SweepArgs{}); !errors.Is(err, conflict) {
		t.Errorf("conflicts without end: %v", err)
	}
	w.check()
}

// TestSplitPoolBounds: bits out of range are refused, and the ranges of a pool are cut to its parts.
func TestSplitPoolBounds(t *testing.T) {
	p := poolOf("a", "10.0.0.0/24", 28)
	p.Ranges = []netipx.IPRange{netipx.MustParseIPRange("10.0.0.32-10.0.0.80"), netipx.MustParseIPRange("10.0.0.120-10.0.0.130")}
	w := newWorld(t, Config{}, p)
	for _, bits := range []int{-1, 0, 9, math.MinInt, math.MaxInt} {
		if err := w.Operator().SplitPool(bg, "a", bits); !errors.Is(err, cause.BadArgument) {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
	if err := w.Operator().SplitPool(bg, "a", 2); err != nil {
		t.Fatal(err)
	}
	ps, err := w.Pools(bg)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"[10.0.0.32-10.0.0.63] false", "[10.0.0.64-10.0.0.80 10.0.0.120-10.0.0.127] false", "[10.0.0.128-10.0.0.130] false", "[] true"}
	for i, p := range ps {
		if got := fmt.Sprint(p.Ranges, p.Disabled); got != want[i] {
			t.Errorf("%s: %s, want %s", p.Name, got, want[i])
		}
	}
	w.check()
}

// TestListsShowThePresent: Blocks and Allocations show leases and cooldowns as they are now.
func TestListsShowThePresent(t *testing.T) {
	p := poolOf("a", "10.0.0.0/28", 28)
	p.Cooldown = time.Minute
	w := newWorld(t, Config{}, p)
	a := want("h", 2, "p")
	a.TTL = time.Hour
	w.assign(a)
	count := func() (held, cooling int) {
		for al, err := range w.Allocations(bg, netip.Prefix{}) {
			if err != nil {
				t.Fatal(err)
			}
			if al.Cooling {
				cooling++
			} else {
				held++
			}
		}
		for b, err := range w.Operator().Blocks(bg, netip.Prefix{}) {
			if err != nil || int(b.Used()) != held || int(b.Cooling()) != cooling {
				t.Errorf("%d held, %d cooling, %v; want %d, %d", b.Used(), b.Cooling(), err, held, cooling)
			}
		}
		return held, cooling
	}
	for _, tt := range []struct {
		after         time.Duration
		held, cooling int
	}{{0, 2, 0}, {time.Hour, 0, 2}, {time.Minute, 0, 0}} {
		w.clock.add(tt.after)
		if held, cooling := count(); held != tt.held || cooling != tt.cooling {
			t.Errorf("%v later: %d held, %d cooling, want %d, %d", tt.after, held, cooling, tt.held, tt.cooling)
		}
	}
}

// TestImportOfManyWithoutHandle: addresses without handle have no index records and do not count against a commit's limit.
func TestImportOfManyWithoutHandle(t *testing.T) {
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/23", 24))
	b := mustBlock(t, "10.0.0.0/24", block.Options{Owner: HostOwner("h")})
	for i := range 100 {
		attrs, err := NewAttributes(map[string]string{"n": fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		b.AutoAssign(nil, 1, Claim{Attributes: attrs}, w.clock.now(), nil)
	}
	if err := w.engine(limited(w.store, 64)).Operator().ImportBlock(bg, b); err != nil {
		t.Error(err)
	}
	w.check()
}

// TestRepairKeepsSequenceNumbersUnique: after pages or the catalog were lost and repaired, no address gets a sequence number that
// it had, whatever the block size by then.
func TestRepairKeepsSequenceNumbersUnique(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"pages": func(w *world) {
			for _, rec := range w.list(store.Range{From: record.KindPage, To: record.KindPage + "\xff"}) {
				w.store.Commit(bg, []store.Op{{Kind: store.Delete, Key: rec.Key, Expect: store.AnyRevision}})
			}
		},
		"a damaged page": func(w *world) {
			for _, rec := range w.list(store.Range{From: record.KindPage, To: record.KindPage + "\xff"}) {
				w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: rec.Key, Value: "?", Expect: store.AnyRevision}})
			}
		},
		"the catalog": func(w *world) {
			w.store.Commit(bg, []store.Op{{Kind: store.Delete, Key: record.CatalogKey, Expect: store.AnyRevision}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf("a", "10.0.0.0/26", 27)
			w := newWorld(t, Config{}, p)
			p.BlockBits = 28 // raises the generation
			if err := w.UpdatePool(bg, p); err != nil {
				t.Fatal(err)
			}
			seen := make(map[Release]bool)
			note := func(als []Allocation) {
				for _, al := range als {
					k := Release{Address: al.Address, Guard: Guard{Seq: al.Seq}}
					if seen[k] {
						t.Fatalf("%v again", k)
					}
					seen[k] = true
				}
			}
			churn := func() {
				for range 5 {
					note(w.assign(want("h", 64, "p")).V4)
					w.releaseHandle("p")
					if _, err := w.DisownBlocks(bg, DisownArgs{Owner: HostOwner("h"), OnlyEmpty: true}); err != nil {
						t.Fatal(err)
					}
				}
			}
			churn()
			note(w.assign(want("g", 1, "stays")).V4)
			lose(w)
			rep, err := w.Operator().Check(bg, nil)
			if err != nil || len(rep.Repair) == 0 {
				t.Fatal(rep, err)
			}
			if n, err := w.Operator().Repair(bg, rep.Repair); err != nil || n != len(rep.Repair) {
				t.Fatalf("%d of %d steps, %v", n, len(rep.Repair), err)
			}
			if name == "the catalog" {
				if err := w.AddPool(bg, p); err != nil {
					t.Fatal(err)
				}
			}
			w.check()
			churn()
			p.BlockBits = 29
			if err := w.UpdatePool(bg, p); err != nil {
				t.Fatal(err)
			}
			w.releaseHandle("stays")
			churn()
			w.check()
		})
	}
}
