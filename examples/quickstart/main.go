// Command quickstart is the first thing to run: the addresses of one subnet. It is the program of
// README.md.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func main() {
	ctx := context.Background()
	db := store.NewMemory()
	engine, err := ipset.New(db, ipset.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := engine.AddPool(ctx, alloc.Pool{
		Name:   "lan",
		Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 24, // one block of 256 addresses
		Ranges: []netipx.IPRange{netipx.MustParseIPRange("10.0.0.2-10.0.0.254")}, // .1 is the gateway
		Order:  alloc.Lowest,
	}); err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"printer", "laptop", "printer"} { // printer again: the same address
		a, err := engine.Assign(ctx, alloc.HostOwner("server"), name)
		if err != nil {
			log.Fatal(err) // matches ipalloc.ErrFull if no address is left
		}
		fmt.Print(name, " ", a.Address, ", ")
	}
	released, err := engine.ReleaseByHandle(ctx, "printer")
	fmt.Println("released", released, err)
}
