package block_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// A block can be used without an engine, by who keeps it elsewhere.
func ExampleBlock() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b, err := block.New(netip.MustParsePrefix("192.0.2.0/30"), block.Options{})
	must(err)
	for _, a := range b.AutoAssign(nil, 3, alloc.Claim{Handle: "pod-1"}, now, nil) {
		fmt.Println(a.Address, a.Seq)
	}
	_, err = b.Release(netip.MustParseAddr("192.0.2.1"), alloc.Guard{Handle: "pod-1"}, now, 0)
	must(err)
	for a := range b.FreeAddresses() {
		fmt.Println("free:", a)
	}
	// Output:
	// 192.0.2.0 1
	// 192.0.2.1 2
	// 192.0.2.2 3
	// free: 192.0.2.3
	// free: 192.0.2.1
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
