// Command quickstart is the first thing to run: one address for one pod, and back. It is the
// program of README.md.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func main() {
	ctx, db := context.Background(), store.NewMemory() // or a file, etcd, a SQL database: nothing below changes
	engine, err := ipset.New(db, ipset.Options{})
	if err != nil {
		log.Fatal(err)
	}
	err = engine.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/16")}) // again: nothing
	if err != nil {
		log.Fatal(err)
	}
	a, err := engine.Assign(ctx, alloc.HostOwner("node-a"), "pod-1") // again: the same address
	if err != nil {                                                  // matches ipalloc.ErrFull if no address is left
		log.Fatal(err)
	}
	released, err := engine.ReleaseByHandle(ctx, "pod-1")
	fmt.Println(a.Address, released, err)
}
