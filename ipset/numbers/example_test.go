package numbers_test

import (
	"context"
	"fmt"

	"github.com/ipalloc/ipalloc/ipset"
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
