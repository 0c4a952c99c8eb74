package ipalloc_test

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

// Branch on the sentinel; take details from the error.
func Example_errors() {
	nodes, err := cidrset.New(netip.MustParsePrefix("10.0.0.0/22"), 24)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := nodes.AllocateNext(); err != nil {
		fmt.Println(err)
		return
	}
	err = nodes.Claim(netip.MustParsePrefix("10.0.0.0/23"))
	var why *ipalloc.Error
	if errors.Is(err, ipalloc.ErrOccupied) && errors.As(err, &why) {
		fmt.Println(why.Prefix, "is not free, because of", why.InTheWay)
	}
	fmt.Println(err)
	// Output:
	// 10.0.0.0/23 is not free, because of 10.0.0.0/24
	// cidrset: claim 10.0.0.0/23 in 10.0.0.0/22: occupied at 10.0.0.0/24
}
