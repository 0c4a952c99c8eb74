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

	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestLargestDurations: the largest time to live and the largest cooldown are without end; they do not wrap into the past.
func TestLargestDurations(t *testing.T) {
	for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, 200 * 365 * 24 * time.Hour} {
		p := pool("a", "10.0.0.0/30", 30)
		p.Cooldown = d
		w := newWorld(t, Config{}, p)
		a := want("h", 2, "p")
		a.TTL = d
		first := w.assign(a)
		w.clock.add(100 * 365 * 24 * time.Hour)
		if als, err := w.IPsByHandle(bg, "p"); err != nil || len(als) != 2 || !als[0].Until.After(w.clock.now()) {
			t.Fatalf("%v: %v, %v", d, als, err)
		}
		if n, err := w.Renew(bg, "p", d); n != 2 || err != nil {
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
// is, and one that changes nothing writes nothing.
func TestGenerationIsUsedSparingly(t *testing.T) {
	w := newWorld(t, Config{}, pool("a", "10.0.0.0/24", 26))
	generation := func() uint64 {
		cat, err := w.readCatalog(bg)
		if err != nil {
			t.Fatal(err)
		}
		return cat.Generation
	}
	p := pool("a", "10.0.0.0/24", 26)
	for _, tt := range []struct {
		what   string
		do     func() error
		raises bool
		writes bool
	}{
		{"the same pool", func() error { return w.UpdatePool(bg, p) }, false, false},
		{"another priority", func() error { p.Priority = 3; return w.UpdatePool(bg, p) }, false, true},
		{"drain", func() error { _, err := w.Drain(bg, "a"); return err }, false, true},
		{"drain again", func() error { _, err := w.Drain(bg, "a"); return err }, false, false},
		{"split", func() error { return w.SplitPool(bg, "a", 1) }, false, true},
		{"merge", func() error { return w.MergePools(bg, "a", "a-0", "a-1") }, false, true},
		{"another block size", func() error { p.BlockBits = 27; return w.UpdatePool(bg, p) }, true, true},
		{"the same configuration", func() error { return w.SetConfig(bg, Config{}) }, false, false},
		{"remove", func() error { return w.RemovePool(bg, "a") }, false, true},
		{"add", func() error { return w.AddPool(bg, p) }, true, true},
		{"no reservations", func() error { _, err := w.SetReservations(bg, nil); return err }, false, false},
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

// TestUpdatePoolReadsPages: a pool whose blocks have one size is updated without reading any of them, one that drains reads a
// page for 64 blocks.
func TestUpdatePoolReadsPages(t *testing.T) {
	w := newWorld(t, Config{}, pool("a", "10.0.0.0/20", 28))
	w.assign(want("h", 4096, "p"))
	s := &counting{Store: w.store}
	e := w.engine(s)
	p := pool("a", "10.0.0.0/20", 28)
	p.Priority = 7
	if err := e.UpdatePool(bg, p); err != nil || s.records > 4 {
		t.Errorf("%v, %d records", err, s.records)
	}
	p.BlockBits = 30
	if err := e.UpdatePool(bg, p); err != nil {
		t.Fatal(err)
	}
	s.records = 0
	p.Priority = 8
	if err := e.UpdatePool(bg, p); err != nil || s.records > 8 {
		t.Errorf("draining: %v, %d records", err, s.records)
	}
	draining := func() []int {
		ps, err := w.Pools(bg)
		if err != nil || len(ps) != 1 {
			t.Fatal(ps, err)
		}
		return ps[0].Draining
	}
	if got := fmt.Sprint(draining()); got != "[28]" {
		t.Error(got)
	}
	if err := e.RemovePool(bg, "a"); err != nil {
		t.Fatal(err)
	}
	s.records = 0
	if err := e.AddPool(bg, p); err != nil || s.records > 8 {
		t.Errorf("added: %v, %d records", err, s.records)
	}
	if got := fmt.Sprint(draining()); got != "[28]" {
		t.Error(got)
	}
	w.releaseHandle("p")
	if _, err := w.DisownBlocks(bg, HostOwner("h"), true); err != nil {
		t.Fatal(err)
	}
	p.Priority = 9
	if err := e.UpdatePool(bg, p); err != nil || len(draining()) != 0 {
		t.Errorf("drained: %v, %v", err, draining())
	}
	w.check()
}

// TestLeaseGivenBackLeavesNoEntry: the entry that says when time changes a block follows the lease that ends first.
func TestLeaseGivenBackLeavesNoEntry(t *testing.T) {
	w := newWorld(t, Config{}, pool("a", "10.0.0.0/28", 28))
	for i, ttl := range []time.Duration{time.Hour, 2 * time.Hour, 2 * time.Hour} {
		a := want("h", 1, fmt.Sprint("p", i))
		a.TTL = ttl
		w.assign(a)
	}
	due := func() time.Duration {
		recs := w.list(store.Range{From: kindDue, To: kindDue + "\xff"})
		if len(recs) == 0 {
			return 0
		}
		at := int64(0)
		for _, c := range []byte(recs[0].Key[1:dueTimeEnd]) {
			at = at<<8 | int64(c)
		}
		return time.Duration(at - stamp(w.clock.now()))
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
	w := newWorld(t, Config{}, pool("a", "10.0.0.0/24", 26))
	a := want("h", 1, "vm")
	a.Sticky = true
	w.assign(a)
	w.clock.add(time.Minute)
	r := &racing{Store: w.store}
	r.before = func([]store.Op) {
		w.assign(a)
		w.clock.add(time.Minute)
	}
	if _, err := w.engine(r).AutoAssign(bg, a); err != nil {
		t.Fatal(err)
	}
	w.check()
	if n := w.records(kindAged); n != 1 {
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
	if n, aged := w.records(kindSticky), w.records(kindAged); n != 1 || aged != 1 {
		t.Errorf("%d records, %d entries", n, aged)
	}
}

// TestSkew: an engine whose clock is ahead by no more than Skew ends nothing that another still holds; what has ended by every
// clock ends.
func TestSkew(t *testing.T) {
	p := pool("a", "10.0.0.0/30", 30)
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
	if s, err := ahead.Sweep(bg, SweepArgs{}); err != nil || s.Advanced != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	if als, err := ahead.IPsByHandle(bg, "lease"); err != nil || len(als) != 4 {
		t.Fatal(als, err)
	}
	if n, err := w.Renew(bg, "lease", 20*time.Minute); n != 4 || err != nil {
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
	if _, err := New(w.store, Options{Skew: -1}); !errors.Is(err, errBadArgument) {
		t.Error(err)
	}
}

// TestSweepReadsWhatIsDue: blocks that have not been empty for long enough cost their index records and nothing more, those that
// an owner keeps one read for each owner and no commit.
func TestSweepReadsWhatIsDue(t *testing.T) {
	w := newWorld(t, Config{}, pool("a", "10.0.0.0/20", 30))
	const hosts = 200
	for i := range hosts {
		w.assign(want(fmt.Sprint("h", i), 1, "p"))
	}
	w.releaseHandle("p")
	s := &counting{Store: w.store}
	e := w.engine(s)
	sweep := func(what string, a SweepArgs, returned, calls int) {
		t.Helper()
		s.calls, s.records = 0, 0
		got, err := e.Sweep(bg, a)
		if err != nil || len(got.Returned) != returned {
			t.Fatalf("%s: %d returned, %v", what, len(got.Returned), err)
		}
		if s.calls > calls {
			t.Errorf("%s: %d calls, at most %d", what, s.calls, calls)
		}
		w.check()
	}
	sweep("none due", SweepArgs{IdleAfter: time.Hour}, 0, 6)
	sweep("none due, one kept", SweepArgs{IdleAfter: time.Hour, Keep: 1}, 0, 6)
	sweep("all selected", SweepArgs{Unselected: true}, 0, 7)
	w.clock.add(time.Hour)
	w.assign(want("h7", 1, "q"))
	sweep("one kept of one", SweepArgs{IdleAfter: time.Hour, Keep: 1}, 0, 8+hosts)
	sweep("all due but the one in use", SweepArgs{IdleAfter: time.Hour}, hosts-1, 8+4*hosts)
}

// TestSweepIsNotStoppedByConflicts: a conflict while old request keys are forgotten is met again, and any other error is
// returned.
func TestSweepIsNotStoppedByConflicts(t *testing.T) {
	w := newWorld(t, Config{}, pool("a", "10.0.0.0/24", 26))
	a := want("h", 1, "p")
	a.Request = "r"
	w.assign(a)
	w.clock.add(48 * time.Hour)
	f := &refusing{Store: w.store, err: errors.New("the disk is full"), n: 1}
	if _, err := w.engine(f).Sweep(bg, SweepArgs{}); !errors.Is(err, f.err) {
		t.Errorf("%v, want %v", err, f.err)
	}
	f = &refusing{Store: w.store, err: store.Conflict("test", "q"), n: 3}
	if s, err := w.engine(f).Sweep(bg, SweepArgs{}); err != nil || s.Requests != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	w.assign(a)
	w.clock.add(48 * time.Hour)
	f = &refusing{Store: w.store, err: store.Conflict("test", "q"), n: 1000}
	if _, err := w.engine(f).Sweep(bg, SweepArgs{}); !errors.Is(err, f.err) {
		t.Errorf("conflicts without end: %v", err)
	}
	w.check()
}

// refusing is a store whose next n commits fail.
type refusing struct {
	store.Store
	err error
	n   int
}

func (f *refusing) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if f.n--; f.n >= 0 {
		return 0, f.err
	}
	return f.Store.Commit(ctx, ops)
}

// TestCallersFitIntoOneCommit: on a store that takes 127 records in a commit, 31 callers of one host that come together are one
// commit, with and without a request key each, and so is the release of a hundred addresses.
func TestCallersFitIntoOneCommit(t *testing.T) {
	for _, request := range []bool{false, true} {
		w, g, _ := newGated(t)
		g.Store = limited{w.store, 127}
		e := w.engine(g)
		e.limits.Ops = 127
		var wg sync.WaitGroup
		call := func(i int) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				a := want("h", 1, fmt.Sprint("p", i))
				if request {
					a.Request = fmt.Sprint("r", i)
				}
				if _, err := e.AutoAssign(bg, a); err != nil {
					t.Error(err)
				}
			}()
		}
		call(0)
		<-g.arrived
		for i := range 31 {
			call(1 + i)
		}
		waitFor(e, 31)
		close(g.open)
		wg.Wait()
		if g.commits != 2 {
			t.Errorf("request keys %v: %d commits for 32 callers", request, g.commits)
		}
		w.check()
	}
	w, g, _ := newGated(t)
	close(g.open)
	g.Store = limited{w.store, 127}
	var rs []Release
	for _, al := range w.assign(want("h", 100, "p")).V4 {
		rs = append(rs, Release{Address: al.Address})
	}
	e := w.engine(g)
	e.limits.Ops = 127
	if res, err := e.ReleaseIPs(bg, rs...); err != nil || len(res) != 100 || g.commits > 2 {
		t.Errorf("%d results, %v, %d commits", len(res), err, g.commits)
	}
	w.check()
}

// TestPairAllocates: an assignment and its release allocate as little as they did, in an empty block and in a full one.
func TestPairAllocates(t *testing.T) {
	for _, held := range []int{0, 32, 62} {
		w := newWorld(t, Config{}, pool("a", "10.0.0.0/26", 26))
		for i := range held {
			w.assign(want("h", 1, fmt.Sprint("p", i)))
		}
		a := want("h", 1, "pod")
		pair := func() {
			got, err := w.AutoAssign(bg, a)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.ReleaseIPs(bg, Release{Address: got.V4[0].Address}); err != nil {
				t.Fatal(err)
			}
		}
		for range 1000 { // until the store's history is full
			pair()
		}
		n := testing.AllocsPerRun(200, pair)
		if most := map[int]float64{0: 11, 32: 9, 62: 9}[held]; n > most && !invariant.Enabled {
			t.Errorf("%d held: %.0f allocations, at most %.0f", held, n, most)
		}
	}
}

// TestSplitPoolBounds: bits out of range are refused, and the ranges of a pool are cut to its parts.
func TestSplitPoolBounds(t *testing.T) {
	p := pool("a", "10.0.0.0/24", 28)
	p.Ranges = []netipx.IPRange{netipx.MustParseIPRange("10.0.0.32-10.0.0.80"), netipx.MustParseIPRange("10.0.0.120-10.0.0.130")}
	w := newWorld(t, Config{}, p)
	for _, bits := range []int{-1, 0, 9, math.MinInt, math.MaxInt} {
		if err := w.SplitPool(bg, "a", bits); !errors.Is(err, errBadArgument) {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
	if err := w.SplitPool(bg, "a", 2); err != nil {
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
	p := pool("a", "10.0.0.0/28", 28)
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
		for b, err := range w.Blocks(bg, netip.Prefix{}) {
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

// TestDefaultCache: with Options.Cache unset, hosts that come round about cost one call each.
func TestDefaultCache(t *testing.T) {
	w := newWorld(t, Config{}, pool("a", "10.0.0.0/20", 26))
	s := &counting{Store: w.store}
	e, err := New(s, Options{Now: w.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		s.calls = 0
		for i := range 8 {
			if _, err := e.AutoAssign(bg, want(fmt.Sprint("h", i), 1, "p")); err != nil {
				t.Fatal(err)
			}
		}
		if round == 2 && s.calls != 8 {
			t.Errorf("%d calls for 8 assignments", s.calls)
		}
	}
}

// TestOwnerOfManyBlocks: an assignment to an owner of very many blocks reads those around the one that had room last, and finds
// room in any other when that is full.
func TestOwnerOfManyBlocks(t *testing.T) {
	w := newWorld(t, Config{}, pool("a", "10.0.0.0/20", 30), pool("b", "10.1.0.0/24", 30))
	const n = 1024
	all := w.assign(AssignArgs{Owner: HostOwner("h"), Num4: 4 * n, Partial: true, Pools: []string{"a"}, Claim: Claim{Handle: "p"}}).V4
	if len(all) != 4*n || len(w.blocksOf("h")) != n {
		t.Fatalf("%d addresses, %d blocks", len(all), len(w.blocksOf("h")))
	}
	s := &counting{Store: w.store}
	e := w.engine(s)
	release := func(k int) netip.Addr {
		t.Helper()
		if _, err := e.ReleaseIPs(bg, Release{Address: all[k].Address}); err != nil {
			t.Fatal(err)
		}
		return all[k].Address
	}
	assign := func(want netip.Addr) {
		t.Helper()
		got, err := e.AutoAssign(bg, AssignArgs{Owner: HostOwner("h"), Num4: 1, Pools: []string{"a"}})
		if err != nil || got.V4[0].Address != want {
			t.Fatalf("%+v, %v, want %s", got, err, want)
		}
	}
	far := release(4 * (n - 1))
	assign(far) // reads all, and finds the last
	near := release(4*(n-1) + 1)
	s.records, s.calls = 0, 0
	assign(near)
	if s.records > 20 {
		t.Errorf("%d records in %d calls for the block that had room last", s.records, s.calls)
	}
	first := release(0)
	assign(first)
	w.check()
	// All are full: the shortage is verified, also against what another engine released meanwhile.
	if _, err := e.AutoAssign(bg, AssignArgs{Owner: HostOwner("h"), Num4: 1, Pools: []string{"a"}}); !errors.Is(err, errShort) {
		t.Errorf("full: %v", err)
	}
	if _, err := w.ReleaseIPs(bg, Release{Address: all[2000].Address}); err != nil {
		t.Fatal(err)
	}
	assign(all[2000].Address)
	w.check()
}

// TestOwnerBytes: every cut of a list of blocks but at a block's end is refused.
func TestOwnerBytes(t *testing.T) {
	whole := encodeOwner([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/26"), netip.MustParsePrefix("10.0.1.0/26"), netip.MustParsePrefix("fd00::/122")})
	ends := map[int]bool{0: true, 1: true, 7: true, 13: true}
	for i := range whole {
		if _, err := decodeOwner(whole[:i]); (err == nil) != ends[i] {
			t.Errorf("%d of %d bytes: %v", i, len(whole), err)
		}
	}
}

// TestImportOfManyWithoutHandle: addresses without handle have no index records and do not count against a commit's limit.
func TestImportOfManyWithoutHandle(t *testing.T) {
	w := newWorld(t, Config{}, pool("a", "10.0.0.0/23", 24))
	b := mustBlock(t, "10.0.0.0/24", BlockOptions{Owner: HostOwner("h")})
	for i := range 100 {
		attrs, err := NewAttributes(map[string]string{"n": fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		b.AutoAssign(nil, 1, Claim{Attributes: attrs}, w.clock.now(), nil)
	}
	if err := w.engine(limited{w.store, 64}).ImportBlock(bg, b); err != nil {
		t.Error(err)
	}
	w.check()
}

// TestRepairKeepsSequenceNumbersUnique: after pages or the catalog were lost and repaired, no address gets a sequence number that
// it had, whatever the block size by then.
func TestRepairKeepsSequenceNumbersUnique(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"pages": func(w *world) {
			for _, rec := range w.list(store.Range{From: kindPage, To: kindPage + "\xff"}) {
				w.store.Commit(bg, []store.Op{{Kind: store.Delete, Key: rec.Key, Expect: store.AnyRevision}})
			}
		},
		"a damaged page": func(w *world) {
			for _, rec := range w.list(store.Range{From: kindPage, To: kindPage + "\xff"}) {
				w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: rec.Key, Value: "?", Expect: store.AnyRevision}})
			}
		},
		"the catalog": func(w *world) {
			w.store.Commit(bg, []store.Op{{Kind: store.Delete, Key: catalogKey, Expect: store.AnyRevision}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pool("a", "10.0.0.0/26", 28)
			w := newWorld(t, Config{}, p)
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
					if _, err := w.DisownBlocks(bg, HostOwner("h"), true); err != nil {
						t.Fatal(err)
					}
				}
			}
			churn()
			note(w.assign(want("g", 1, "stays")).V4)
			lose(w)
			rep, err := w.Check(bg, nil)
			if err != nil || len(rep.Repair) == 0 {
				t.Fatal(rep, err)
			}
			if n, err := w.Repair(bg, rep.Repair); err != nil || n != len(rep.Repair) {
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

// TestReservationsAreListedOnce: a change of many reserved addresses is one commit, and what is held in them is found by one
// pass over the blocks.
func TestReservationsAreListedOnce(t *testing.T) {
	w := newWorld(t, Config{}, pool("a", "10.0.0.0/20", 26))
	held := w.assign(want("h", 100, "p")).V4
	var sb netipx.IPSetBuilder
	for a, i := ip("10.0.0.1"), 0; i < 1000; i++ {
		sb.Add(a)
		a = a.Next().Next()
	}
	sb.Add(held[0].Address)
	set, err := sb.IPSet()
	if err != nil {
		t.Fatal(err)
	}
	s := &counting{Store: w.store}
	live, err := w.engine(s).SetReservations(bg, set)
	want := 0
	for _, al := range held {
		if set.Contains(al.Address) {
			want++
		}
	}
	if err != nil || len(live) != want || want == 0 || s.calls > 6 {
		t.Errorf("%d live, want %d, %v, %d calls", len(live), want, err, s.calls)
	}
	w.check()
}
