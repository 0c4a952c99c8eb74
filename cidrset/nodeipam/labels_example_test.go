package nodeipam_test

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/selector"
)

// gpuAndDefault returns an allocator with a small pool of large prefixes for
// machines with GPUs, and a default pool.
func gpuAndDefault() *nodeipam.Allocator {
	a, err := nodeipam.New(nodeipam.Config{ByLabels: true,
		Families: []nodeipam.Family{nodeipam.IPv4, nodeipam.IPv6},
		Reserved: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, // the service range
	})
	if err != nil {
		panic(err)
	}
	for _, e := range []nodeipam.Entry{{
		Name:     "default",
		IPv4:     netip.MustParsePrefix("10.0.0.0/8"),
		IPv6:     netip.MustParsePrefix("fd00:10::/96"),
		HostBits: 8,
	}, {
		Name: "gpu",
		IPv4: netip.MustParsePrefix("10.64.0.0/21"),
		IPv6: netip.MustParsePrefix("fd00:64::/96"),
		Selector: selector.Selector{{Labels: []selector.Requirement{
			{Key: "gpus", Op: selector.Gt, Values: []string{"3"}},
		}}},
		MaskIPv4: 22,
	}} {
		if err := a.AddEntry(e); err != nil {
			panic(err)
		}
	}
	return a
}

// An entry is chosen by the labels of the node.
func Example_byLabels() {
	a := gpuAndDefault()
	for _, n := range []nodeipam.Node{
		{Name: "n1"},
		{Name: "n2", Labels: map[string]string{"gpus": "8"}},
		{Name: "n3", Labels: map[string]string{"gpus": "1"}},
	} {
		as, err := a.Allocate(n)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(n.Name, as.Entry, as.Prefixes)
	}
	// Output:
	// n1 default [10.1.0.0/24 fd00:10::/120]
	// n2 gpu [10.64.0.0/22 fd00:64::/118]
	// n3 default [10.1.1.0/24 fd00:10::100/120]
}

func ExampleAllocator_Explain() {
	a := gpuAndDefault()
	for _, name := range []string{"n1", "n2"} {
		if _, err := a.Allocate(nodeipam.Node{Name: name, Labels: map[string]string{"gpus": "8"}}); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Print(a.Explain(nodeipam.Node{Name: "n3", Labels: map[string]string{"gpus": "4"}}))
	fmt.Print(a.Explain(nodeipam.Node{Name: "n4"}))
	// Output:
	// n3 {gpus=4} gets default
	//   1  gpu      full         no free /22 in 10.64.0.0/21; the best match
	//   2  default  chosen       has no selector; gpu has one
	// n4 gets default
	//   1  default  chosen       the best match
	//   -  gpu      no match     gpus > 3, but there is no gpus
}

// After a restart the allocator is built from what was recorded with each node.
func ExampleAllocator_Load_byLabels() {
	a := gpuAndDefault()
	problems := a.Load([]nodeipam.Node{
		{Name: "n1", Entry: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.64.1.0/24"), netip.MustParsePrefix("fd00:10::/120")}},
		{Name: "n2", Entry: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.64.1.0/24"), netip.MustParsePrefix("fd00:10::100/120")}},
		{Name: "n3", Entry: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.7.0/24"), netip.MustParsePrefix("fd00:10::200/120")}},
	})
	for _, p := range problems {
		fmt.Println(p)
	}
	// n1 and n2 are in the first /22 of the pool for GPUs.
	as, err := a.Allocate(nodeipam.Node{Name: "n4", Labels: map[string]string{"gpus": "8"}})
	fmt.Println(as.Entry, as.Prefixes, err)
	// Output:
	// nodeipam: record 10.64.1.0/24 for "n2" in "default": Prefixes[0]: overlaps another node's prefix, held by "n1"
	// nodeipam: record 10.0.7.0/24 for "n3" in "default": Prefixes[0]: overlaps a reservation
	// gpu [10.64.4.0/22 fd00:64::/118] <nil>
}

// A deleted entry waits for its last node.
func ExampleAllocator_DeleteEntry() {
	a := gpuAndDefault()
	as, err := a.Allocate(nodeipam.Node{Name: "n1", Labels: map[string]string{"gpus": "8"}})
	fmt.Println(as.Entry, err)
	gone, err := a.DeleteEntry("gpu")
	fmt.Println(gone, err)
	as, err = a.Allocate(nodeipam.Node{Name: "n2", Labels: map[string]string{"gpus": "8"}})
	fmt.Println(as.Entry, err)
	a.Release("n1")
	for e := range a.Entries() {
		fmt.Println(e.Name, e.Nodes)
	}
	// Output:
	// gpu <nil>
	// false <nil>
	// default <nil>
	// default 1
}

// The nodes, with what each holds, are what Load needs to build the same state.
func ExampleAllocator_All() {
	a := gpuAndDefault()
	for _, name := range []string{"n2", "n1"} {
		if _, err := a.Allocate(nodeipam.Node{Name: name}); err != nil {
			fmt.Println(err)
			return
		}
	}
	for n := range a.All() {
		fmt.Println(n.Name, n.Entry, n.Prefixes)
	}
	b := gpuAndDefault()
	fmt.Println(len(b.Load(slices.Collect(a.All()))))
	// Output:
	// n1 default [10.1.1.0/24 fd00:10::100/120]
	// n2 default [10.1.0.0/24 fd00:10::/120]
	// 0
}
