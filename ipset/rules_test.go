package ipset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func TestReleasedTogetherAreQueuedInAddressOrder(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/29", 29))
	w.assign(want("h", 8, "p"))
	if _, err := w.ReleaseIPs(bg, alloc.Release{Address: ip("10.0.0.7")}, alloc.Release{Address: ip("10.0.0.1")}, alloc.Release{Address: ip("10.0.0.4")}); err != nil {
		t.Fatal(err)
	}
	if s := lastBytes(w.assign(want("h", 3, "q")).V4); s != "1 4 7" {
		t.Errorf("handed out %s", s)
	}
}

// TestFreedBlockOfAFullPoolIsFound: with more than 64 blocks the page of the freed one was full, and so marked above.
func TestFreedBlockOfAFullPoolIsFound(t *testing.T) {
	prefixes := []string{"10.0.0.0/20", "10.0.0.0/19", "10.0.0.0/13"} // a page, two, more than one page of pages
	if testing.Short() {
		prefixes = prefixes[:2]
	}
	for _, prefix := range prefixes {
		w := full(t, prefix)
		w.check()
		if got := w.assign(want("new", 1, "p")); len(got.V4) != 0 || got.Short[0].Reason != alloc.ReasonFull {
			t.Fatalf("%s: %+v", prefix, got)
		}
		block := w.blocksOf("old2")[7]
		var rs []alloc.Release
		for a := block.Addr(); block.Contains(a); a = a.Next() {
			rs = append(rs, alloc.Release{Address: a})
		}
		w.ReleaseIPs(bg, rs...)
		if rel, err := w.DisownBlocks(bg, alloc.DisownArgs{Prefix: block, Owner: alloc.HostOwner("old2"), OnlyEmpty: true}); err != nil || len(rel) != 1 {
			t.Fatalf("%s: released %v, %v", prefix, rel, err)
		}
		if got := w.assign(want("new", 64, "p")); len(got.V4) != 64 || got.V4[0].Block != block {
			t.Errorf("%s: freed %s, got %d: %+v", prefix, block, len(got.V4), got.Short)
		}
		w.check()
	}
}

func TestCollectorSparesAHandleThatGrows(t *testing.T) { // all of a handle or none
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	w.assign(want("h", 2, "p"))
	grown := false
	c := w.Operator().NewCollector(time.Minute)
	als, err := c.Collect(bg, func(alloc.Allocation) alloc.Liveness {
		if !grown {
			grown = true
			w.assign(want("other", 1, "p"))
		}
		return alloc.Gone
	})
	if err != nil || len(als) != 0 {
		t.Errorf("%v, %v", als, err)
	}
	if als, err := c.Collect(bg, func(alloc.Allocation) alloc.Liveness { return alloc.Gone }); err != nil || len(als) != 3 {
		t.Errorf("next time: %v, %v", als, err)
	}
}

func TestStickyDoesNotBreakStrictAffinity(t *testing.T) {
	for _, strict := range []bool{false, true} {
		w := newWorld(t, alloc.Config{Strict: strict}, poolOf("a", "10.0.0.0/24", 28))
		a := want("h", 1, "vm")
		a.Sticky = true
		first := w.assign(a).V4[0].Address
		w.releaseHandle("vm")
		a.Owner = alloc.HostOwner("g") // the machine moved
		if got := w.assign(a).V4[0].Address; (got == first) == strict {
			t.Errorf("strict %v: had %s, got %s", strict, first, got)
		}
		w.check()
	}
}

// TestStickyAddressIsNotLostInATakeOver: the block of the address that the handle had is empty, and another's.
func TestStickyAddressIsNotLostInATakeOver(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/29", 29))
	a := want("old", 1, "vm")
	a.Sticky = true
	w.assign(a)
	w.releaseHandle("vm")
	w.clock.add(time.Hour)
	a.Owner, a.Num4 = alloc.HostOwner("new"), 3
	got := w.assign(a)
	seen := map[string]bool{}
	for _, al := range got.V4 {
		if seen[al.Address.String()] {
			t.Errorf("%s twice", al.Address)
		}
		seen[al.Address.String()] = true
	}
	if als, err := w.IPsByHandle(bg, "vm"); err != nil || len(als) != 3 || len(got.V4) != 3 {
		t.Errorf("given %v, held %v, %v", got.V4, als, err)
	}
	w.check()
}

func TestWhatDoesNotFitTogetherGoesAlone(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 30))
	g := newGate(onCommit(w.store, func(_ context.Context, ops []store.Op) faults.Outcome {
		n := 0
		for _, op := range ops {
			n += len(op.Value)
		}
		if n > 4096 { // which no count of records foresees
			return faults.Fail(fmt.Errorf("%w: %d bytes", ipalloc.ErrLimit, n))
		}
		return faults.Outcome{}
	}))
	e := w.engine(g)
	var wg sync.WaitGroup
	big := func(i, size int) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			a := want(fmt.Sprint("h", i), 1, fmt.Sprint(i))
			a.Attributes, _ = alloc.NewAttributes(map[string]string{"k": strings.Repeat("x", size)})
			if _, err := e.AutoAssign(bg, a); (err != nil) != (size > 4096) || err != nil && !errors.Is(err, ipalloc.ErrLimit) {
				t.Errorf("call %d: %v", i, err)
			}
		}()
	}
	big(0, 10)
	<-g.arrived
	for i := range 4 {
		big(1+i, 2000)
	}
	big(5, 5000)
	waitFor(e, 5)
	for range 1000 {
		g.open <- struct{}{}
	}
	wg.Wait()
	w.check()
	if n := w.records(record.KindBlock); n != 5 {
		t.Errorf("%d blocks", n)
	}
}

// TestWorkDoesNotGrowWithTheCluster: what a new host's first block, a borrowed address and the answer that a pool is full
// cost an engine that has cached nothing but the catalog, in calls and in records. It may grow by a page per level, and the first
// block looks at the floor of each of the up to three leaf pages that it tries, in the same read, and writes both the number of its
// owner's blocks and its record among them, so that this does not grow with the owner. A full pool costs one list more,
// of the blocks in which a lease or a cooldown has ended, and so does a first block whose walk begins at a block that is not free.
func TestWorkDoesNotGrowWithTheCluster(t *testing.T) {
	prefixes := []string{"10.0.0.0/22", "10.0.0.0/18", "10.0.0.0/14"}
	if testing.Short() {
		prefixes = prefixes[:2]
	}
	for _, prefix := range prefixes {
		w := full(t, prefix)
		s := faults.NewFaulty(w.store)
		e := w.engine(s)
		cost := func(what string, calls, records int, a alloc.AssignArgs, n int) {
			t.Helper()
			forgetAll(e)
			if _, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("x"), Num6: 1, Use: alloc.Workload}); !errors.Is(err, cause.NoPool) {
				t.Fatal(err) // it has read the catalog
			}
			s.Reset()
			got, err := e.AutoAssign(bg, a)
			if err != nil || len(got.V4) != n {
				t.Fatalf("%s, %s: %+v, %v", prefix, what, got, err)
			}
			if s.Counts().Calls() > calls || touched(s) > records {
				t.Errorf("%s, %s: %d calls and %d records, at most %d and %d", prefix, what, s.Counts().Calls(), touched(s), calls, records)
			}
		}
		cost("full", 9, 10, want("new", 1, "p"), 0)
		w.ReleaseIPs(bg, alloc.Release{Address: ip("10.0.0.77")})
		cost("borrow", 9, 16, want("new", 1, "p"), 1)
		w.releaseHandle("p")
		block := w.blocksOf("old0")[0]
		for a := block.Addr(); block.Contains(a); a = a.Next() {
			w.ReleaseIPs(bg, alloc.Release{Address: a})
		}
		w.DisownBlocks(bg, alloc.DisownArgs{Prefix: block, Owner: alloc.HostOwner("old0"), OnlyEmpty: true})
		cost("first block", 6, 20, want("new", 1, "p"), 1)
		w.check()
	}
}
