package ipset

import (
	"fmt"
	"net/netip"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
)

// manyPools returns a catalog of n pools of a /24 each in 10.0.0.0/8, and as many reserved addresses.
func manyPools(t testing.TB, n int) *pool.Catalog {
	c := &pool.Catalog{}
	for i := range n {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		c.Pools = append(c.Pools, pool.Pool{Pool: alloc.Pool{Name: fmt.Sprintf("p%05d", i), Prefix: p, BlockBits: 26}})
		c.Reserved = append(c.Reserved, alloc.Reservation{Range: netipx.IPRangeFrom(p.Addr().Next(), p.Addr().Next())})
	}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCatalogIsDecodedOnce: reading does not decode a catalog that has not changed, and a lookup is one round trip.
func TestCatalogIsDecodedOnce(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	w.assign(want("h", 1, "p"))
	s := faults.NewFaulty(w.store)
	e := w.engine(s)
	first, err := e.core.ReadCatalog(bg)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := e.core.ReadCatalog(bg); err != nil || again != first {
		t.Error("decoded again", err)
	}
	s.Reset()
	if _, err := e.Lookup(bg, ip("10.0.0.0")); notFoundIsFine(err) != nil {
		t.Error(err)
	}
	if s.Counts().Calls() != 1 {
		t.Errorf("%d calls", s.Counts().Calls())
	}
	// A change of pools shows at once.
	if err := w.RemovePool(bg, "a"); err != nil {
		t.Fatal(err)
	}
	if err := w.AddPool(bg, poolOf("b", "10.0.0.0/24", 28)); err != nil {
		t.Fatal(err)
	}
	for al, err := range w.Allocations(bg, netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Lookup(bg, al.Address); err != nil || got != al {
			t.Errorf("%+v, %v, want %+v", got, err, al)
		}
	}
}

// TestChoiceLooksAtFewPools: an assignment looks at the pools up to the one that serves it, and not at those behind.
func TestChoiceLooksAtFewPools(t *testing.T) {
	c := manyPools(t, 1000)
	var s pool.Tiers
	if err := s.Choose(c, pool.Choice{Family: 4, Use: alloc.Workload}); err != nil || s.Seen != 1 {
		t.Errorf("%v, looked at %d", err, s.Seen)
	}
	if err := s.Choose(c, pool.Choice{Family: 4, Use: alloc.Workload, Names: []string{"p00900", "p00007", "p00900"}}); err != nil || fmt.Sprint(s.Pools) != "[900 7]" {
		t.Errorf("%v, %v", err, s.Pools)
	}
}

// BenchmarkCatalog prepares a catalog of as many pools as reserved addresses; what it takes a pool must not grow with their number.
func BenchmarkCatalog(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000} {
		c := manyPools(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				if err := c.Clone().Prepare(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/pool")
		})
	}
}
