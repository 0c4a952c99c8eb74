package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// TestUpdatePoolReadsPages: a pool whose blocks have one size is updated without reading any of them, one that drains reads a
// page for 64 blocks.
func TestUpdatePoolReadsPages(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/20", 28))
	w.assign(want("h", 4096, "p"))
	s := faults.NewFaulty(w.store)
	e := w.engine(s)
	p := poolOf("a", "10.0.0.0/20", 28)
	p.Priority = 7
	if err := e.UpdatePool(bg, p); err != nil || touched(s) > 4 {
		t.Errorf("%v, %d records", err, touched(s))
	}
	p.BlockBits = 30
	if err := e.UpdatePool(bg, p); err != nil {
		t.Fatal(err)
	}
	s.Reset()
	p.Priority = 8
	if err := e.UpdatePool(bg, p); err != nil || touched(s) > 8 {
		t.Errorf("draining: %v, %d records", err, touched(s))
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
	s.Reset()
	if err := e.AddPool(bg, p); err != nil || touched(s) > 9 {
		t.Errorf("added: %v, %d records", err, touched(s))
	}
	if got := fmt.Sprint(draining()); got != "[28]" {
		t.Error(got)
	}
	w.releaseHandle("p")
	if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h"), OnlyEmpty: true}); err != nil {
		t.Fatal(err)
	}
	p.Priority = 9
	if err := e.UpdatePool(bg, p); err != nil || len(draining()) != 0 {
		t.Errorf("drained: %v, %v", err, draining())
	}
}

// TestSweepReadsWhatIsDue: blocks that have not been empty for long enough cost their index records and nothing more, those that
// an owner keeps one read for each owner and no commit.
func TestSweepReadsWhatIsDue(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/20", 30))
	const hosts = 200
	for i := range hosts {
		w.assign(want(fmt.Sprint("h", i), 1, "p"))
	}
	w.releaseHandle("p")
	s := faults.NewFaulty(w.store)
	e := w.engine(s)
	sweep := func(what string, a alloc.SweepArgs, returned, calls int) {
		t.Helper()
		s.Reset()
		got, err := e.Operator().Sweep(bg, a)
		if err != nil || len(got.Returned) != returned {
			t.Fatalf("%s: %d returned, %v", what, len(got.Returned), err)
		}
		if s.Counts().Calls() > calls {
			t.Errorf("%s: %d calls, at most %d", what, s.Counts().Calls(), calls)
		}
		w.check()
	}
	sweep("none due", alloc.SweepArgs{IdleAfter: time.Hour}, 0, 6)
	sweep("none due, one kept", alloc.SweepArgs{IdleAfter: time.Hour, Keep: 1}, 0, 6)
	sweep("all selected", alloc.SweepArgs{Unselected: true}, 0, 7)
	w.clock.add(time.Hour)
	w.assign(want("h7", 1, "q"))
	sweep("one kept of one", alloc.SweepArgs{IdleAfter: time.Hour, Keep: 1}, 0, 8+hosts)
	sweep("all due but the one in use", alloc.SweepArgs{IdleAfter: time.Hour}, hosts-1, 8+4*hosts)
}

// TestDisownReadsTogether: empty blocks far apart are given back with a read of the blocks and one of the pages above them.
func TestDisownReadsTogether(t *testing.T) {
	var pools []alloc.Pool
	for i := range 8 {
		pools = append(pools, poolOf(fmt.Sprint("p", i), fmt.Sprintf("10.%d.0.0/24", i), 28))
	}
	w := newWorld(t, alloc.Config{}, pools...)
	for _, p := range pools {
		if _, err := w.EnsureBlock(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Pools: []string{p.Name}}); err != nil {
			t.Fatal(err)
		}
	}
	s := faults.NewFaulty(w.store)
	got, err := w.engine(s).DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h"), OnlyEmpty: true})
	if err != nil || len(got) != 8 || s.Counts().Calls() > 6 {
		t.Errorf("%v, %v, %+v", got, err, s.Counts())
	}
}

// TestGuestLeavesAlone: the release of what a host has borrowed reads that address of its block, and not the others.
func TestGuestLeavesAlone(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 26))
	w.assign(want("h", 60, "p"))
	guest := w.assign(want("guest", 1, "q")).V4[0].Address
	s := faults.NewFaulty(w.store)
	got, err := w.engine(s).ReleaseByHost(bg, alloc.HostOwner("guest"))
	if err != nil || len(got) != 1 || got[0] != guest || touched(s) > 20 {
		t.Errorf("%v, %v, %d records", got, err, touched(s))
	}
}

// TestCallersFitIntoOneCommit: on a store that takes 127 records in a commit, 31 callers of one host that come together are one
// commit, with and without a request key each, and so is the release of a hundred addresses.
func TestCallersFitIntoOneCommit(t *testing.T) {
	for _, request := range []bool{false, true} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
		g := newGate(limited(w.store, 127))
		e := w.engine(g)
		e.core.Limits.Ops = 127
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
		if g.Counts().Commits != 2 {
			t.Errorf("request keys %v: %d commits for 32 callers", request, g.Counts().Commits)
		}
	}
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	g := newGate(limited(w.store, 127))
	close(g.open)
	var rs []alloc.Release
	for _, al := range w.assign(want("h", 100, "p")).V4 {
		rs = append(rs, alloc.Release{Address: al.Address})
	}
	e := w.engine(g)
	e.core.Limits.Ops = 127
	if res, err := e.ReleaseIPs(bg, rs...); err != nil || len(res) != 100 || g.Counts().Commits > 2 {
		t.Errorf("%d results, %v, %d commits", len(res), err, g.Counts().Commits)
	}
}

// TestPairAllocates: an assignment and its release allocate four times, the two answers and the text of the two commits, however many
// addresses their block holds.
func TestPairAllocates(t *testing.T) {
	for _, held := range []int{0, 32, 62} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 26))
		for i := range held {
			w.assign(want("h", 1, fmt.Sprint("p", i)))
		}
		a := want("h", 1, "pod")
		i := 0
		pair := func() {
			got, err := w.AutoAssign(bg, a)
			if err != nil {
				t.Fatal(err)
			}
			r := alloc.Release{Address: got.V4[0].Address}
			if i++; i%2 > 0 {
				r.Guard = alloc.Guard{Handle: "pod", Seq: got.V4[0].Seq}
			}
			if _, err := w.ReleaseIPs(bg, r); err != nil {
				t.Fatal(err)
			}
		}
		for range 1000 { // until the store's history is full
			pair()
		}
		n := testing.AllocsPerRun(200, func() { pair(); pair() }) / 2
		if n > 4 && !invariant.Enabled {
			t.Errorf("%d held: %.0f allocations, at most 4", held, n)
		}
	}
}

// TestBorrowAllocates: an address that is borrowed from a full pool and given back costs 20 allocations, however large the pool.
func TestBorrowAllocates(t *testing.T) {
	for _, prefix := range []string{"10.0.0.0/22", "10.0.0.0/18"} {
		w := full(t, prefix)
		if _, err := w.ReleaseIPs(bg, alloc.Release{Address: ip("10.0.0.77")}); err != nil {
			t.Fatal(err)
		}
		pair := func() {
			got, err := w.AutoAssign(bg, want("new", 1, "h"))
			if err != nil || len(got.V4) != 1 {
				t.Fatal(got, err)
			}
			if _, err := w.ReleaseIPs(bg, alloc.Release{Address: got.V4[0].Address}); err != nil {
				t.Fatal(err)
			}
		}
		for range 1000 { // until the store's history is full
			pair()
		}
		if n := testing.AllocsPerRun(200, pair); n > 20 && !invariant.Enabled {
			t.Errorf("%s: %.0f allocations, at most 20", prefix, n)
		}
	}
}

// TestFirstAddressCost: a new engine and the first address of a host that has no block cost 60 allocations at most.
func TestFirstAddressCost(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/8", 26))
	i := 0
	first := func() {
		i++
		e, err := New(w.store, Options{Now: w.clock.now})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.AutoAssign(bg, want(fmt.Sprint("h", i), 1, "p")); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 { // until the store's history is full
		first()
	}
	if n := testing.AllocsPerRun(200, first); n > 60 && !invariant.Enabled {
		t.Errorf("%.0f allocations, at most 60", n)
	}
}

// TestSpacePairAllocates: in a named space the two commits allocate once more each, for their keys.
func TestSpacePairAllocates(t *testing.T) {
	w := newWorld(t, alloc.Config{})
	e := inSpace(t, w.Engine, "red")
	if err := e.AddPool(bg, poolOf("a", "10.0.0.0/26", 26)); err != nil {
		t.Fatal(err)
	}
	pair := func() {
		got, err := e.AutoAssign(bg, want("h", 1, "pod"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.ReleaseIPs(bg, alloc.Release{Address: got.V4[0].Address}); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 { // until the store's history is full
		pair()
	}
	if n := testing.AllocsPerRun(200, pair); n > 6 && !invariant.Enabled {
		t.Errorf("%.0f allocations, at most 6", n)
	}
}

// TestDefaultCache: with Options.Cache unset, hosts that come round about cost one call each.
func TestDefaultCache(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/20", 26))
	s := faults.NewFaulty(w.store)
	e, err := New(s, Options{Now: w.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		s.Reset()
		for i := range 8 {
			if _, err := e.AutoAssign(bg, want(fmt.Sprint("h", i), 1, "p")); err != nil {
				t.Fatal(err)
			}
		}
		if round == 2 && s.Counts().Calls() != 8 {
			t.Errorf("%d calls for 8 assignments", s.Counts().Calls())
		}
	}
}

// TestOwnerOfManyBlocks: an assignment to an owner of very many blocks reads those around the one that had room last, and finds
// room in any other when that is full.
func TestOwnerOfManyBlocks(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/20", 30), poolOf("b", "10.1.0.0/24", 30))
	const n = 1024
	all := w.assign(alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 4 * n, Partial: true, Pools: []string{"a"}, Handle: "p"}).V4
	if len(all) != 4*n || len(w.blocksOf("h")) != n {
		t.Fatalf("%d addresses, %d blocks", len(all), len(w.blocksOf("h")))
	}
	s := faults.NewFaulty(w.store)
	e := w.engine(s)
	release := func(k int) netip.Addr {
		t.Helper()
		if _, err := e.ReleaseIPs(bg, alloc.Release{Address: all[k].Address}); err != nil {
			t.Fatal(err)
		}
		return all[k].Address
	}
	assign := func(want netip.Addr) {
		t.Helper()
		got, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Pools: []string{"a"}})
		if err != nil || got.V4[0].Address != want {
			t.Fatalf("%+v, %v, want %s", got, err, want)
		}
	}
	far := release(4 * (n - 1))
	assign(far) // reads all, and finds the last
	near := release(4*(n-1) + 1)
	s.Reset()
	assign(near)
	if touched(s) > 20 {
		t.Errorf("%d records in %d calls for the block that had room last", touched(s), s.Counts().Calls())
	}
	first := release(0)
	assign(first)
	w.check()
	// All are full: the shortage is verified, also against what another engine released meanwhile.
	if _, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Pools: []string{"a"}}); !errors.Is(err, cause.Short) {
		t.Errorf("full: %v", err)
	}
	if _, err := w.ReleaseIPs(bg, alloc.Release{Address: all[2000].Address}); err != nil {
		t.Fatal(err)
	}
	assign(all[2000].Address)
}

// TestReservationsAreListedOnce: a change of many reserved addresses is one commit, and what is held in them is found by one
// pass over the blocks.
func TestReservationsAreListedOnce(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/20", 26))
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
	s := faults.NewFaulty(w.store)
	live, err := w.engine(s).Operator().SetReservations(bg, reservations(set))
	want := 0
	for _, al := range held {
		if set.Contains(al.Address) {
			want++
		}
	}
	if err != nil || len(live) != want || want == 0 || s.Counts().Calls() > 6 {
		t.Errorf("%d live, want %d, %v, %d calls", len(live), want, err, s.Counts().Calls())
	}
}
