package nodeipam_test

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

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
	fmt.Println(a.Allocate("node-1"))
	fmt.Println(a.Allocate("node-2"))
	fmt.Println(a.Allocate("node-1")) // the same again
	a.Release("node-1")
	for name, prefixes := range a.Owners() {
		fmt.Println(name, prefixes)
	}
	// Output:
	// [10.0.16.0/24 fd00::/64] <nil>
	// [10.0.17.0/24 fd00:0:0:1::/64] <nil>
	// [10.0.16.0/24 fd00::/64] <nil>
	// node-2 [10.0.17.0/24 fd00:0:0:1::/64]
}

// At start-up the records of all nodes are taken as they are. What is wrong with
// them is a message, and what they name is in use.
func ExampleAllocator_Load() {
	a, _ := nodeipam.New(nodeipam.Config{Slots: []nodeipam.Slot{
		{Bits: 24, Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}},
	}})
	for _, problem := range a.Load([]nodeipam.Node{
		nodeipam.ParseNode("node-1", "10.0.0.0/24"),
		nodeipam.ParseNode("node-2", "10.0.0.0/24"),
		nodeipam.ParseNode("node-3", "10.0.1.0/27"),
		nodeipam.ParseNode("node-4", "10.0.2/24"),
		nodeipam.ParseNode("node-5", "192.0.2.0/24"),
	}) {
		fmt.Println(problem, errors.Is(problem, nodeipam.ErrDuplicate))
	}
	fmt.Println(a.Allocate("node-4"))
	// Output:
	// nodeipam: load node-2 slot 0 10.0.0.0/24: held by another owner: node-1 true
	// nodeipam: load node-3 slot 0 10.0.1.0/27 in 10.0.0.0/16: not of the size of a child: children are /24 false
	// nodeipam: load node-4 slot 0 "10.0.2/24": bad prefix: not a valid address or prefix false
	// nodeipam: load node-5 slot 0 192.0.2.0/24: not in the pool false
	// [10.0.2.0/24] <nil>
}

// A pool is replaced while nodes hold prefixes of it.
func ExampleAllocator_RemovePool() {
	old, next := netip.MustParsePrefix("10.0.0.0/23"), netip.MustParsePrefix("10.8.0.0/16")
	a, _ := nodeipam.New(nodeipam.Config{Slots: []nodeipam.Slot{{Bits: 24, Pools: []netip.Prefix{old}}}})
	_, _ = a.Allocate("node-1")

	_ = a.AddPool(0, next)
	_ = a.DrainPool(old)
	fmt.Println(a.Allocate("node-2"))
	fmt.Println(a.RemovePool(old))

	a.Release("node-1")
	fmt.Println(a.RemovePool(old))
	// Output:
	// [10.8.0.0/24] <nil>
	// [{node-1 10.0.0.0/24}] nodeipam: remove pool slot 0 in 10.0.0.0/23: in use: 1 prefixes, the first: node-1
	// [] <nil>
}
