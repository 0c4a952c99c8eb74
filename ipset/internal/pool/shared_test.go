package pool

import (
	"net/netip"
	"sync"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// A catalog is written while others read it: the race detector sees if that changes it.
func TestCatalogIsWrittenBesideReaders(t *testing.T) {
	p := netip.MustParsePrefix("10.0.0.0/24")
	c := &Catalog{Pools: []Pool{{Pool: alloc.Pool{Name: "p", Prefix: p, BlockBits: 26, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(p)}}}}}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 2 {
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := c.Encode(); err != nil || c.Pools[0].Prefix != p || c.Pools[0].Disabled || c.Pools[0].Ranges[0] != netipx.RangeOfPrefix(p) {
				t.Error(c.Pools, err)
			}
		}()
	}
	all.Wait()
}
