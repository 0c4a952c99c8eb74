package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// idleWorld has n hosts with an empty block each, and an engine whose calls are counted.
func idleWorld(t *testing.T, n int, cooldown time.Duration) (*world, *faults.Faulty, *Engine) {
	p := poolOf("a", "10.0.0.0/12", 28)
	p.Cooldown = cooldown
	w := newWorld(t, alloc.Config{}, p)
	for i := range n {
		w.assign(want(fmt.Sprint("h", i), 1, fmt.Sprint("p", i)))
	}
	for i := range n {
		w.releaseHandle(fmt.Sprint("p", i))
	}
	s := faults.NewFaulty(w.store)
	return w, s, w.engine(s)
}

// A sweep costs what is due, however many blocks are empty: nothing but the lists of what is due while none is idle, one read of blocks
// and one of owners where all owners keep theirs.
func TestSweepCostFollowsWhatIsDue(t *testing.T) {
	const n = 900
	w, s, e := idleWorld(t, n, 0)
	sweep := func(a alloc.SweepArgs) (faults.Counts, alloc.Swept) {
		t.Helper()
		s.Reset()
		got, err := e.Operator().Sweep(bg, a)
		if err != nil {
			t.Fatal(err)
		}
		return s.Counts(), got
	}
	none, _ := sweep(alloc.SweepArgs{})
	idle := alloc.SweepArgs{IdleAfter: time.Hour}
	sweep(idle) // lists the blocks
	w.clock.add(50 * time.Minute)
	if c, _ := sweep(idle); c.Calls() != none.Calls() || c.Read > 0 {
		t.Errorf("none is idle: %+v, %+v without IdleAfter", c, none)
	}
	w.clock.add(20 * time.Minute)
	idle.Keep = 1
	sweep(idle)
	if c, got := sweep(idle); len(got.Returned) > 0 || c.Commits > 0 || c.Calls() > none.Calls()+3 {
		t.Errorf("all are kept: %+v, returned %d", c, len(got.Returned))
	}
	// A block more for one host: it is given back at once, and the reads are those of a page.
	if _, _, err := w.ClaimAffinity(bg, netip.MustParsePrefix("10.15.255.240/28"), alloc.HostOwner("h7")); err != nil {
		t.Fatal(err)
	}
	if c, got := sweep(idle); len(got.Returned) != 1 || c.Commits != 1 {
		t.Errorf("one has a block too many: %+v, returned %v", c, got.Returned)
	}
	w.clock.add(time.Hour)
	idle.Keep = 0
	if c, got := sweep(idle); len(got.Returned) != n || c.Commits > n/txn.StepBlocks+1 || c.Gets > 4*c.Commits+5 {
		t.Errorf("all go: %+v, returned %d", c, len(got.Returned))
	}
	if left := w.records(record.KindBlock) + w.records(record.KindOwner) + w.records(record.KindEmpty); left > 0 {
		t.Errorf("%d records of blocks are left", left)
	}
	w.check()
}

// What time ends in many blocks goes into as many commits as the limits of the store need, from an engine that has seen none of it.
func TestSweepCommitsManyBlocksAtOnce(t *testing.T) {
	const n = 300
	for _, limit := range []int{0, 125} {
		w, _, stale := idleWorld(t, n, time.Minute)
		s := faults.NewLimited(w.store, store.Limits{Ops: limit})
		e := w.engine(s)
		if _, err := stale.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil {
			t.Fatal(err)
		}
		w.clock.add(time.Hour)
		got, err := e.Operator().Sweep(bg, alloc.SweepArgs{})
		most := n/txn.StepBlocks + 1
		if limit > 0 {
			most = n/(limit/(2*(7+1))) + 1
		}
		if c := s.Counts(); err != nil || got.Advanced != n || c.Commits > most || c.Gets > 2*most+2 {
			t.Errorf("limit %d: %d advanced, %v, %+v, at most %d commits", limit, got.Advanced, err, c, most)
		}
		if due := w.records(record.KindDue); due > 0 {
			t.Errorf("limit %d: %d blocks are due still", limit, due)
		}
		w.check()
	}
}

// A damaged block among the idle ones ends a sweep, and a list of what its host holds, with an error; it is not passed over.
func TestSweepOfADamagedBlock(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	w.leaves()
	al := w.assign(want("h", 1, "p")).V4[0]
	w.releaseHandle("p")
	w.clock.add(time.Hour)
	key := record.BlockKey(record.KindBlock, al.Block)
	if _, err := w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: key, Value: "\x01", Expect: store.AnyRevision}}); err != nil {
		t.Fatal(err)
	}
	e := w.engine(w.store)
	if s, err := e.Operator().Sweep(bg, alloc.SweepArgs{IdleAfter: time.Minute}); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("%+v, %v", s, err)
	}
	if als, err := e.IPsByHost(bg, alloc.HostOwner("h")); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("%v, %v", als, err)
	}
}
