package ipset_test

import (
	"context"
	"fmt"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// What if node-a went away and pod-1 came back on node-b? The calls answer, and the store stays as it is.
func ExampleEngine_DryRun() {
	ctx := context.Background()
	e := newEngine("10.0.0.0/24", 29)
	_, err := e.Assign(ctx, alloc.HostOwner("node-a"), "pod-1")
	must(err)

	plan := e.DryRun()
	released, blocks, err := plan.RemoveHost(ctx, alloc.HostOwner("node-a"))
	must(err)
	fmt.Println("released", released, "of", blocks)
	a, err := plan.Assign(ctx, alloc.HostOwner("node-b"), "pod-1")
	must(err)
	fmt.Println("pod-1 would have", a.Address)

	held, err := e.IPsByHandle(ctx, "pod-1")
	must(err)
	fmt.Println("pod-1 has", held[0].Address)
	// Output:
	// released [10.0.0.152] of [10.0.0.152/29]
	// pod-1 would have 10.0.0.248
	// pod-1 has 10.0.0.152
}
