package ipset_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// All addresses of a user, without reading those of the others.
func ExampleEngine_IPsByAttribute() {
	ctx := context.Background()
	engine, err := ipset.New(store.NewMemory(), ipset.Options{})
	if err != nil {
		panic(err)
	}
	err = engine.AddPool(ctx, alloc.Pool{Name: "vpn", Prefix: netip.MustParsePrefix("100.64.0.0/24"), Index: []string{"user"}})
	if err != nil {
		panic(err)
	}
	for _, m := range []struct{ machine, user string }{{"laptop", "anna"}, {"phone", "anna"}, {"desk", "ben"}} {
		attributes, err := alloc.NewAttributes(map[string]string{"user": m.user})
		if err != nil {
			panic(err)
		}
		_, err = engine.AutoAssign(ctx, alloc.AssignArgs{
			Owner: alloc.HostOwner("gateway"), Num4: 1, Handle: m.machine, Attributes: attributes,
		})
		if err != nil {
			panic(err)
		}
	}
	addresses, err := engine.IPsByAttribute(ctx, "user", "anna")
	for _, a := range addresses {
		fmt.Println(a.Handle)
	}
	fmt.Println(err)
	// Output:
	// laptop
	// phone
	// <nil>
}
