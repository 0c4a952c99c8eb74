package ipset

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// A pool of higher priority serves before the blocks that the owner has in a pool of lower priority, until it can give nothing;
// among pools of one priority the owner's blocks come first.
func TestPriorityBeforeOwnBlocks(t *testing.T) {
	gold, other := poolOf("gold", "10.0.1.0/30", 31), poolOf("other", "10.0.2.0/24", 26)
	gold.Priority = 1
	w := newWorld(t, alloc.Config{}, poolOf("base", "10.0.0.0/24", 26))
	in := func(al alloc.Allocation) string {
		ps, err := w.Pools(bg)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ps {
			if p.Prefix.Contains(al.Address) {
				return p.Name
			}
		}
		return ""
	}
	next := func(host, want string) {
		t.Helper()
		got := w.assign(alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: 1})
		if name := in(got.V4[0]); name != want {
			t.Errorf("%s got %s of pool %s, want one of %s", host, got.V4[0].Address, name, want)
		}
	}
	next("h", "base")
	for _, p := range []alloc.Pool{gold, other} {
		if err := w.AddPool(bg, p); err != nil {
			t.Fatal(err)
		}
	}
	next("h", "gold")   // claimed, though the owner has a block with room in base
	next("g", "gold")   // claimed by another owner
	next("h", "gold")   // its own
	next("h", "gold")   // borrowed, though the owner could claim in base
	next("h", "base")   // its own block before the order of names
	next("new", "base") // by name
	ps, _ := w.Pools(bg)
	ps[1].Priority = -1
	if err := w.UpdatePool(bg, ps[1]); err != nil {
		t.Fatal(err)
	}
	next("h", "other")
	got := w.assign(alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 70, Pools: []string{"base", "gold"}, Partial: true})
	if n := len(got.V4); n != 70 || in(got.V4[0]) != "base" {
		t.Errorf("%d addresses, the first of %s", n, in(got.V4[0]))
	}
	w.check()
}

// One call takes what pools of several priorities have, in their order, and names all that fell short.
func TestPriorityTiersOfOneCall(t *testing.T) {
	var pools []alloc.Pool
	for i := range 4 {
		p := poolOf(fmt.Sprint("p", i), fmt.Sprintf("10.0.%d.0/30", i), 31)
		p.Priority = []int{1, 3, 2, 3}[i]
		pools = append(pools, p)
	}
	w := newWorld(t, alloc.Config{}, pools...)
	order := []string{"10.0.1.0/30", "10.0.3.0/30", "10.0.2.0/30", "10.0.0.0/30"}
	got := w.assign(want("h", 17, "p"))
	if len(got.V4) != 16 || len(got.Short) != 4 {
		t.Fatalf("%d addresses, %v", len(got.V4), got.Short)
	}
	for i, al := range got.V4 {
		if !netip.MustParsePrefix(order[i/4]).Contains(al.Address) {
			t.Errorf("address %d is %s", i, al.Address)
		}
	}
	for i, s := range got.Short {
		if want := []string{"p1", "p3", "p2", "p0"}[i]; s.Pool != want || s.Reason != alloc.ReasonFull {
			t.Errorf("shortage %d: %v, want %s", i, s, want)
		}
	}
	w.releaseHandle("p")
	// What the handle had last comes before the order of pools.
	a := want("h", 1, "vm")
	a.Sticky, a.Pools = true, []string{"p0"}
	first := w.assign(a).V4[0].Address
	w.releaseHandle("vm")
	a.Pools = nil
	if again := w.assign(a).V4[0].Address; again != first {
		t.Errorf("%s, had %s", again, first)
	}
	blocks := w.blocksOf("h")
	if !slices.ContainsFunc(blocks, func(p netip.Prefix) bool { return p.Contains(first) }) {
		t.Errorf("blocks %v", blocks)
	}
	w.check()
}

// A pool of higher priority whose leases or cooldowns the clock has ended serves before one of lower priority, before any sweep.
func TestPriorityAndTime(t *testing.T) {
	for _, cooldown := range []time.Duration{0, time.Second} {
		hi := poolOf("hi", "10.0.0.0/30", 30)
		hi.Priority, hi.Cooldown = 1, cooldown
		w := newWorld(t, alloc.Config{}, hi, poolOf("lo", "10.0.1.0/24", 26))
		for i := range 4 {
			w.assign(alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 1, Claim: alloc.Claim{Handle: fmt.Sprint("p", i), TTL: time.Second}})
			if cooldown > 0 {
				w.releaseHandle(fmt.Sprint("p", i))
			}
		}
		w.clock.add(time.Hour)
		if got := w.assign(want("b", 1, "x")).V4[0]; !hi.Prefix.Contains(got.Address) {
			t.Errorf("cooldown %v: %s", cooldown, got.Address)
		}
		w.check()
	}
}
