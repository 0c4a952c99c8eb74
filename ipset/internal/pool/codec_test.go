package pool

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/selector"
)

// TestDamagedSelector: a selector that cannot be read is an error, because none would select every node.
func TestDamagedSelector(t *testing.T) {
	c := &Catalog{}
	c.Pools = append(c.Pools, Pool{Pool: alloc.Pool{
		Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 26,
		Nodes: selector.Selector{{Labels: []selector.Requirement{{Key: "zone", Op: selector.In, Values: []string{"west"}}}}},
	}})
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	whole, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(whole, `"west"`, `xwest"`, 1)
	if damaged == whole {
		t.Fatalf("no selector in %q", whole)
	}
	if got, err := DecodeCatalog(damaged); err == nil {
		t.Errorf("read as %+v", got.Pools[0].Nodes)
	}
}
