package servicealloc

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
)

// An ordered set agrees with a list, and never searches or keeps more than a few places
// beyond its elements: that bounds the work of a step.
func TestOrdered(t *testing.T) {
	for _, size := range []int{1, fewItems, fewItems + 1, 64, 1000} {
		rnd := rand.New(rand.NewPCG(1, uint64(size)))
		var o ordered[int]
		var want []int
		for range 20 * size {
			v := 1 + rnd.IntN(size)
			i := slices.Index(want, v)
			if rnd.IntN(2) == 0 {
				if o.add(v) != (i < 0) {
					t.Fatalf("add(%d) to %v", v, want)
				}
				if i < 0 {
					want = append(want, v)
				}
			} else {
				if rnd.IntN(4) == 0 && len(want) > 0 {
					i, v = 0, want[0]
				}
				if o.remove(v) != (i >= 0) {
					t.Fatalf("remove(%d) from %v", v, want)
				}
				if i >= 0 {
					want = slices.Delete(want, i, i+1)
				}
			}
			if !slices.Equal(o.list(), want) || o.len() != len(want) || o.has(v) != slices.Contains(want, v) || len(want) > 0 && o.items[0] != want[0] {
				t.Fatalf("%v, want %v", o.list(), want)
			}
			if o.at == nil && len(o.items) > fewItems || len(o.items) > 2*len(want)+1 {
				t.Fatalf("%d elements in %d places, map %v", len(want), len(o.items), o.at != nil)
			}
		}
	}
}

// bytesOf returns how many bytes f allocates.
func bytesOf(f func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// Work that is linear allocates twice as much for twice as many: one grant of many
// ports, records of one address, and what is moved out of one large grant.
func TestWorkGrowsWithItsSize(t *testing.T) {
	for name, work := range map[string]func(n int) func(){
		"load of one grant": func(n int) func() {
			r := must(NewRegistry(PortRange{First: 1, Last: 65535}))
			g := Grant{Owner: "x"}
			for i := range n {
				g.Ports = append(g.Ports, Port{Number: uint16(i + 1)})
			}
			return func() { r.Load([]Grant{g}) }
		},
		"load, save and restore of one address": func(n int) func() {
			r := newRegistryT(t, "10.0.0.0/24")
			var list []Grant
			for i := range n {
				list = append(list, Grant{Owner: fmt.Sprint("x", i), Addrs: []netip.Addr{ip("10.0.0.20")}})
			}
			return func() {
				r.Load(list)
				r = must(NewRegistry(testPorts, Restore([]byte(stateOf(t, r)))))
				for i := range n {
					must(r.Release(list[i].Owner, 0))
				}
			}
		},
		"load of many grants of one owner": func(n int) func() {
			r, _ := follower(t, "10.0.0.0/16", testPorts)
			var list []Grant
			for i := range n {
				list = append(list, Grant{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}})
			}
			return func() { r.Load(list) }
		},
		"move out of one grant": func(n int) func() {
			r, _ := follower(t, "10.0.0.0/16", testPorts)
			var all Grant
			for i := range n {
				all.Addrs = append(all.Addrs, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
			}
			r.Load([]Grant{all})
			g, _ := r.Get("")
			return func() {
				from, to := Grant{Generation: g.Generation}, Grant{}
				for i, a := range all.Addrs {
					from.Addrs, to.Owner, to.Addrs = []netip.Addr{a}, fmt.Sprint("svc", i), []netip.Addr{a}
					from.Generation, _, _ = must2(r.Move(from, to))
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			last := 0.0
			for _, n := range []int{1000, 2000, 4000} {
				now := bytesOf(work(n))
				if last != 0 && now > 2.8*last {
					t.Errorf("%d: %.0f bytes, half as many %.0f", n, now, last)
				}
				last = now
			}
		})
	}
}

func must2[A, B any](a A, b B, err error) (A, B, error) {
	if err != nil {
		panic(err)
	}
	return a, b, nil
}
