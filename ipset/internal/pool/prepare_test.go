package pool

import (
	"fmt"
	"net/netip"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/alloc"
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
