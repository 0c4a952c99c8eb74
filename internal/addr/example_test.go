package addr_test

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// An ordinal and the prefix it stands for, across the 64-bit halves of IPv6.
func ExampleCodec() {
	c, err := addr.NewCodec(netip.MustParsePrefix("2001:db8:1234:ff00::/56"), 72)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Last(), c.Prefix(6425))
	fmt.Println(c.Ordinal(netip.MustParseAddr("2001:db8:1234:ff19:1942::1")))
	// Output:
	// 65535 2001:db8:1234:ff19:1900::/72
	// 6425 true
}

// What a caller names is not always a child: Locate says which children it
// overlaps and whether it is all of them.
func ExampleCodec_Locate() {
	c, _ := addr.NewCodec(netip.MustParsePrefix("10.0.0.0/16"), 24)
	for _, s := range []string{"10.0.8.0/22", "10.0.9.128/25", "10.0.0.0/8", "10.1.0.0/24"} {
		lo, hi, rel := c.Locate(netip.MustParsePrefix(s))
		switch rel {
		case addr.Whole:
			fmt.Println(s, "is children", lo, "to", hi)
		case addr.Part:
			fmt.Println(s, "is a part of child", lo)
		case addr.Larger:
			fmt.Println(s, "is more than the pool, children", lo, "to", hi)
		case addr.Foreign:
			fmt.Println(s, "is outside")
		}
	}
	// Output:
	// 10.0.8.0/22 is children 8 to 11
	// 10.0.9.128/25 is a part of child 9
	// 10.0.0.0/8 is more than the pool, children 0 to 255
	// 10.1.0.0/24 is outside
}
