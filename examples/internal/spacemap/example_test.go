package spacemap_test

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/ipalloc/ipalloc/examples/internal/spacemap"
)

func ExampleText() {
	err := spacemap.Text(os.Stdout, spacemap.Drawing{
		Pool:   netip.MustParsePrefix("10.0.0.0/16"),
		Finest: 24,
		Layers: []spacemap.Layer{
			{Label: "routers", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.127.0/26")}},
			{Label: "nodes", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.64.0/19"), netip.MustParsePrefix("10.0.96.0/20")}},
		},
	}, spacemap.TextStyle{})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 10.0.0.0/16: 19.2 % taken
	// 10.0.0.0    █·······························································    1.6 %
	// 10.0.64.0   ████████████████████████████████████████████████···············░   75.4 %
	// 10.0.128.0  ································································      0 %
	// 10.0.192.0  ································································      0 %
	//
	// one cell: a /24; one row: a /18
	// · free   ░ below 1/3   ▒ below 2/3   ▓ more   █ all taken
	// routers  2 prefixes     0.5 %
	// nodes    2 prefixes    18.8 %
}
