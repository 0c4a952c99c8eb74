package ipset_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Services of a load balancer share an address on different ports: each asks for it with the same key, whichever comes first,
// and the last that goes frees it.
func ExampleShare() {
	ctx := context.Background()
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	must(err)
	must(e.AddPool(ctx, alloc.Pool{Name: "vips", Prefix: netip.MustParsePrefix("192.0.2.0/28"), Uses: alloc.LoadBalancer}))
	vip := netip.MustParseAddr("192.0.2.5")
	assign := func(service, key string) {
		_, err := e.AssignIP(ctx, alloc.AssignIPArgs{
			Address: vip, Owner: alloc.VirtualOwner("lb"), Use: alloc.LoadBalancer,
			Handle: service, Share: alloc.Share{Max: 2, Key: key},
		})
		fmt.Println(service, err)
	}
	assign("http", "edge")
	assign("https", "edge")
	assign("dns", "resolver")
	assign("smtp", "edge")

	al, err := e.Lookup(ctx, vip)
	must(err)
	for h := range al.Holders() {
		fmt.Println("held by", h.Handle)
	}
	for _, service := range []string{"http", "https"} {
		_, err = e.ReleaseByHandle(ctx, service)
		must(err)
		_, err = e.Lookup(ctx, vip)
		fmt.Println("free:", errors.Is(err, ipalloc.ErrNotHeld))
	}
	// Output:
	// http <nil>
	// https <nil>
	// dns ipset: assign IP 192.0.2.5 handle "dns" for "virtual:lb": mismatch: the address is shared under the key "edge", held by "http"
	// smtp ipset: assign IP 192.0.2.5 handle "smtp" for "virtual:lb": limit exceeded: the address has 2 holders, held by "http"
	// held by http
	// held by https
	// free: false
	// free: true
}
