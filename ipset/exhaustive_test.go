package ipset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// TestEngineExhaustively runs every sequence of four operations of two hosts on a pool of two blocks of two addresses.
func TestEngineExhaustively(t *testing.T) {
	const ops, depth = 9, 4
	total := 1
	for range depth {
		total *= ops
	}
	if testing.Short() {
		total /= ops
	}
	for _, strict := range []bool{false, true} {
		for n := range total {
			w := newWorld(t, alloc.Config{Strict: strict}, poolOf("a", "10.0.0.0/30", 31))
			for k := n; k > 0; k /= ops {
				switch op := k % ops; op {
				case 0, 1:
					w.assign(want(fmt.Sprint("h", op), 1, "p"))
				case 2, 3:
					w.assign(want(fmt.Sprint("h", op-2), 3, "q"))
				case 4:
					w.ReleaseIPs(bg, alloc.Release{Address: ip("10.0.0.1")}, alloc.Release{Address: ip("10.0.0.2")})
				case 5:
					w.releaseHandle("p")
				case 6, 7:
					w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner(fmt.Sprint("h", op-6)), OnlyEmpty: k%2 == 0})
				case 8:
					w.clock.add(time.Minute)
				}
			}
		}
	}
}

func TestStickyTakesBackItsCoolingAddress(t *testing.T) {
	p := poolOf("a", "10.0.0.0/28", 28)
	p.Cooldown = time.Hour
	w := newWorld(t, alloc.Config{}, p)
	a := want("h", 1, "vm")
	a.Sticky = true
	first := w.assign(a).V4[0].Address
	w.releaseHandle("vm")
	if got := w.assign(want("h", 1, "other")).V4[0].Address; got == first {
		t.Errorf("%s was cooling", got)
	}
	if got := w.assign(a).V4[0].Address; got != first {
		t.Errorf("got %s, had %s", got, first)
	}
}

// TestDrainedSizesAreForgotten: a block size that no block has any more costs no look at the store.
func TestDrainedSizesAreForgotten(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 28))
	w.assign(want("h", 1, "p"))
	draining := func(bits int) []int {
		t.Helper()
		if err := w.UpdatePool(bg, poolOf("a", "10.0.0.0/26", bits)); err != nil {
			t.Fatal(err)
		}
		ps, _ := w.Pools(bg)
		return ps[0].Draining
	}
	if d := draining(30); !slices.Equal(d, []int{28}) {
		t.Errorf("draining %v", d)
	}
	if d := draining(29); !slices.Equal(d, []int{28, 30}) {
		t.Errorf("draining %v", d)
	}
	w.releaseHandle("p")
	w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h"), OnlyEmpty: true})
	if d := draining(29); len(d) != 0 {
		t.Errorf("draining %v", d)
	}
}
