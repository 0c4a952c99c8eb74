package ipset

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A block keeps its size when its pool's changes, and its addresses are given like all others. What is around it in the place of a block of the
// pool's size is Draining until every block there is empty; a call that finds no more reports a block that keeps it.
func TestBlocksKeepTheirSize(t *testing.T) {
	for name, c := range map[string]struct {
		was, is            alloc.Pool
		available, drained uint64 // while the first address is held
	}{
		"smaller blocks":      {poolOf("p", "10.0.0.0/28", 28), poolOf("p", "10.0.0.0/28", 30), 15, 0},
		"larger blocks":       {poolOf("p", "10.0.0.0/26", 28), poolOf("p", "10.0.0.0/26", 27), 47, 16},
		"a pool that grew":    {poolOf("p", "10.0.0.0/28", 28), poolOf("p", "10.0.0.0/27", 27), 15, 16},
		"by whole blocks":     {poolOf("p", "10.0.0.0/28", 28), poolOf("p", "10.0.0.0/27", 28), 31, 0},
		"64 times as large":   {poolOf("p", "10.0.0.0/26", 32), poolOf("p", "10.0.0.0/26", 26), 0, 63},
		"128 times as large":  {poolOf("p", "10.0.0.0/25", 32), poolOf("p", "10.0.0.0/25", 25), 0, 127},
		"part of it reserved": {poolOf("p", "10.0.0.0/26", 28), alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/26"), BlockBits: 27, Subnet: true}, 45, 16},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, alloc.Config{}, c.was)
			if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.1"), Owner: alloc.HostOwner("a"), Handle: "first"}); err != nil {
				t.Fatal(err)
			}
			if err := w.UpdatePool(bg, c.is); err != nil {
				t.Fatal(err)
			}
			w.counts(c.available, c.drained)
			all := alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 128, Partial: true, Handle: "rest"}
			got := w.assign(all)
			w.check()
			more := all
			more.Handle, more.Num4, more.Partial = "more", 1, false
			_, err := w.AutoAssign(bg, more)
			rows, _ := w.Explain(bg, more)
			reason := alloc.ReasonFull
			if c.drained > 0 {
				reason = alloc.ReasonDrainingLeft
			}
			why := got.Short
			if uint64(len(got.V4)) != c.available || len(why) != 1 || why[0].Reason != reason || why[0].InTheWay.Contains(ip("10.0.0.1")) != (c.drained > 0) ||
				len(rows) != 1 || rows[0].Reason != reason || !errors.Is(err, ipalloc.ErrFull) {
				t.Errorf("%d assigned, want %d; %v; %v; %v", len(got.V4), c.available, why, rows, err)
			}
			w.releaseHandle("first")
			w.releaseHandle("rest")
			w.counts(c.available+c.drained+1, 0)
			if got := w.assign(all); uint64(len(got.V4)) != c.available+c.drained+1 {
				t.Errorf("%d assigned when the first block was empty, want %d more: %v", len(got.V4), c.drained+1, got.Short)
			}
		})
	}
}

// counts checks the sums of the only pool.
func (w *world) counts(available, draining uint64) {
	w.t.Helper()
	us, err := w.Utilization(bg)
	if err != nil || len(us) != 1 {
		w.t.Fatal(us, err)
	}
	u := us[0]
	if u.Available.Lo != available || u.Draining.Lo != draining || u.Used.Add(u.Cooling).Add(u.Reserved).Add(u.Draining).Add(u.Available) != u.Capacity {
		w.t.Errorf("%v used, %v reserved, %v draining, %v available of %v, want %d draining and %d available", u.Used, u.Reserved, u.Draining, u.Available, u.Capacity, draining, available)
	}
}

// An empty block of another size makes room in the commit that claims its place: whoever owned it, however it was emptied, and also if it begins
// before the pool or in another one. So the pool gives all it has, in blocks of its own size.
func TestEmptyBlocksMakeRoom(t *testing.T) {
	end := map[string]func(w *world){
		"a release before": func(w *world) { w.releaseHandle("first") },
		"a release":        func(w *world) { w.releaseHandle("first") },
		"a lease":          func(w *world) { w.clock.add(time.Hour) },
		"a cooldown": func(w *world) {
			w.releaseHandle("first")
			w.clock.add(time.Hour)
		},
	}
	part, rest, first := poolOf("part", "10.0.0.32/27", 30), poolOf("rest", "10.0.0.0/27", 30), poolOf("first", "10.1.0.0/30", 30)
	first.Priority = 1
	for name, change := range map[string]struct {
		was         alloc.Pool
		next, asked []alloc.Pool
		all         int
	}{
		"its own":  {poolOf("p", "10.0.0.0/28", 28), []alloc.Pool{poolOf("p", "10.0.0.0/27", 27)}, nil, 32},
		"smaller":  {poolOf("p", "10.0.0.0/27", 27), []alloc.Pool{poolOf("p", "10.0.0.0/27", 29)}, nil, 32},
		"a part":   {poolOf("p", "10.0.0.0/26", 26), []alloc.Pool{part}, nil, 32},
		"two":      {poolOf("p", "10.0.0.0/26", 26), []alloc.Pool{rest}, []alloc.Pool{part}, 32},
		"a nested": {poolOf("p", "10.0.0.0/26", 26), []alloc.Pool{poolOf("whole", "10.0.0.0/24", 27)}, []alloc.Pool{part}, 32},
		"a later":  {poolOf("p", "10.0.0.0/26", 26), []alloc.Pool{rest}, []alloc.Pool{part, first}, 36},
	} {
		for how, empty := range end {
			for _, host := range []string{"a", "b"} {
				was, next := change.was, slices.Concat(change.next, change.asked)
				if how == "a cooldown" {
					was.Cooldown, next[0].Cooldown = time.Minute, time.Minute
				}
				w := newWorld(t, alloc.Config{}, was)
				a := want("a", 1, "first")
				if how == "a lease" {
					a.TTL = time.Minute
				}
				w.assign(a)
				if how == "a release before" {
					empty(w)
				}
				var err error
				if next[0].Name == was.Name {
					err = w.UpdatePool(bg, next[0])
				} else {
					err = w.Operator().ChangePools(bg, alloc.PoolChanges{Remove: []string{was.Name}, Set: next})
				}
				if err != nil {
					t.Fatal(err)
				}
				if how != "a release before" {
					empty(w)
				}
				w.clock.add(2 * time.Minute) // a block that was just left is its owner's
				all := want(host, change.all, "rest")
				for _, p := range change.asked {
					all.Pools = append(all.Pools, p.Name)
				}
				us, err := w.Utilization(bg)
				available := uint64(0)
				for _, u := range us {
					if u.Pool != "" && (len(all.Pools) == 0 || slices.Contains(all.Pools, u.Pool)) {
						available += u.Available.Lo
					}
				}
				if got := w.assign(all); err != nil || available != uint64(change.all) || len(got.V4) != change.all {
					t.Errorf("%s in %s for %s: %d available of %d, %d assigned, %+v, %v", how, name, host, available, change.all, len(got.V4), got.Short, err)
				}
			}
		}
	}
}

// Until another owner may take it, a block that was left is used by its owner alone, and it is the owner's when a claim elsewhere fails.
func TestABlockJustLeftMakesNoRoomForOthers(t *testing.T) {
	w := newWorld(t, alloc.Config{Strict: true}, poolOf("p", "10.0.0.0/28", 28))
	w.assign(want("a", 1, "first"))
	if err := w.UpdatePool(bg, poolOf("p", "10.0.0.0/27", 27)); err != nil {
		t.Fatal(err)
	}
	w.releaseHandle("first")
	b := want("b", 1, "second")
	b.Partial = false
	if _, err := w.AutoAssign(bg, b); !errors.Is(err, ipalloc.ErrFull) {
		t.Errorf("%v", err)
	}
	b.Num4 = 33
	w.clock.add(2 * time.Minute)
	if _, err := w.AutoAssign(bg, b); !errors.Is(err, ipalloc.ErrFull) || !slices.Equal(w.blocksOf("a"), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28")}) {
		t.Errorf("%v; a has %v", err, w.blocksOf("a"))
	}
	b.Num4 = 32
	if got := w.assign(b); len(got.V4) != 32 || len(w.blocksOf("a")) > 0 {
		t.Errorf("%v; a has %v", got, w.blocksOf("a"))
	}
}

// Blocks of one size follow blocks of another at the same addresses, and no sequence number comes again at an address: a caller that is late
// with its guard releases nobody else's.
func TestNumbersDoNotComeAgainAcrossSizes(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/26", 28), poolOf("q", "10.0.0.128/28", 30))
	in := make(map[alloc.Release]netip.Prefix)
	for round, bits := range []int{28, 26, 30, 28, 27, 26, 32, 26} {
		if err := w.UpdatePool(bg, poolOf("p", "10.0.0.0/26", bits)); err != nil {
			t.Fatal(err)
		}
		if round%2 == 0 { // the marks of that size rise elsewhere
			for range 20 {
				w.assign(alloc.AssignArgs{Owner: alloc.HostOwner("other"), Num4: 1, Pools: []string{"q"}, Partial: true, Handle: "other"})
				w.releaseHandle("other")
			}
			if _, _, err := w.RemoveHost(bg, alloc.HostOwner("other")); err != nil {
				t.Fatal(err)
			}
		}
		for k := range 3 {
			for _, al := range w.assign(alloc.AssignArgs{Owner: alloc.HostOwner([]string{"a", "b"}[k%2]), Num4: 64, Partial: true, Pools: []string{"p"}, Handle: "rest"}).V4 {
				r := alloc.Release{Address: al.Address, Guard: alloc.Guard{Seq: al.Seq}}
				if was := in[r]; was.IsValid() {
					t.Fatalf("%s has number %d in %s, and had it in %s", r.Address, r.Seq, al.Block, was)
				}
				in[r] = al.Block
			}
			w.check()
			w.releaseHandle("rest")
			w.clock.add(2 * time.Minute)
		}
	}
}

// A commit that cannot delete all the blocks in a place uses them as they are.
func TestMoreEmptyBlocksThanACommitTakes(t *testing.T) {
	p := poolOf("p", "10.0.0.0/26", 32)
	w := newWorld(t, alloc.Config{}, p)
	w.assign(want("a", 64, "first"))
	w.releaseHandle("first")
	p.BlockBits = 26
	if err := w.UpdatePool(bg, p); err != nil {
		t.Fatal(err)
	}
	w.clock.add(2 * time.Minute)
	e := w.engine(faults.NewLimited(w.store, store.Limits{Ops: 40}))
	if got, err := e.AutoAssign(bg, want("b", 1, "one")); err != nil || len(got.V4) != 1 || got.V4[0].Block.Bits() != 32 {
		t.Errorf("%v, %v", got, err)
	}
	w.check()
	w.releaseHandle("one")
	w.clock.add(2 * time.Minute)
	if got := w.assign(want("c", 64, "all")); len(got.V4) != 64 || got.V4[0].Block.Bits() != 26 {
		t.Errorf("%v", got)
	}
}

// A block that begins before a pool and reaches into it is said to be in the way, not that the pool is full.
func TestBlockFromBeforeThePoolIsInTheWay(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/26", 26))
	w.leaves(audit.NoPool)
	w.assign(want("a", 1, "first"))
	if err := w.Operator().ChangePools(bg, alloc.PoolChanges{Remove: []string{"p"}, Set: []alloc.Pool{poolOf("part", "10.0.0.32/27", 30)}}); err != nil {
		t.Fatal(err)
	}
	got := w.assign(want("b", 1, "rest"))
	if len(got.Short) != 1 || got.Short[0].Reason != alloc.ReasonDrainingLeft || got.Short[0].InTheWay != netip.MustParsePrefix("10.0.0.0/26") {
		t.Errorf("%v", got)
	}
}

// A limit is the reason wherever something is left for claiming: a free block, one that another has left, or one without owner. Where all is
// others' the reason is that, and "full" only where every address is held.
func TestALimitIsTheReasonWhileSomethingIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		leave  func(w *world)
		reason alloc.Reason
	}{
		"in use": {func(w *world) { w.assign(want("h1", 1, "c")) }, alloc.ReasonFull},
		"idle": {func(w *world) {
			w.releaseHandle("b")
			w.clock.add(time.Hour)
		}, alloc.ReasonLimitReached},
		"just left": {func(w *world) { w.releaseHandle("b") }, alloc.ReasonForeignLeft},
		"another's": {func(*world) {}, alloc.ReasonForeignLeft},
		"without owner": {func(w *world) {
			if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h1")}); err != nil {
				t.Fatal(err)
			}
		}, alloc.ReasonLimitReached},
	} {
		p := poolOf("p", "10.0.0.0/30", 31)
		p.MaxBlocksPerHost = 1
		w := newWorld(t, alloc.Config{Strict: true}, p)
		w.assign(want("h0", 2, "a"))
		w.assign(want("h1", 1, "b"))
		c.leave(w)
		if got := w.assign(want("h0", 1, "more")); len(got.V4) > 0 || len(got.Short) != 1 || got.Short[0].Reason != c.reason {
			t.Errorf("%s: %v, %v, want %v", name, got.V4, got.Short, c.reason)
		}
	}
}

// Partial assigns as many addresses as one commit takes: a call for one more fails, from whatever number the search came down.
func TestPartialTakesAllThatACommitTakes(t *testing.T) {
	for n := 12; n <= 60; n += 4 {
		w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/25", 29))
		e := w.engine(faults.NewLimited(w.store, store.Limits{Ops: 48}))
		for range 5 {
			if _, err := e.AutoAssign(bg, want("h", 1, "first")); err != nil {
				t.Fatal(err)
			}
		}
		got, err := e.DryRun().AutoAssign(bg, want("h", n, "x"))
		if err != nil {
			t.Fatal(err)
		}
		more := want("h", len(got.V4)+1, "x")
		more.Partial = false
		if _, err := e.DryRun().AutoAssign(bg, more); len(got.V4) < n && err == nil {
			t.Errorf("%d of %d, and a call for one more succeeds", len(got.V4), n)
		}
	}
}
