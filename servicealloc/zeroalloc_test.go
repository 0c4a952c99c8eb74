package servicealloc

import (
	"net/netip"
	"testing"
)

// The hot paths do not allocate.
func TestZeroAllocations(t *testing.T) {
	for _, p := range []string{"10.0.0.0/16", "10.0.0.0/12", "fd00::/108", "fd00::/64"} {
		for _, opts := range [][]Option{nil, {LowestFirst()}, {StaticBand(0)}, {StaticBand(4, netip.PrefixFrom(pfx(p).Addr(), pfx(p).Bits()+4))}} {
			r := newRangeT(t, p, opts...)
			for range 5000 {
				r.AllocateNext()
			}
			named := pfx(p).Addr().Next().Next()
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
				r.Lookup(named)
				r.Stats()
				r.DryRun(netip.Addr{})
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
		p.AllocateNext()
	}
	zeroAllocs(t, "ports", func() {
		n, _, _ := p.AllocateNext()
		p.Release(n)
		p.Stats()
		p.Lookup(30000)
		p.DryRun(0)
	})
	tiny := newPortsT(t, 1, 1)
	tiny.AllocateNext()
	zeroAllocs(t, "full ports", func() { tiny.AllocateNext() })
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
