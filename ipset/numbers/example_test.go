package numbers_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

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
	fmt.Println(vlans.Owned(ctx, "tenant-b"))
	fmt.Println(vlans.Owner(ctx, 101))
	// Output:
	// tenant-a 100 <nil>
	// tenant-b 101 <nil>
	// tenant-a 100 <nil>
	// [101] <nil>
	// tenant-b <nil>
}

// MAC addresses, as numbers of 48 bits.
func Example_mac() {
	ctx, db := context.Background(), store.NewMemory()
	macs, err := numbers.New(ctx, db, "mac", numbers.Range{First: 0x02_00_00_00_00_01, Last: 0x02_00_00_ff_ff_fe}, ipset.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, vm := range []string{"vm-a", "vm-b"} {
		n, err := macs.Assign(ctx, vm)
		b := binary.BigEndian.AppendUint64(nil, n)
		fmt.Println(vm, net.HardwareAddr(b[2:]), err)
	}
	// Output:
	// vm-a 02:00:00:00:00:01 <nil>
	// vm-b 02:00:00:00:00:02 <nil>
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
