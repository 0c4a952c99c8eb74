package numbers_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// VLANs of a fabric, one for each tenant.
func Example() {
	ctx, db := context.Background(), store.NewMemory()
	vlans, err := numbers.New(ctx, db, "vlan fabric-1", numbers.Range{First: 100, Last: 4094}, ipset.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tenant := range []string{"tenant-a", "tenant-b", "tenant-a"} {
		n, err := vlans.Assign(ctx, tenant)
		fmt.Println(tenant, n, err)
	}
	// Output:
	// tenant-a 100 <nil>
	// tenant-b 101 <nil>
	// tenant-a 100 <nil>
}

// The engine of its space checks a range and ends it.
func Example_end() {
	ctx, db := context.Background(), store.NewMemory()
	vlans, err := numbers.New(ctx, db, "vlan fabric-1", numbers.Range{First: 100, Last: 4094}, ipset.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := ipset.New(db, ipset.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	in, err := engine.InSpace("vlan fabric-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(vlans.Assign(ctx, "tenant-a"))
	report, err := in.Operator().Check(ctx, nil)
	fmt.Println(report.Allocations, len(report.Problems), err)
	end := func() error {
		if err := in.Operator().ChangePools(ctx, alloc.PoolChanges{Remove: []string{"numbers"}, IfEmpty: true}); err != nil {
			return err
		}
		return engine.Operator().RemoveSpace(ctx, "vlan fabric-1")
	}
	fmt.Println(errors.Is(end(), ipalloc.ErrInUse))
	fmt.Println(vlans.Release(ctx, "tenant-a"))
	fmt.Println(end())
	for name, err := range engine.Operator().Spaces(ctx) {
		fmt.Println(name, err)
	}
	// Output:
	// 100 <nil>
	// 1 0 <nil>
	// true
	// [100] <nil>
	// <nil>
}
