package ipset_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A pool inside of another keeps a part of it for a group. The outer pool hands out the rest.
func ExamplePool_nested() {
	ctx := context.Background()
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	must(err)
	must(e.AddPool(ctx, alloc.Pool{Name: "vpn", Prefix: netip.MustParsePrefix("100.64.0.0/10"), BlockBits: 22}))
	must(e.AddPool(ctx, alloc.Pool{Name: "engineering", Prefix: netip.MustParsePrefix("100.64.8.0/22"), BlockBits: 32, Manual: true}))
	owner := alloc.VirtualOwner("control")
	for _, pool := range []string{"engineering", "vpn"} {
		got, err := e.AutoAssign(ctx, alloc.AssignArgs{Owner: owner, Num4: 1, Pools: []string{pool}})
		must(err)
		fmt.Println(pool, netip.MustParsePrefix("100.64.8.0/22").Contains(got.V4[0].Address))
	}
	use, err := e.Utilization(ctx)
	must(err)
	for _, u := range use {
		fmt.Println(u.Pool, u.Prefix, "has", u.Capacity, "addresses without", u.Nested)
	}
	// A part of a block would leave the outer pool a broken one.
	err = e.AddPool(ctx, alloc.Pool{Name: "sales", Prefix: netip.MustParsePrefix("100.64.12.0/24"), BlockBits: 32})
	fmt.Println(errors.Is(err, ipalloc.ErrInvalid), err)
	// Output:
	// engineering true
	// vpn false
	// engineering 100.64.8.0/22 has 1024 addresses without []
	// vpn 100.64.0.0/10 has 4193280 addresses without [100.64.8.0/22]
	// true ipset: add pool 100.64.12.0/24 in "sales": Prefix: a nested pool must be made of whole blocks (/22) of the pool around it at 100.64.0.0/10, held by "vpn"
}

// Random spreads addresses, so that one that was released is not the next one handed out, and neither is its neighbour. The same calls
// give the same addresses again, because the seed is named.
func ExamplePool_order() {
	ctx := context.Background()
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	must(err)
	for _, o := range []alloc.Order{alloc.FIFO, alloc.Lowest, alloc.Random} {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(o), 0}), 24)
		must(e.AddPool(ctx, alloc.Pool{Name: o.String(), Prefix: prefix, BlockBits: 24, Order: o, Seed: 1}))
		a := alloc.AssignArgs{Owner: alloc.HostOwner("router"), Num4: 3, Pools: []string{o.String()}}
		first, err := e.AutoAssign(ctx, a)
		must(err)
		_, err = e.ReleaseIPs(ctx, alloc.Release{Address: first.V4[1].Address})
		must(err)
		a.Num4 = 1
		next, err := e.AutoAssign(ctx, a)
		must(err)
		fmt.Println(o, first.V4[0].Address, first.V4[1].Address, first.V4[2].Address, "then", next.V4[0].Address)
	}
	// Output:
	// fifo 10.0.0.0 10.0.0.1 10.0.0.2 then 10.0.0.3
	// lowest 10.0.1.0 10.0.1.1 10.0.1.2 then 10.0.1.1
	// random 10.0.2.224 10.0.2.30 10.0.2.223 then 10.0.2.108
}

// Aligned gives a prefix out of a block, such as a /29 to a virtual machine with containers of its own.
func ExampleAligned() {
	ctx := context.Background()
	e := newEngine("10.0.0.0/24", 26)
	_, err := e.Assign(ctx, alloc.HostOwner("node-a"), "pod-1")
	must(err)
	a := alloc.AssignArgs{Owner: alloc.HostOwner("node-a"), Num4: 8, Choose: alloc.Aligned(), Handle: "vm-1"}
	got, err := e.AutoAssign(ctx, a)
	must(err)
	fmt.Println(netip.PrefixFrom(got.V4[0].Address, 29), "of", got.V4[0].Block)
	released, err := e.ReleaseByHandle(ctx, "vm-1")
	fmt.Println(len(released), "released", err)
	a.Num4, a.Choose = 65, alloc.Contiguous()
	_, err = e.AutoAssign(ctx, a)
	fmt.Println(errors.Is(err, ipalloc.ErrFull), err)
	// Output:
	// 10.0.0.200/29 of 10.0.0.192/26
	// 8 released <nil>
	// true ipset: auto assign handle "vm-1" for "host:node-a" in "pods": not enough addresses: blocks too small
}

// A cloud spreads machines over its subnets: the one with the most room first. The counts may be some seconds old, because the order is
// a preference, and the engine goes on to the next subnet if the first is full. A machine that has an address keeps it.
func ExampleEngine_Utilization_mostRoomFirst() {
	ctx := context.Background()
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	must(err)
	for _, subnet := range []string{"10.0.0.0/29", "10.0.1.0/28"} {
		must(e.AddPool(ctx, alloc.Pool{Name: subnet, Prefix: netip.MustParsePrefix(subnet), BlockBits: 32}))
	}
	mostRoomFirst := func() (pools []string) {
		use, err := e.Utilization(ctx)
		must(err)
		slices.SortStableFunc(use, func(a, b alloc.Utilization) int { return b.Available.Cmp(a.Available) })
		for _, u := range use {
			pools = append(pools, u.Pool)
		}
		return pools
	}
	counts := make(map[netip.Prefix]int)
	for i := range 14 {
		got, err := e.Assign(ctx, alloc.HostOwner(fmt.Sprint("vm-", i)), fmt.Sprint("eth-", i), mostRoomFirst()...)
		must(err)
		counts[netip.PrefixFrom(got.Address, 24).Masked()]++
	}
	fmt.Println(counts)
	// Output:
	// map[10.0.0.0/24:3 10.0.1.0/24:11]
}
