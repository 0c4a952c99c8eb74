package nodeipam_test

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// A dual-stack allocator gives each node a prefix of both families.
func Example() {
	a, err := nodeipam.New(nodeipam.Config{
		Slots: []nodeipam.Slot{
			{Bits: 24, Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}},
			{Bits: 64, Pools: []netip.Prefix{netip.MustParsePrefix("fd00::/48")}},
		},
		Reserved: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/20")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"node-1", "node-2", "node-1"} {
		as, err := a.Allocate(nodeipam.Node{Name: name})
		fmt.Println(name, as.Prefixes, err)
	}
	// Output:
	// node-1 [10.0.16.0/24 fd00::/64] <nil>
	// node-2 [10.0.17.0/24 fd00:0:0:1::/64] <nil>
	// node-1 [10.0.16.0/24 fd00::/64] <nil>
}

// At start-up the records of all nodes are taken as they are. What is wrong with them
// is reported, and what they name is in use.
func ExampleAllocator_Load() {
	a, err := nodeipam.New(nodeipam.Config{Slots: []nodeipam.Slot{
		{Bits: 24, Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, problem := range a.Load([]nodeipam.Node{
		nodeipam.ParseNode("node-1", "10.0.0.0/24"),
		nodeipam.ParseNode("node-2", "10.0.0.0/24"),
		nodeipam.ParseNode("node-3", "10.0.1.0/27"),
		nodeipam.ParseNode("node-4", "10.0.2/24"),
		nodeipam.ParseNode("node-5", "192.0.2.0/24"),
	}) {
		fmt.Println(problem)
	}
	as, _ := a.Allocate(nodeipam.Node{Name: "node-4"})
	fmt.Println(as.Prefixes)
	// Output:
	// nodeipam: record 10.0.0.0/24 for "node-2": Prefixes[0]: overlaps another node's prefix, held by "node-1"
	// nodeipam: record 10.0.1.0/27 for "node-3" in 10.0.0.0/16: Prefixes[0]: not a /24
	// nodeipam: record "10.0.2/24" for "node-4": Prefixes[0]: not a valid address or prefix
	// nodeipam: record 192.0.2.0/24 for "node-5": Prefixes[0]: in no pool of its slot
	// [10.0.2.0/24]
}

// A pool is replaced while nodes hold prefixes of it.
func ExampleAllocator_RemovePool() {
	old, next := netip.MustParsePrefix("10.0.0.0/23"), netip.MustParsePrefix("10.8.0.0/16")
	a, err := nodeipam.New(nodeipam.Config{Slots: []nodeipam.Slot{{Bits: 24, Pools: []netip.Prefix{old}}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = a.Allocate(nodeipam.Node{Name: "node-1"})

	_ = a.AddPool(0, next)
	_ = a.DrainPool(old, true)
	fmt.Println(a.Allocate(nodeipam.Node{Name: "node-2"}))
	err = a.RemovePool(old)
	fmt.Println(err, errors.Is(err, ipalloc.ErrInUse))
	for _, n := range a.Holders(old) {
		fmt.Println(n.Name, n.Prefixes)
	}

	a.Release("node-1")
	fmt.Println(a.RemovePool(old))
	// Output:
	// {[10.8.0.0/24] } <nil>
	// nodeipam: remove pool in 10.0.0.0/23: in use, held by "node-1" true
	// node-1 [10.0.0.0/24]
	// <nil>
}
