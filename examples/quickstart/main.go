// Command quickstart is the first thing to run: a pool is cut into equal prefixes, some are handed
// out, one comes back, and a restart forgets nothing.
//
//	go run ./examples/quickstart
package main

import (
	"errors"
	"fmt"
	"log"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	set, err := cidrset.New(netip.MustParsePrefix("10.0.0.0/22"), 24) // room for four /24
	if err != nil {
		return err
	}
	taken, err := set.Occupy(netip.MustParsePrefix("10.0.1.0/24")) // somebody has it already
	if err != nil {
		return err
	}
	fmt.Println("occupied", taken)

	for { // hand out what is left
		prefix, err := set.AllocateNext()
		if errors.Is(err, ipalloc.ErrFull) {
			fmt.Println("full")
			break
		} else if err != nil {
			return err
		}
		fmt.Println("allocated", prefix)
	}

	freed, err := set.Release(netip.MustParsePrefix("10.0.2.0/24"))
	if err != nil {
		return err
	}
	fmt.Println("released", freed)

	snapshot, err := set.MarshalBinary() // to a file, a database, ...
	if err != nil {
		return err
	}
	restored, err := cidrset.Restore(set.Pool(), set.ChildBits(), snapshot)
	if err != nil {
		return err
	}
	prefix, err := restored.AllocateNext()
	if err != nil {
		return err
	}
	fmt.Println("after the restart", prefix)
	return nil
}
