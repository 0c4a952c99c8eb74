package ipset

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// A store that fails while the search claims a block, beside blocks of a former size, is the error of the call, which takes nothing.
func TestFromOnAFailingStore(t *testing.T) {
	for k := 1; ; k++ {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 32))
		w.assign(alloc.AssignArgs{Owner: alloc.HostOwner("b"), Num4: 1, Choose: alloc.From(ip("10.0.0.0"))})
		if err := w.UpdatePool(bg, poolOf("a", "10.0.0.0/24", 25)); err != nil {
			t.Fatal(err)
		}
		f := scripted(w.store, faults.At(k, faults.Fail(errDown)))
		got, err := w.engine(f).AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 1, Choose: alloc.From(ip("10.0.0.0"))})
		if w.check(); f.Counts().Calls() < k {
			if k < 5 || err != nil || got.V4[0].Address != ip("10.0.0.128") {
				t.Errorf("%v, %v, %d calls", got, err, k-1)
			}
			return
		}
		if !errors.Is(err, errDown) || len(w.blocksOf("a")) > 0 {
			t.Errorf("call %d fails: %v, %v", k, got, err)
		}
	}
}

// Under strict affinity others' blocks are passed over, and at the limit a free block is; the shortage says so.
func TestFromKeepsAffinityAndLimits(t *testing.T) {
	w := newWorld(t, alloc.Config{Strict: true, MaxBlocksPerHost: 1}, poolOf("p", "10.0.0.0/28", 30))
	one := func(host, from string) (alloc.Assigned, error) {
		return w.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: 1, Choose: alloc.From(ip(from))})
	}
	for _, c := range []struct{ host, from, want string }{{"a", "10.0.0.1", "10.0.0.1"}, {"b", "10.0.0.0", "10.0.0.4"}, {"b", "10.0.0.0", "10.0.0.5"}} {
		if got, err := one(c.host, c.from); err != nil || got.V4[0].Address != ip(c.want) {
			t.Fatalf("%s from %s: %v, %v", c.host, c.from, got.V4, err)
		}
	}
	got, err := one("a", "10.0.0.4")
	if !errors.Is(err, ipalloc.ErrLimit) || got.Short[0].Reason != alloc.ReasonLimitReached || got.Short[0].Limit.Max != 1 {
		t.Errorf("%+v, %v", got.Short, err)
	}
	// An orphan is adopted, and a block that has been idle for a minute is taken over.
	if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("a")}); err != nil {
		t.Fatal(err)
	}
	if got, err := one("c", "10.0.0.0"); err != nil || got.V4[0].Address != ip("10.0.0.0") {
		t.Errorf("%v, %v", got.V4, err)
	}
	if b, err := w.Operator().BlockOf(bg, ip("10.0.0.0")); err != nil || b.Owner() != alloc.HostOwner("c") {
		t.Errorf("%v, %v", b, err)
	}
}

// As Pool.Order advises: From with the first address of a pool gives the lowest free one of the pool, also where it has grown.
func TestLowestOfAWholePoolThatGrows(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/28", 30))
	rng := rand.New(rand.NewPCG(1, 2))
	var held []netip.Addr // ascending
	for i := range 160 {
		if i == 80 {
			if err := w.UpdatePool(bg, poolOf("p", "10.0.0.0/26", 30)); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(held); rng.IntN(3) == 0 && n > 0 || n == 16 && i < 80 {
			at := rng.IntN(n)
			if _, err := w.ReleaseIPs(bg, alloc.Release{Address: held[at]}); err != nil {
				t.Fatal(err)
			}
			held = slices.Delete(held, at, at+1)
			continue
		}
		at, lowest := 0, ip("10.0.0.0")
		for at < len(held) && held[at] == lowest {
			at, lowest = at+1, lowest.Next()
		}
		owner := alloc.HostOwner([]string{"a", "b"}[i%2])
		got, err := w.AutoAssign(bg, alloc.AssignArgs{Owner: owner, Num4: 1, Choose: alloc.From(ip("10.0.0.0")), Pools: []string{"p"}})
		if err != nil || got.V4[0].Address != lowest {
			t.Fatalf("call %d: %v, %v, want %v", i, got.V4, err, lowest)
		}
		held = slices.Insert(held, at, lowest)
	}
	if len(held) <= 16 {
		t.Errorf("%d held: the part that came later was not used", len(held))
	}
}

// Under strict affinity the reason of a search from an address on follows from the addresses of the blocks that it passes over, not from
// their owner alone.
func TestFromUnderStrictAffinitySaysWhatIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		free, from, reserved string
		why                  alloc.Reason
	}{
		"of another":           {free: "10.0.0.2", from: "10.0.0.1", why: alloc.ReasonForeignLeft},
		"below":                {free: "10.0.0.0", from: "10.0.0.1", why: alloc.ReasonBelowFrom},
		"reserved, of another": {free: "10.0.0.2", from: "10.0.0.0", reserved: "10.0.0.2/32", why: alloc.ReasonReservedLeft},
	} {
		w := newWorld(t, alloc.Config{Strict: true}, poolOf("p", "10.0.0.0/30", 30))
		w.assign(want("g", 4, "held"))
		if _, err := w.ReleaseIPs(bg, alloc.Release{Address: ip(c.free)}); err != nil {
			t.Fatal(err)
		}
		if c.reserved != "" {
			if err := w.Operator().ChangePools(bg, alloc.PoolChanges{Reserve: alloc.Reservations(netipx.RangeOfPrefix(netip.MustParsePrefix(c.reserved)))}); err != nil {
				t.Fatal(err)
			}
		}
		a := want("h", 1, "x")
		a.Choose = alloc.From(ip(c.from))
		if got, err := w.AutoAssign(bg, a); len(got.Short) != 1 || got.Short[0].Reason != c.why {
			t.Errorf("%s: %v, %v, want %s", name, got.Short, err, c.why)
		}
	}
}
