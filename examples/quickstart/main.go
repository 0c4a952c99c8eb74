// Command quickstart is the first thing to run: the addresses of one subnet, in the file lan.db of the present directory. It is the
// program of README.md.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

func main() {
	ctx := context.Background()
	db, err := boltstore.Open(ctx, "lan.db", boltstore.Options{})
	if err != nil {
		log.Fatal(err) // another process has the file, or it is no store
	}
	defer db.Close()
	engine, err := ipset.New(db, ipset.Options{})
	if err != nil {
		log.Fatal(err)
	}
	err = engine.AddPool(ctx, alloc.Pool{
		Name: "lan", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 24, // one block of 256 addresses
		Ranges: []netipx.IPRange{netipx.MustParseIPRange("10.0.0.2-10.0.0.254")}, // .1 is the gateway
		Order:  alloc.Lowest,
	})
	if err != nil && !errors.Is(err, ipalloc.ErrExists) {
		log.Fatal(err)
	}
	// One subnet has no hosts that own blocks of it, so all addresses have one virtual owner.
	lan := alloc.VirtualOwner("lan")
	for _, name := range []string{"printer", "laptop", "printer"} { // printer again: the same address
		a, err := engine.Assign(ctx, lan, name)
		if err != nil {
			log.Fatal(err) // matches ipalloc.ErrFull if no address is left
		}
		fmt.Print(name, " ", a.Address, ", ")
	}
	released, err := engine.ReleaseByHandle(ctx, "printer")
	fmt.Println("released", released, err)
}
