package ipset

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A pool whose block size has changed gives all it has, while blocks of an earlier size drain and afterwards, but for what blocks more than 64
// times smaller leave of a place. What is said to be available is what can be assigned; a call that finds no more says what is in the way.
func TestDrainingIsToldApart(t *testing.T) {
	for name, c := range map[string]struct {
		was, is            alloc.Pool
		available, drained uint64 // while the first address is held
	}{
		"smaller blocks":      {poolOf("p", "10.0.0.0/28", 28), poolOf("p", "10.0.0.0/28", 30), 15, 0},
		"larger blocks":       {poolOf("p", "10.0.0.0/26", 28), poolOf("p", "10.0.0.0/26", 27), 63, 0},
		"a pool that grew":    {poolOf("p", "10.0.0.0/28", 28), poolOf("p", "10.0.0.0/27", 27), 31, 0},
		"64 times as large":   {poolOf("p", "10.0.0.0/26", 32), poolOf("p", "10.0.0.0/26", 26), 63, 0},
		"128 times as large":  {poolOf("p", "10.0.0.0/25", 32), poolOf("p", "10.0.0.0/25", 25), 0, 127},
		"part of it reserved": {poolOf("p", "10.0.0.0/26", 28), alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/26"), BlockBits: 27, Subnet: true}, 61, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, alloc.Config{}, c.was)
			if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.1"), Owner: alloc.HostOwner("a"), Handle: "first"}); err != nil {
				t.Fatal(err)
			}
			if err := w.UpdatePool(bg, c.is); err != nil {
				t.Fatal(err)
			}
			count := func(available, draining uint64) {
				t.Helper()
				us, err := w.Utilization(bg)
				if err != nil || len(us) != 1 {
					t.Fatal(us, err)
				}
				u := us[0]
				if u.Available.Lo != available || u.Draining.Lo != draining || u.Used.Add(u.Cooling).Add(u.Reserved).Add(u.Draining).Add(u.Available) != u.Capacity {
					t.Errorf("%v used, %v reserved, %v draining, %v available of %v, want %d draining and %d available", u.Used, u.Reserved, u.Draining, u.Available, u.Capacity, draining, available)
				}
			}
			all := alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 128, Partial: true, Handle: "rest"}
			assign := func(want uint64) []alloc.Shortage {
				t.Helper()
				got, err := w.AutoAssign(bg, all)
				if err != nil || uint64(len(got.V4)) != want {
					t.Fatalf("%d assigned, want %d: %v", len(got.V4), want, err)
				}
				w.check()
				return got.Short
			}
			count(c.available, c.drained)
			why := assign(c.available)
			more := all
			more.Handle, more.Num4, more.Partial = "more", 1, false
			_, err := w.AutoAssign(bg, more)
			rows, _ := w.Explain(bg, more)
			reason, in := alloc.ReasonFull, netip.Prefix{}
			if c.is.Subnet {
				reason = alloc.ReasonOutsideLeft
			} else if c.drained > 0 {
				reason, in = alloc.ReasonDrainingLeft, netip.MustParsePrefix("10.0.0.1/32")
			}
			if len(why) != 1 || why[0].Reason != reason || why[0].InTheWay != in || len(rows) != 1 || rows[0].Reason != reason || !errors.Is(err, ipalloc.ErrFull) {
				t.Errorf("%v; %v; %v", why, rows, err)
			}
			w.releaseHandle("first")
			w.releaseHandle("rest")
			us, err := w.Utilization(bg)
			if err != nil {
				t.Fatal(err)
			}
			free := us[0].Available.Lo
			count(free, 0)
			if why := assign(free); slices.ContainsFunc(why, func(s alloc.Shortage) bool { return s.Reason == alloc.ReasonDrainingLeft }) {
				t.Errorf("drained: %v", why)
			}
		})
	}
}

// A block of an earlier size goes when it is empty, by whatever: a release, the end of a lease or of a cooldown, and the change of the
// pools where it is empty already. So does one that begins before its pool, or in another. Then the pool gives all it has.
func TestEmptyBlocksOfAnEarlierSizeGo(t *testing.T) {
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
		"a part":   {poolOf("p", "10.0.0.0/26", 26), []alloc.Pool{part}, nil, 32},
		"two":      {poolOf("p", "10.0.0.0/26", 26), []alloc.Pool{rest}, []alloc.Pool{part}, 32},
		"a nested": {poolOf("p", "10.0.0.0/26", 26), []alloc.Pool{poolOf("whole", "10.0.0.0/24", 27)}, []alloc.Pool{part}, 32},
		"a later":  {poolOf("p", "10.0.0.0/26", 26), []alloc.Pool{rest}, []alloc.Pool{part, first}, 36},
	} {
		for how, empty := range end {
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
			all := want("b", change.all, "rest")
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
				t.Errorf("%s in %s: %d available of %d, %d assigned, %+v, %v", how, name, available, change.all, len(got.V4), got.Short, err)
			}
			w.check()
		}
	}
}

// What is made beside blocks of former sizes is followed by blocks of other sizes at the same addresses, and no sequence number comes again
// at an address: a caller that is late with its guard releases nobody else's.
func TestNumbersDoNotComeAgainBesideFormerSizes(t *testing.T) {
	held := func(w *world, handle, address string) {
		t.Helper()
		if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip(address), Owner: alloc.HostOwner(handle), Handle: handle}); err != nil {
			t.Fatal(err)
		}
	}
	change := func(w *world, set ...alloc.Pool) {
		t.Helper()
		if err := w.Operator().ChangePools(bg, alloc.PoolChanges{Set: set}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		begin func(w *world)
		last  string // the handle of the last block of a former size
	}{
		"two former sizes": {func(w *world) {
			held(w, "large", "10.0.0.1")
			change(w, poolOf("p", "10.0.0.0/26", 30))
			held(w, "small", "10.0.0.17")
			change(w, poolOf("p", "10.0.0.0/26", 26))
		}, "large"},
		"blocks of that size in another pool": {func(w *world) {
			change(w, poolOf("p", "10.0.0.0/26", 30))
			held(w, "small", "10.0.0.1")
			change(w, poolOf("p", "10.0.0.0/26", 28), poolOf("q", "10.0.0.128/28", 30))
			for range 20 {
				held(w, "other", "10.0.0.129")
				w.releaseHandle("other")
			}
			if _, _, err := w.RemoveHost(bg, alloc.HostOwner("other")); err != nil {
				t.Fatal(err)
			}
		}, "small"},
	} {
		w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/26", 28))
		c.begin(w)
		in := make(map[alloc.Release]netip.Prefix)
		for _, end := range []string{"nothing", "small", c.last} {
			w.releaseHandle(end)
			for range 4 {
				for _, al := range w.assign(alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 64, Partial: true, Pools: []string{"p"}, Handle: "rest"}).V4 {
					r := alloc.Release{Address: al.Address, Guard: alloc.Guard{Seq: al.Seq}}
					if was := in[r]; was.IsValid() {
						t.Fatalf("%s: %s has number %d in %s, and had it in %s", name, r.Address, r.Seq, al.Block, was)
					}
					in[r] = al.Block
				}
				w.check()
				w.releaseHandle("rest")
			}
		}
	}
}

// A pool that takes a part of the place of a block keeps the sizes of the blocks that another engine makes there meanwhile, beside one in
// the other part.
func TestPoolOfAPartOfAPlaceKeepsItsSizes(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/26", 30))
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.1"), Owner: alloc.HostOwner("a"), Handle: "first"}); err != nil {
		t.Fatal(err)
	}
	if err := w.UpdatePool(bg, poolOf("p", "10.0.0.0/26", 26)); err != nil {
		t.Fatal(err)
	}
	s := faults.NewFaulty(w.store)
	s.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Commit && c.Nth == 1 {
			a := want("b", 1, "beside")
			a.Choose = alloc.From(ip("10.0.0.16"))
			w.assign(a)
		}
		return faults.Outcome{}
	})
	change := alloc.PoolChanges{Set: []alloc.Pool{poolOf("p", "10.0.0.0/26", 28), poolOf("nested", "10.0.0.16/28", 28)}}
	if err := w.engine(s).Operator().ChangePools(bg, change); err != nil {
		t.Fatal(err)
	}
	w.check()
	rest := want("c", 16, "rest")
	rest.Pools = []string{"nested"}
	if got := w.assign(rest); len(got.V4) != 15 {
		t.Errorf("%d assigned beside one of 16", len(got.V4))
	}
	w.check()
}

// However many places are full of blocks of a former size, a commit that gives from the last one verifies only as much as the store lets it.
func TestManyFullPlacesOfAFormerSize(t *testing.T) {
	p := poolOf("p", "10.0.0.0/20", 32)
	p.Order = alloc.Lowest
	w := newWorld(t, alloc.Config{}, p)
	for range 64 {
		w.assign(want("a", 64, "first"))
	}
	if _, err := w.ReleaseIPs(bg, alloc.Release{Address: ip("10.0.15.255")}); err != nil {
		t.Fatal(err)
	}
	p.BlockBits = 26
	if err := w.UpdatePool(bg, p); err != nil {
		t.Fatal(err)
	}
	e := w.engine(faults.NewLimited(w.store, store.Limits{Ops: 40}))
	if got, err := e.AutoAssign(bg, want("b", 1, "last")); err != nil || len(got.V4) != 1 || got.V4[0].Address != ip("10.0.15.255") {
		t.Errorf("%v, %v", got, err)
	}
}

// A block that begins before a pool and reaches into it is said to be in the way, not that the pool is full.
func TestBlockFromBeforeThePoolIsInTheWay(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/26", 26))
	w.assign(want("a", 1, "first"))
	if err := w.Operator().ChangePools(bg, alloc.PoolChanges{Remove: []string{"p"}, Set: []alloc.Pool{poolOf("part", "10.0.0.32/27", 30)}}); err != nil {
		t.Fatal(err)
	}
	got := w.assign(want("b", 1, "rest"))
	if len(got.Short) != 1 || got.Short[0].Reason != alloc.ReasonDrainingLeft || got.Short[0].InTheWay != netip.MustParsePrefix("10.0.0.0/26") {
		t.Errorf("%v", got)
	}
}
