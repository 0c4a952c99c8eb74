package ipset

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

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
