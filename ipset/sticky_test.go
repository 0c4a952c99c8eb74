package ipset

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestStickyAtRandom mixes sticky assignments of moving handles with everything that moves blocks about: what is given is
// held by who got it, by nobody else, and was free or cooling from its own use before.
func TestStickyAtRandom(t *testing.T) {
	for seed := range seeds.Each(t, 12, 40) {
		r := rand.New(rand.NewPCG(seed, 5))
		p := poolOf("a", "10.0.0.0/28", 30)
		p.Cooldown = time.Duration(seed%2) * 30 * time.Second
		w := newWorld(t, alloc.Config{Strict: seed%4 >= 2}, p, poolOf("b", "2001:db8::/125", 127))
		held := map[netip.Addr]string{}
		for range 120 {
			handle := fmt.Sprint("vm", r.IntN(4))
			a := want(fmt.Sprint("h", r.IntN(3)), 1+r.IntN(3), handle)
			switch r.IntN(6) {
			case 0, 1, 2:
				a.Num6 = r.IntN(3)
				a.Sticky = r.IntN(4) > 0
				got := w.assign(a)
				for _, al := range append(got.V4, got.V6...) {
					if other, taken := held[al.Address]; taken {
						t.Fatalf("seed %d: %s given to %s is held by %s", seed, al.Address, handle, other)
					}
					held[al.Address] = handle
				}
			case 3:
				for _, x := range w.releaseHandle(handle) {
					delete(held, x)
				}
			case 4:
				w.DisownBlocks(bg, alloc.DisownArgs{Owner: a.Owner, OnlyEmpty: r.IntN(2) == 0})
			case 5:
				w.clock.add(time.Duration(r.IntN(90)) * time.Second)
				w.Operator().Sweep(bg, alloc.SweepArgs{IdleAfter: time.Minute, Keep: 1})
			}
			w.check()
			n := 0
			for al, err := range w.Allocations(bg, netip.Prefix{}) {
				if err != nil {
					t.Fatal(err)
				}
				if al.Cooling {
					continue
				}
				if n++; held[al.Address] != al.Handle {
					t.Fatalf("seed %d: %s is held by %q, was given to %q", seed, al.Address, al.Handle, held[al.Address])
				}
			}
			if n != len(held) {
				t.Fatalf("seed %d: %d held, %d given", seed, n, len(held))
			}
		}
	}
}

// TestStickyOfTwoEngines: two engines that serve one sticky handle at the same time leave one entry by age.
func TestStickyOfTwoEngines(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	a := want("h", 1, "vm")
	a.Sticky = true
	w.assign(a)
	w.clock.add(time.Minute)
	r := newRacing(w.store)
	r.before = func([]store.Op) {
		w.assign(a)
		w.clock.add(time.Minute)
	}
	if _, err := w.engine(r).AutoAssign(bg, a); err != nil {
		t.Fatal(err)
	}
	w.check()
	if n := w.records(record.KindAged); n != 1 {
		t.Errorf("%d entries by age", n)
	}
}

// TestStickyTwiceInOneBatch: two calls of one sticky handle that come together leave one record.
func TestStickyTwiceInOneBatch(t *testing.T) {
	w, g, e := newGated(t)
	go e.AutoAssign(bg, want("h", 1, "first"))
	<-g.arrived
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			a := want("h", 1, "vm")
			a.Sticky = true
			if _, err := e.AutoAssign(bg, a); err != nil {
				t.Error(err)
			}
		}()
		waitFor(e, i+1)
	}
	close(g.open)
	wg.Wait()
	w.check()
	if n, aged := w.records(record.KindSticky), w.records(record.KindAged); n != 1 || aged != 1 {
		t.Errorf("%d records, %d entries", n, aged)
	}
}
