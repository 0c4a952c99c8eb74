package servicealloc

import (
	"net/netip"
	"sync"
	"testing"
)

// N goroutines drain a /24 and get 254 different addresses. CS9's rule for SA3
func TestConcurrentDrain(t *testing.T) {
	r := newRangeT(t, "10.0.0.0/24")
	p := newPortsT(t, 30000, 30253)
	rs := newRangesT(t)
	wantErr(t, rs.Add("a", pfx("10.0.0.0/25")), nil)
	wantErr(t, rs.Add("b", pfx("10.0.0.128/25")), nil)
	g := newRegistryT(t, "10.0.0.0/24", "fd00::/64")
	var mu sync.Mutex
	seen := map[any]int{}
	note := func(x any) {
		mu.Lock()
		seen[x]++
		mu.Unlock()
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				a, _, err := r.AllocateNext()
				if err != nil {
					break
				}
				note([2]any{"range", a})
			}
			for {
				n, _, err := p.AllocateNext(UDP)
				if err != nil {
					break
				}
				note([2]any{"port", n})
			}
			for {
				a, _, err := rs.AllocateNext(IPv4)
				if err != nil {
					break
				}
				note([2]any{"ranges", a})
			}
			for i := 0; ; i++ {
				got, err := g.Allocate(string(rune('a'+worker))+string(rune('a'+i)), Request{Addrs: anyBoth})
				if err != nil {
					break
				}
				note([2]any{"registry", got.Addrs[0]})
			}
		}()
	}
	wg.Wait()
	count := map[any]int{}
	for x, n := range seen {
		if n != 1 {
			t.Errorf("%v %d times", x, n)
		}
		count[x.([2]any)[0]]++
	}
	if count["range"] != 254 || count["port"] != 254 || count["ranges"] != 252 || count["registry"] != 254 {
		t.Error(count)
	}
	check(t, r, p, rs, g)
}

// Everything at once, for the race detector.
func TestConcurrentMix(t *testing.T) {
	g := newRegistryT(t, "10.0.0.0/24", "fd00::/60", OnChange(func(Change) {}))
	r := newRangeT(t, "fd00::/62")
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			me := string(rune('a' + worker))
			for i := range 60 {
				got, err := g.Allocate(me, Request{Addrs: anyBoth, Ports: []Port{{TCP, 0}}})
				if err == nil {
					g.Replace(me, got.Generation, Request{Addrs: anyBoth[:1]})
				}
				g.OwnerOf(got.Addrs[0])
				for range g.All() {
					break
				}
				g.State()
				g.Stats(IPv6)
				g.Release(me)
				name := me + "range"
				if g.AddRange(name, pfx("10.1.0.0/24")) == nil && i%2 == 0 {
					g.DrainRange(name)
				}
				g.RemoveRange(name)
				a, _, _ := r.AllocateNext()
				r.Band(a)
				r.Allocate(ip("fd00:0:0:3::1"))
				r.Release(ip("fd00:0:0:3::1"))
				for range r.All() {
					break
				}
				r.Import(RangeAllocation{"fd00::/62", []byte{byte(i)}})
				r.MarshalBinary()
			}
		}()
	}
	wg.Wait()
	check(t, g, r)
}

// The hot paths do not allocate. SA3, SA5
func TestZeroAllocations(t *testing.T) {
	for _, p := range []string{"10.0.0.0/16", "10.0.0.0/12", "fd00::/108", "fd00::/64"} {
		for _, opts := range [][]Option{nil, {LowestFirst()}, {StaticSize(0)}} {
			r := newRangeT(t, p, opts...)
			for range 5000 {
				r.AllocateNext()
			}
			named := r.p.Addr().Next().Next()
			batch := make([]netip.Addr, 40)
			zeroAllocs(t, p+" AllocateNext+Release", func() {
				a, _, _ := r.AllocateNext()
				r.Release(a)
			})
			zeroAllocs(t, p+" Allocate+Release", func() {
				r.Release(named)
				_ = r.Allocate(named)
			})
			zeroAllocs(t, p+" AllocateN", func() {
				_, _ = r.AllocateN(batch)
				for _, a := range batch {
					r.Release(a)
				}
			})
			zeroAllocs(t, p+" reads", func() {
				r.Has(named)
				r.Stats()
				r.DryRunNext()
				r.Band(named)
			})
		}
	}
	full := newRangeT(t, "10.0.0.0/28")
	for range 14 {
		full.AllocateNext()
	}
	zeroAllocs(t, "full", func() { full.AllocateNext() })
	p := newPortsT(t, 30000, 32767)
	for range 1000 {
		p.AllocateNext(TCP)
	}
	numbers := make([]uint16, 20)
	zeroAllocs(t, "ports", func() {
		n, _, _ := p.AllocateNext(TCP)
		p.Release(Port{TCP, n})
		p.AllocateN(UDP, numbers)
		for _, n := range numbers {
			p.Release(Port{UDP, n})
		}
		p.Stats(TCP)
		p.Has(Port{TCP, 30000})
	})
	rs := newRangesT(t)
	wantErr(t, rs.Add("a", pfx("10.0.0.0/16"), pfx("fd00::/64")), nil)
	wantErr(t, rs.Add("b", pfx("10.0.4.0/24"), pfx("fd01::/64")), nil)
	for range 1000 {
		rs.AllocateNext(IPv4)
		rs.AllocateNext(IPv6)
	}
	zeroAllocs(t, "ranges", func() {
		a, _, _ := rs.AllocateNext(IPv4)
		b, _, _ := rs.AllocateNext(IPv6)
		rs.Release(a)
		rs.Release(b)
		rs.Stats(IPv4)
	})
}

func zeroAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	for range 100 { // pages that are touched for the first time
		f()
	}
	if n := testing.AllocsPerRun(1000, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}
