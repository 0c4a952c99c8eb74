package servicealloc_test

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/servicealloc"
)

func Example() {
	r, err := servicealloc.New(netip.MustParsePrefix("10.96.0.0/24"))
	if err != nil {
		fmt.Println(err)
		return
	}
	// Cluster DNS asks for its well-known address. It lies in the static band.
	dns := netip.MustParseAddr("10.96.0.10")
	fmt.Println(dns, "is", r.Band(dns), r.Allocate(dns))
	// Other services take what they are given.
	will, _, _ := r.DryRunNext()
	ip, spilled, err := r.AllocateNext()
	fmt.Println(ip == will, r.Band(ip), spilled, err)
	fmt.Println(r.Stats().Static)
	fmt.Println(r.Stats().Dynamic)
	fmt.Println(r.Release(ip), r.Release(ip))
	// Output:
	// 10.96.0.10 is static <nil>
	// true dynamic false <nil>
	// {16 1 15}
	// {238 1 237}
	// true false
}

// The bands of a /27: addresses .17 to .30 go first, then the engine spills.
func ExampleRange_AllocateNext() {
	r, err := servicealloc.New(netip.MustParsePrefix("192.0.2.0/27"), servicealloc.LowestFirst())
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := 0; ; i++ {
		ip, spilled, err := r.AllocateNext()
		if errors.Is(err, servicealloc.ErrFull) {
			fmt.Println(i, err)
			return
		}
		if i == 0 || i == 13 || i == 14 || i == 29 {
			fmt.Println(i, ip, spilled)
		}
	}
	// Output:
	// 0 192.0.2.17 false
	// 13 192.0.2.30 false
	// 14 192.0.2.1 true
	// 29 192.0.2.16 true
	// 30 full
}

func ExampleRange_Allocate() {
	r, err := servicealloc.New(netip.MustParsePrefix("192.0.2.0/24"), servicealloc.Reserve(netip.MustParsePrefix("192.0.2.128/25")))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range []string{"192.0.2.10", "192.0.2.10", "192.0.2.0", "192.0.2.200", "198.51.100.1"} {
		fmt.Println(r.Allocate(netip.MustParseAddr(s)))
	}
	// Output:
	// <nil>
	// servicealloc: allocate 192.0.2.10 in 192.0.2.0/24: already taken
	// servicealloc: allocate 192.0.2.0 in 192.0.2.0/24: not a usable member of the range
	// servicealloc: allocate 192.0.2.200 in 192.0.2.0/24: reserved
	// servicealloc: allocate 198.51.100.1 in 192.0.2.0/24: not a usable member of the range
}

func ExamplePorts() {
	r, err := servicealloc.ParsePortRange("30000-32767")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := servicealloc.NewPorts(r, servicealloc.LowestFirst())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.AllocateNext(servicealloc.TCP)) // 86 static ports go before it
	fmt.Println(p.AllocateNext(servicealloc.UDP)) // each protocol for itself
	fmt.Println(p.Allocate(servicealloc.Port{Protocol: servicealloc.UDP, Number: 30053}))
	fmt.Println(p.Stats(servicealloc.UDP).Static)
	// Output:
	// 30086 false <nil>
	// 30086 false <nil>
	// <nil>
	// {86 1 85}
}

// A second range is added when the first is full, and the first one retired.
func ExampleRanges() {
	r, err := servicealloc.NewRanges(servicealloc.LowestFirst())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Add("small", netip.MustParsePrefix("192.0.2.0/29"), netip.MustParsePrefix("2001:db8::/125")))
	for range 6 {
		r.AllocateNext(servicealloc.IPv4)
	}
	_, _, err = r.AllocateNext(servicealloc.IPv4)
	fmt.Println(err)
	fmt.Println(r.Add("large", netip.MustParsePrefix("198.51.100.0/24")))
	ip, _, _ := r.AllocateNext(servicealloc.IPv4)
	fmt.Println(ip)
	fmt.Println(r.Drain("small"), r.Remove("small"))
	left, _ := r.Remaining("small")
	for _, ip := range left {
		r.Release(ip)
	}
	fmt.Println(len(left), r.Remove("small"))
	// Output:
	// <nil>
	// full
	// <nil>
	// 198.51.100.17
	// <nil> servicealloc: remove small 192.0.2.1: still in use
	// 6 <nil>
}

// A dual-stack service with a node port: all of it or nothing, and again the same.
func ExampleRegistry() {
	r, err := servicealloc.NewRegistry(servicealloc.PortRange{First: 30000, Last: 32767}, servicealloc.LowestFirst())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := r.AddRange("kubernetes", netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/108")); err != nil {
		fmt.Println(err)
		return
	}
	web := servicealloc.Request{
		Addrs: []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}, // one of each, any
		Ports: []servicealloc.Port{{Protocol: servicealloc.TCP}, {Protocol: servicealloc.UDP, Number: 30443}},
	}
	g, err := r.Allocate("default/web", web)
	fmt.Println(g.Generation, g.Addrs, g.Ports, err)
	g, err = r.Allocate("default/web", web)
	fmt.Println(g.Generation, g.Addrs, g.Ports, err)

	_, err = r.Allocate("default/other", servicealloc.Request{Addrs: []netip.Addr{netip.IPv6Unspecified(), g.Addrs[0]}})
	fmt.Println(err)
	fmt.Println(r.Stats(servicealloc.IPv6).Dynamic.Used) // nothing leaked

	fmt.Println(r.ReleaseIf("default/web", g.Generation-1))
	fmt.Println(r.ReleaseIf("default/web", g.Generation))
	// Output:
	// 1 [10.96.1.1 fd00:96::101] [30086/TCP 30443/UDP] <nil>
	// 1 [10.96.1.1 fd00:96::101] [30086/TCP 30443/UDP] <nil>
	// servicealloc: allocate 10.96.1.1 for default/other: already taken by default/web
	// 1
	// servicealloc: release for default/web: generation has moved on
	// <nil>
}

func ExampleDiff() {
	state := servicealloc.State{Held: []servicealloc.Claim{
		{Owner: "default/web", Addr: netip.MustParseAddr("10.96.1.1")},
		{Owner: "default/old", Addr: netip.MustParseAddr("10.96.1.2")},
	}}
	desired := []servicealloc.Claim{
		{Owner: "default/web", Addr: netip.MustParseAddr("10.96.1.1")},
		{Owner: "default/copy", Addr: netip.MustParseAddr("10.96.1.1")},
		{Owner: "default/new", Addr: netip.MustParseAddr("10.96.1.3")},
	}
	for _, f := range servicealloc.Diff(state, desired) {
		fmt.Printf("%v %v: %s %q\n", f.Claim.Addr, f.Kind, f.Claim.Owner, f.Holder)
	}
	// Output:
	// 10.96.1.1 duplicate: default/copy "default/web"
	// 10.96.1.2 leaked: default/old ""
	// 10.96.1.3 missing: default/new ""
}
