package kept_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/kept"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A DHCP server keeps an address for a printer, which is off for a while.
func Example() {
	db := store.NewMemory()
	engine := must(ipset.New(db, ipset.Options{}))
	if err := engine.AddPool(bg, pool); err != nil {
		panic(err)
	}
	keeper := must(kept.New(db, server, ipset.Options{}))
	fmt.Println("keep:", keeper.Keep(bg, netip.MustParseAddr("192.168.1.7"), "printer"))
	got := must(keeper.Offer(bg, alloc.AssignArgs{Owner: server, Num4: 1, Handle: "printer", TTL: time.Hour}))
	fmt.Println("offered:", got.V4[0].Address)
	must(engine.ReleaseByHandle(bg, "printer"))
	_, err := engine.AssignIP(bg, alloc.AssignIPArgs{Address: got.V4[0].Address, Owner: server, Handle: "laptop"})
	fmt.Println(err)
	for k, err := range keeper.All(bg) {
		fmt.Println(k.Address, "is kept for", k.Handle, err)
	}
	// Output:
	// keep: <nil>
	// offered: 192.168.1.7
	// ipset: assign IP 192.168.1.7 handle "laptop" for "virtual:dhcp": occupied, held by "kept/printer"
	// 192.168.1.7 is kept for printer <nil>
}
