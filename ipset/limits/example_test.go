package limits_test

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/limits"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// MetalLB's rule: services share an address if they have the same sharing key and their ports differ.
func ExampleLimits_Ports() {
	db, lb := store.NewMemory(), alloc.VirtualOwner("metallb")
	engine := must(ipset.New(db, ipset.Options{}))
	pool := alloc.Pool{Name: "public", Prefix: netip.MustParsePrefix("203.0.113.0/28"), BlockBits: 28, Uses: alloc.LoadBalancer}
	if err := engine.AddPool(bg, pool); err != nil {
		panic(err)
	}
	services := limits.New(db, ipset.Options{})
	assign := func(service, sharingKey string, ports ...string) {
		m := map[string]string{}
		for _, p := range ports {
			m["port/"+p] = ""
		}
		_, err := services.Ports(bg, alloc.AssignIPArgs{
			Address: netip.MustParseAddr("203.0.113.5"), Owner: lb, Use: alloc.LoadBalancer, Handle: service, Attributes: attributes(m),
			Share: alloc.Share{Max: alloc.MaxHolders, Key: sharingKey},
		})
		fmt.Println(service, err)
	}
	assign("default/dns-tcp", "dns", "TCP/53")
	assign("default/dns-udp", "dns", "UDP/53")
	assign("default/other", "dns", "TCP/53", "TCP/80")
	// Output:
	// default/dns-tcp <nil>
	// default/dns-udp <nil>
	// default/other limits: assign 203.0.113.5 handle "default/other": port/TCP/53 is taken, held by "default/dns-tcp"
}

// A tenant has at most two addresses, however many engines assign them.
func ExampleLimits_AutoAssign() {
	db := store.NewMemory()
	engine := must(ipset.New(db, ipset.Options{}))
	if err := engine.AddPool(bg, alloc.Pool{Name: "vms", Prefix: netip.MustParsePrefix("10.0.0.0/24"), Index: []string{"tenant"}}); err != nil {
		panic(err)
	}
	quotas, acme := limits.New(db, ipset.Options{}), limits.Attribute("tenant", "acme", 2)
	for _, vm := range []string{"vm-1", "vm-2", "vm-3"} {
		_, err := quotas.AutoAssign(bg, acme, alloc.AssignArgs{
			Owner: alloc.HostOwner("node-a"), Num4: 1, Handle: vm, Attributes: attributes(map[string]string{"tenant": "acme"}),
		})
		fmt.Println(vm, err)
	}
	released := must(limits.ReleaseAll(bg, engine, "tenant", "acme"))
	fmt.Println(len(released), "released")
	// Output:
	// vm-1 <nil>
	// vm-2 <nil>
	// vm-3 limits: assign "tenant=acme": limit reached: 2 of 2 in use, and 1 more asked for
	// 2 released
}
