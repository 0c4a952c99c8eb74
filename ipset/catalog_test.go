package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
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

// TestPoolsAreFoundByAddress compares the search with a look at every pool, at every boundary.
func TestPoolsAreFoundByAddress(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.1.0/24", 26), poolOf("b", "10.0.3.0/25", 26), poolOf("c", "10.0.3.128/25", 26), poolOf("d", "0.0.0.0/8", 26), poolOf("e", "255.0.0.0/8", 26), poolOf("f", "::/120", 124), poolOf("g", "fd00::/120", 124))
	cat, err := w.core.ReadCatalog(bg)
	if err != nil {
		t.Fatal(err)
	}
	var all []netip.Addr
	for _, p := range cat.Pools {
		for _, a := range []netip.Addr{p.Prefix.Addr(), record.LastAddr(p.Prefix)} {
			all = append(all, a, a.Next(), a.Prev())
		}
	}
	for _, a := range append(all, ip("9.9.9.9"), ip("fe80::1")) {
		if !a.IsValid() {
			continue
		}
		want := -1
		for i, p := range cat.Pools {
			if p.Prefix.Contains(a) {
				want = i
			}
		}
		if got := cat.Containing(a); got != want {
			t.Errorf("%s: pool %d, want %d", a, got, want)
		}
	}
}

// TestPoolsNest: pools may lie in one another, with others between them in address order; no two have one prefix.
func TestPoolsNest(t *testing.T) {
	for _, tt := range []struct {
		prefixes []string
		outer    []int // of each pool in address order
		same     bool
	}{
		{[]string{"9.0.0.0/8", "10.0.0.0/8", "11.0.0.0/8"}, []int{-1, -1, -1}, false},
		{[]string{"10.0.0.0/8", "10.255.255.0/24", "11.0.0.0/8"}, []int{-1, 0, -1}, false},
		{[]string{"10.0.0.0/24", "10.0.0.0/24"}, nil, true},
		{[]string{"10.0.0.0/8", "10.0.0.0/25", "10.0.0.0/26", "10.0.0.128/25", "10.0.0.128/25"}, nil, true},
		{[]string{"10.0.0.0/24", "10.0.0.0/25", "10.0.1.0/24"}, []int{-1, 0, -1}, false},
		{[]string{"10.0.0.0/8", "10.0.0.0/25", "10.0.0.0/26", "10.0.0.64/32", "10.0.0.128/25"}, []int{-1, 0, 1, 1, 0}, false},
		{[]string{"0.0.0.0/0", "255.255.255.255/32", "::/0", "ffff::/16"}, []int{-1, 0, -1, 2}, false},
	} {
		c := &pool.Catalog{}
		for i, p := range tt.prefixes {
			c.Pools = append(c.Pools, pool.Pool{Pool: alloc.Pool{Name: fmt.Sprint("p", i), Prefix: netip.MustParsePrefix(p), BlockBits: map[bool]int{true: 128, false: 32}[strings.Contains(p, ":")]}})
		}
		err := c.Prepare()
		same := func(p pool.Pool, outer int) bool { return p.Outer == outer }
		if errors.Is(err, cause.Overlap) != tt.same || !tt.same && !slices.EqualFunc(c.Pools, tt.outer, same) {
			t.Errorf("%v: %+v, %v", tt.prefixes, c.Pools, err)
		}
		if tt.same {
			continue
		}
		for _, i := range c.Places { // the ends of each pool, and what lies before and after
			first, last := c.Pools[i].Prefix.Addr(), record.LastAddr(c.Pools[i].Prefix)
			for _, a := range []netip.Addr{first, last, first.Prev(), last.Next()} {
				if !a.IsValid() {
					continue
				}
				want := -1
				for j, p := range c.Pools {
					if p.Prefix.Contains(a) && (want < 0 || p.Prefix.Bits() > c.Pools[want].Prefix.Bits()) {
						want = j
					}
				}
				if got := c.Containing(a); got != want {
					t.Errorf("%s: pool %d, want %d", a, got, want)
				}
			}
		}
	}
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
