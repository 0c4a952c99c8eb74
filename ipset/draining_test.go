package ipset

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
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
			if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.1"), Owner: alloc.HostOwner("a"), Claim: alloc.Claim{Handle: "first"}}); err != nil {
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
			all := alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 128, Partial: true, Claim: alloc.Claim{Handle: "rest"}}
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
			more.Claim.Handle, more.Num4, more.Partial = "more", 1, false
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
// size of a pool that has empty ones. Then the pool gives all it has.
func TestEmptyBlocksOfAnEarlierSizeGo(t *testing.T) {
	small, large := poolOf("p", "10.0.0.0/28", 28), poolOf("p", "10.0.0.0/27", 27)
	end := map[string]func(w *world){
		"a release before": func(w *world) { w.releaseHandle("first") },
		"a release":        func(w *world) { w.releaseHandle("first") },
		"a lease":          func(w *world) { w.clock.add(time.Hour) },
		"a cooldown": func(w *world) {
			w.releaseHandle("first")
			w.clock.add(time.Hour)
		},
		"pools together": func(w *world) { w.releaseHandle("first") },
	}
	for how, empty := range end {
		small, large := small, large
		if how == "a cooldown" {
			small.Cooldown, large.Cooldown = time.Minute, time.Minute
		}
		w := newWorld(t, alloc.Config{}, small)
		a := want("a", 1, "first")
		if how == "a lease" {
			a.TTL = time.Minute
		}
		w.assign(a)
		change := func() error { return w.UpdatePool(bg, large) }
		if how == "pools together" {
			change = func() error { return w.Operator().ChangePools(bg, alloc.PoolChanges{Set: []alloc.Pool{large}}) }
		}
		if before := how == "a release before" || how == "pools together"; before {
			empty(w)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if how == "a release" || how == "a lease" || how == "a cooldown" {
			empty(w)
		}
		us, err := w.Utilization(bg)
		if err != nil || us[0].Available.Lo != 32 {
			t.Errorf("%s: %+v, %v", how, us, err)
		}
		if got := w.assign(want("b", 32, "rest")); len(got.V4) != 32 {
			t.Errorf("%s: %d of 32, %+v", how, len(got.V4), got.Short)
		}
		w.check()
	}
}
