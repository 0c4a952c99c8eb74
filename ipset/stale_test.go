package ipset

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// TestStaleAbsenceIsNotBuiltUpon: an engine once saw that there was no block of the pool's old size, and has not heard of the
// one that was made since.
func TestStaleAbsenceIsNotBuiltUpon(t *testing.T) {
	for n := range 32 { // hosts begin in different places
		sizes := [2]int{29, 31}
		if n%2 == 1 {
			sizes = [2]int{31, 29}
		}
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", sizes[0]))
		e := w.engine(w.store)
		for a := ip("10.0.0.0"); a != ip("10.0.0.64"); a = a.Next() {
			if res, err := e.ReleaseIPs(bg, alloc.Release{Address: a}); err != nil || res[0].Outcome != alloc.WasFree {
				t.Fatal(res, err)
			}
		}
		w.assign(want("b", 24, "old"))
		if err := w.UpdatePool(bg, poolOf("a", "10.0.0.0/26", sizes[1])); err != nil {
			t.Fatal(err)
		}
		if _, err := e.AutoAssign(bg, want(fmt.Sprint("a", n), 4, "new")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPoolInsideALargeBlock: a pool that was removed left a block larger than the pool that takes its place.
func TestPoolInsideALargeBlock(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("old", "10.0.0.0/24", 24))
	held := w.assign(want("a", 20, "p")).V4
	if err := w.RemovePool(bg, "old"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []alloc.Pool{poolOf("first", "10.0.0.0/28", 28), poolOf("second", "10.0.0.16/28", 30)} {
		if err := w.AddPool(bg, p); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.assign(want("b", 1, "q")); len(got.V4) != 0 {
		t.Errorf("%v was given inside of %v", got.V4, held[0].Block)
	}
	w.check()
	w.releaseHandle("p")
	if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("a"), OnlyEmpty: true}); err != nil {
		t.Fatal(err)
	}
	if got := w.assign(want("b", 32, "q")); len(got.V4) != 32 {
		t.Errorf("%d of 32 once the large block is gone", len(got.V4))
	}
}

// TestStaleEngineDoesWhatItSays: what an engine does by a list of index records it does to the blocks as they are, not as it
// remembers them.
func TestStaleEngineDoesWhatItSays(t *testing.T) {
	p := poolOf("a", "10.0.0.0/24", 28)
	p.Cooldown = time.Minute
	newStale := func(t *testing.T) (*world, *Engine) {
		w := newWorld(t, alloc.Config{}, p)
		e := w.engine(w.store)
		if _, err := e.AutoAssign(bg, want("a", 1, "p")); err != nil {
			t.Fatal(err)
		}
		return w, e
	}
	t.Run("sweep", func(t *testing.T) {
		w, e := newStale(t)
		w.releaseHandle("p")
		w.clock.add(2 * time.Minute)
		if s, err := e.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil || s.Advanced != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		if n := w.records(record.KindDue); n != 0 {
			t.Errorf("%d blocks are still due", n)
		}
	})
	t.Run("renew", func(t *testing.T) {
		w, e := newStale(t)
		a := want("a", 1, "p")
		a.TTL = time.Hour
		w.assign(a)
		if n, err := e.Renew(bg, "p", alloc.RenewArgs{TTL: time.Hour}); err != nil || len(n) != 1 {
			t.Errorf("renewed %v, %v", n, err)
		}
	})
	t.Run("keep", func(t *testing.T) {
		w, e := newStale(t)
		w.assign(want("a", 40, "q"))
		w.releaseHandle("p")
		w.releaseHandle("q")
		w.clock.add(time.Hour)
		s, err := e.Operator().Sweep(bg, alloc.SweepArgs{IdleAfter: time.Minute, Keep: 1})
		if err != nil || len(s.Returned) != 2 || len(w.blocksOf("a")) != 1 {
			t.Errorf("gave back %v, %v, left %v", s.Returned, err, w.blocksOf("a"))
		}
	})
	t.Run("order", func(t *testing.T) {
		w, e := newStale(t)
		w.assign(want("a", 15, "q"))
		if _, err := e.AutoAssign(bg, want("a", 1, "r")); err != nil { // fills a second block in e's view only in part
			t.Fatal(err)
		}
		w.releaseHandle("q")
		w.clock.add(2 * time.Minute)
		first := w.blocksOf("a")[0]
		got, err := e.AutoAssign(bg, want("a", 1, "s"))
		if err != nil || got.V4[0].Block != first {
			t.Errorf("%v, %v, want one of %s", got.V4, err, first)
		}
	})
}

// TestStaleRoomIsNoShortage: an engine remembers that a block of another had two free addresses, and there are three.
func TestStaleRoomIsNoShortage(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/29", 29))
	w.assign(want("a", 5, "p"))
	held := w.assign(want("a", 1, "q")).V4
	e := w.engine(w.store)
	two := want("b", 2, "r")
	two.Partial = false
	if _, err := e.AutoAssign(bg, two); err != nil {
		t.Fatal(err)
	}
	if _, err := e.ReleaseByHandle(bg, "r"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ReleaseIPs(bg, alloc.Release{Address: held[0].Address}); err != nil {
		t.Fatal(err)
	}
	two.Num4 = 3
	if got, err := e.AutoAssign(bg, two); err != nil || len(got.V4) != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestSmallCachesGiveTheSameAnswers: how much an engine remembers changes what it costs, not what it does.
func TestSmallCachesGiveTheSameAnswers(t *testing.T) {
	var first string
	for _, keep := range []int{1, 2, 3, 7, 64, 0} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/25", 28), poolOf("b", "10.1.0.0/26", 30))
		e, err := New(w.store, Options{Now: w.clock.now, Cache: keep, Retry: Retry{Sleep: noSleep}})
		if err != nil {
			t.Fatal(err)
		}
		answers := ""
		for i := range 120 {
			if i%5 == 4 {
				as, err := e.ReleaseByHandle(bg, fmt.Sprint("p", i/2))
				if err != nil {
					t.Fatal(err)
				}
				answers += fmt.Sprintln(as)
				w.clock.add(20 * time.Second)
				continue
			}
			got, err := e.AutoAssign(bg, want(fmt.Sprint("h", i%3), 1+i%4, fmt.Sprint("p", i)))
			if err != nil {
				t.Fatal(err)
			}
			answers += fmt.Sprintln(got)
		}
		w.check()
		if first == "" {
			first = answers
		} else if answers != first {
			t.Errorf("with a cache of %d:\n%swith one of 1:\n%s", keep, answers, first)
		}
	}
}

// Any number of own blocks whose leases another engine has renewed costs the calls that one costs: one conflict, and one read of all.
func TestStaleOwnBlocksCostWhatOneCosts(t *testing.T) {
	var one faults.Counts
	for _, n := range []int{2, 16, 60} {
		w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/16", 30))
		lease := func(e *Engine, handle string, k int) error {
			_, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: k, Handle: handle, TTL: time.Minute})
			return err
		}
		for i := range n {
			if err := lease(w.Engine, fmt.Sprint("p", i), 4); err != nil {
				t.Fatal(err)
			}
		}
		f := faults.NewFaulty(w.store)
		e := w.engine(f)
		if err := lease(e, "q", 1); err != nil { // it knows them
			t.Fatal(err)
		}
		w.clock.add(10 * time.Second)
		for i := range n {
			if _, err := w.Renew(bg, fmt.Sprint("p", i), alloc.RenewArgs{TTL: time.Minute}); err != nil {
				t.Fatal(err)
			}
		}
		w.clock.add(55 * time.Second)
		f.Reset()
		if err := lease(e, "r", 1); err != nil {
			t.Fatalf("%d blocks: %v", n, err)
		}
		c := f.Counts()
		c = faults.Counts{Gets: c.Gets, Lists: c.Lists, Commits: c.Commits}
		if n == 2 {
			one = c
		}
		if c != one {
			t.Errorf("%d blocks: %+v, two %+v", n, c, one)
		}
	}
}
