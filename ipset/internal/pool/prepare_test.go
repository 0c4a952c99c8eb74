package pool

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"go4.org/netipx"
)

// TestDecodingAllocatesNothingForEachPool: a start beside thousands of pools is dominated by their decoding, which makes a few large
// slices and nothing for a plain pool or a reserved range.
func TestDecodingAllocatesNothingForEachPool(t *testing.T) {
	c := &Catalog{}
	for i := range 2000 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		c.Pools = append(c.Pools, Pool{Pool: alloc.Pool{Name: fmt.Sprintf("p%05d", i), Prefix: p, BlockBits: 26}})
		c.Reserved = append(c.Reserved, alloc.Reservation{Range: netipx.IPRangeFrom(p.Addr().Next(), p.Addr().Next())})
	}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	s, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() { _, err = DecodeCatalog(s) }); err != nil || n > 50 {
		t.Errorf("%v allocations for 2,000 pools, at most 50; %v", n, err)
	}
}

// TestAvoidedByDefinition compares what automatic assignment may not take of each pool with the definition, address by address:
// nested pools, ranges, and reservations in no order that overlap each other and the ends of pools.
func TestAvoidedByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	at := func(x int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(x >> 8), byte(x)}) }
	span := func(lo, n int) netipx.IPRange {
		from := lo + r.IntN(n)
		return netipx.IPRangeFrom(at(from), at(min(from+r.IntN(n), lo+n-1)))
	}
	for round := range 300 {
		c := &Catalog{}
		for i, p := range []struct{ lo, bits int }{{0, 24}, {64, 26}, {64, 28}, {256, 25}, {384, 26}, {512, 24}} {
			if r.IntN(3) == 0 {
				continue
			}
			n := 1 << (32 - p.bits)
			pool := Pool{Pool: alloc.Pool{Name: fmt.Sprint("p", (i+round)%6), Prefix: netip.PrefixFrom(at(p.lo), p.bits), BlockBits: 28, Priority: r.IntN(2)}}
			pool.Subnet = r.IntN(4) == 0
			for range max(0, r.IntN(4)-1) {
				pool.Ranges = append(pool.Ranges, span(p.lo, n))
			}
			c.Pools = append(c.Pools, pool)
		}
		for range r.IntN(5) {
			c.Reserved = append(c.Reserved, alloc.Reservation{Range: span(0, 768)})
		}
		if err := c.Prepare(); err != nil {
			t.Fatal(err)
		}
		kept, err := alloc.ReservedSet(c.Reserved)
		if err != nil {
			t.Fatal(err)
		}
		has := func(rs []netipx.IPRange, a netip.Addr) bool {
			return slices.ContainsFunc(rs, func(x netipx.IPRange) bool { return x.Contains(a) })
		}
		for i, p := range c.Pools {
			ends := netipx.RangeOfPrefix(p.Prefix)
			for a := ends.From(); ends.Contains(a); a = a.Next() {
				want := kept.Contains(a) || len(p.Ranges) > 0 && !has(p.Ranges, a) || p.Subnet && (a == ends.From() || a == ends.To())
				if c.Containing(a) == i && has(c.Pools[i].Avoid, a) != want {
					t.Fatalf("round %d: %s of %+v, reserved %v: avoided %v, want %v", round, a, p, c.Reserved, !want, want)
				}
			}
			if k := c.ByName(p.Name); k != i {
				t.Fatalf("round %d: pool %s found at %d, want %d", round, p.Name, k, i)
			}
		}
		if c.ByName("q") != -1 || c.ByName("") != -1 {
			t.Fatal("found a pool that does not exist")
		}
	}
}
