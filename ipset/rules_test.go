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
	}
}
