package prefixes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A tree of three levels: a region from the company's block, a cluster from the region, a
// node from the cluster.
func Example() {
	ctx := context.Background()
	a, err := prefixes.New(store.NewMemory(), prefixes.Options{})
	if err != nil {
		panic(err)
	}
	block := netip.MustParsePrefix("10.0.0.0/8")
	if err := a.AddPool(ctx, prefixes.Pool{Prefix: block, Sizes: prefixes.Sizes{Shortest: 12, Longest: 16}}); err != nil {
		panic(err)
	}
	assign := func(pool netip.Prefix, owner string, bits int, children prefixes.Sizes) netip.Prefix {
		h, err := a.Assign(ctx, prefixes.Request{Pool: pool, Owner: owner, Bits: bits, Children: children})
		if err != nil {
			panic(err)
		}
		return h.Prefix
	}
	region := assign(block, "eu-west", 14, prefixes.Sizes{Shortest: 18, Longest: 20})
	cluster := assign(region, "eu-west/a", 20, prefixes.Sizes{Shortest: 24, Longest: 26})
	for range 2 { // the second time it returns the same prefix
		fmt.Println(assign(cluster, "eu-west/a/node-1", 24, prefixes.Sizes{}))
	}
	path, err := a.Path(ctx, netip.MustParsePrefix("10.0.0.77/32"))
	if err != nil {
		panic(err)
	}
	for _, h := range path {
		fmt.Println(h.Level, h.Prefix, h.Owner)
	}
	err = a.Release(ctx, region, "eu-west")
	fmt.Println(errors.Is(err, ipalloc.ErrInUse), err)
	// Output:
	// 10.0.0.0/24
	// 10.0.0.0/24
	// 1 10.0.0.0/14 eu-west
	// 2 10.0.0.0/20 eu-west/a
	// 3 10.0.0.0/24 eu-west/a/node-1
	// true prefixes: release 10.0.0.0/14 for "eu-west": prefixes are held from it at 10.0.0.0/20, held by "eu-west/a"
}

// Fits answers whether a prefix of a length is free, and Utilization how many are.
func ExampleAllocator_Fits() {
	ctx := context.Background()
	a, err := prefixes.New(store.NewMemory(), prefixes.Options{})
	if err != nil {
		panic(err)
	}
	block := netip.MustParsePrefix("10.0.0.0/12")
	if err := a.AddPool(ctx, prefixes.Pool{Prefix: block, Sizes: prefixes.Sizes{Shortest: 14, Longest: 24}}); err != nil {
		panic(err)
	}
	for i, bits := range []int{14, 15, 16, 14} {
		if _, err := a.Allocate(ctx, prefixes.Request{Pool: block, Owner: fmt.Sprint("team-", i), Bits: bits}); err != nil {
			panic(err)
		}
	}
	for _, bits := range []int{14, 24} {
		fmt.Println(a.Fits(ctx, block, bits))
	}
	if err := a.Release(ctx, netip.MustParsePrefix("10.0.0.0/14"), "team-0"); err != nil {
		panic(err)
	}
	fmt.Println(a.Fits(ctx, block, 14))
	u, err := a.Utilization(ctx, block)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.2f held, largest free /%d, %d /24 fit\n", u.Ratio(), u.LargestFree(), u.Room(24))
	// Output:
	// 10.12.0.0/14 <nil>
	// 10.7.0.0/24 <nil>
	// 10.0.0.0/14 <nil>
	// 0.44 held, largest free /14, 2304 /24 fit
}

// Transfer gives a prefix to another owner if the expected one still holds it.
func ExampleAllocator_Transfer() {
	ctx := context.Background()
	a, err := prefixes.New(store.NewMemory(), prefixes.Options{})
	if err != nil {
		panic(err)
	}
	block := netip.MustParsePrefix("2001:db8::/32")
	if err := a.AddPool(ctx, prefixes.Pool{Prefix: block, Sizes: prefixes.Sizes{Shortest: 48, Longest: 64}}); err != nil {
		panic(err)
	}
	h, err := a.Assign(ctx, prefixes.Request{Pool: block, Owner: "tenant-a", Bits: 56})
	if err != nil {
		panic(err)
	}
	for range 2 {
		h, err := a.Transfer(ctx, h.Prefix, "tenant-a", "tenant-b")
		fmt.Println(h.Owner, err)
	}
	// Output:
	// tenant-b <nil>
	//  prefixes: transfer 2001:db8::/56 for "tenant-a": not held, held by "tenant-b"
}

// A router leases each client a prefix, as in DHCPv6 prefix delegation. The owner is the client's DUID and IAID. Renew moves the end
// of the lease; after the end another client gets the prefix, whether or not Sweep has deleted the record.
func ExampleAllocator_Renew() {
	ctx := context.Background()
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	a, err := prefixes.New(store.NewMemory(), prefixes.Options{Now: func() time.Time { return now }})
	if err != nil {
		panic(err)
	}
	net := netip.MustParsePrefix("2001:db8::/40")
	if err := a.AddPool(ctx, prefixes.Pool{Prefix: net, Sizes: prefixes.Sizes{Shortest: 48, Longest: 64}}); err != nil {
		panic(err)
	}
	request := prefixes.Request{Pool: net, Owner: "00030001aabbccddeeff/0001", Bits: 56, TTL: time.Hour}
	lease, err := a.Assign(ctx, request)
	fmt.Println(lease.Prefix, lease.Until.Format(time.TimeOnly), err)
	now = now.Add(30 * time.Minute)
	lease, err = a.Renew(ctx, lease.Prefix, lease.Owner, prefixes.RenewArgs{TTL: time.Hour, WithinRules: true})
	fmt.Println(lease.Prefix, lease.Until.Format(time.TimeOnly), err)
	now = now.Add(2 * time.Hour)
	_, err = a.Renew(ctx, lease.Prefix, lease.Owner, prefixes.RenewArgs{TTL: time.Hour, WithinRules: true})
	fmt.Println(errors.Is(err, ipalloc.ErrNotHeld))
	ended, err := a.Sweep(ctx)
	fmt.Println(len(ended), ended[0].Prefix, err)
	request.Owner = "00030001112233445566/0001"
	lease, err = a.Assign(ctx, request)
	fmt.Println(lease.Prefix, lease.Owner, err)
	// Output:
	// 2001:db8::/56 11:00:00 <nil>
	// 2001:db8::/56 11:30:00 <nil>
	// true
	// 1 2001:db8::/56 <nil>
	// 2001:db8::/56 00030001112233445566/0001 <nil>
}

// A tenant that leaves keeps its prefix for a day: no other tenant gets it, and if the tenant comes back, it gets the same prefix.
func ExampleAllocator_Renew_cooldown() {
	ctx := context.Background()
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	a, err := prefixes.New(store.NewMemory(), prefixes.Options{Now: func() time.Time { return now }})
	if err != nil {
		panic(err)
	}
	net := netip.MustParsePrefix("2001:db8::/48")
	if err := a.AddPool(ctx, prefixes.Pool{Prefix: net, Sizes: prefixes.Sizes{Shortest: 56, Longest: 56}}); err != nil {
		panic(err)
	}
	assign := func(tenant string) prefixes.Holding {
		h, err := a.Assign(ctx, prefixes.Request{Pool: net, Owner: tenant, Bits: 56})
		if err == nil && !h.Until.IsZero() {
			h, err = a.Renew(ctx, h.Prefix, tenant, prefixes.RenewArgs{}) // it came back
		}
		fmt.Println(tenant, h.Prefix, err)
		return h
	}
	leave := func(h prefixes.Holding) {
		if _, err := a.Renew(ctx, h.Prefix, h.Owner, prefixes.RenewArgs{TTL: 24 * time.Hour}); err != nil {
			panic(err)
		}
	}
	leave(assign("a"))
	assign("b")
	now = now.Add(time.Hour)
	leave(assign("a"))
	now = now.Add(25 * time.Hour)
	assign("c")
	// Output:
	// a 2001:db8::/56 <nil>
	// b 2001:db8:0:100::/56 <nil>
	// a 2001:db8::/56 <nil>
	// c 2001:db8::/56 <nil>
}
