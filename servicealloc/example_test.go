package servicealloc_test

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/servicealloc"
)

var anyBoth = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

// newRegistry returns a registry with the ranges of a dual-stack cluster.
func newRegistry(opts ...servicealloc.Option) *servicealloc.Registry {
	opts = append(opts, servicealloc.LowestFirst()) // so that the examples have fixed output
	r, err := servicealloc.NewRegistry(servicealloc.PortRange{First: 30000, Last: 32767}, opts...)
	if err != nil {
		panic(err)
	}
	if err := r.SetRange(servicealloc.RangeInfo{Name: "kubernetes",
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/108")}}); err != nil {
		panic(err)
	}
	return r
}

// A dual-stack service with two node ports: all of it or nothing, and again the same.
func Example() {
	r := newRegistry()
	web := servicealloc.Request{
		Addrs: anyBoth,                                  // one of each family, any
		Ports: []servicealloc.Port{{}, {Number: 30443}}, // one that is free, and this one
	}
	g, err := r.Allocate("default/web", web)
	fmt.Println(g.Generation, g.Addrs, g.Ports, err)
	g, err = r.Allocate("default/web", web)
	fmt.Println(g.Generation, g.Addrs, g.Ports, err)
	_, err = r.Allocate("default/other", servicealloc.Request{Addrs: []netip.Addr{netip.IPv6Unspecified(), g.Addrs[0]}})
	fmt.Println(err)
	v6 := r.Stats().V6
	fmt.Println(v6.Dynamic.Used) // nothing leaked
	// Output:
	// 1 [10.96.1.1 fd00:96::101] [{ 30086} { 30443}] <nil>
	// 1 [10.96.1.1 fd00:96::101] [{ 30086} { 30443}] <nil>
	// servicealloc: allocate 10.96.1.1 for "default/other": occupied, held by "default/web"
	// 1
}

// An API server takes what a service needs, writes the service, and only then gives
// back what the service no longer has.
func ExampleRegistry_Begin() {
	r := newRegistry()
	r.Allocate("default/web", servicealloc.Request{Addrs: anyBoth[:1], Ports: []servicealloc.Port{{}}})

	write := func(servicealloc.Grant) error { return errors.New("the API server refused it") }
	tx, grant, err := r.Begin("default/web", servicealloc.Request{Addrs: anyBoth}) // to ClusterIP, dual-stack
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(grant.Addrs, grant.Ports)
	if err := write(grant); err != nil {
		fmt.Println(err, tx.Rollback())
	}
	g, _ := r.Get("default/web")
	fmt.Println(g.Addrs, g.Ports)
	// Output:
	// [10.96.1.1 fd00:96::101] []
	// the API server refused it <nil>
	// [10.96.1.1] [{ 30086}]
}

// After a start, what is recorded is loaded first. What is wrong with the records is a
// list of problems, and what they name is in use.
func ExampleRegistry_Load() {
	r := newRegistry()
	for _, problem := range r.Load([]servicealloc.Grant{
		{Owner: "default/web", Addrs: []netip.Addr{netip.MustParseAddr("10.96.1.1")}},
		{Owner: "default/copy", Addrs: []netip.Addr{netip.MustParseAddr("10.96.1.1")}},
		{Owner: "default/old", Addrs: []netip.Addr{netip.MustParseAddr("172.16.0.1")}},
	}) {
		fmt.Println(problem)
	}
	// Output:
	// servicealloc: load 10.96.1.1 for "default/copy": occupied, held by "default/web"
	// servicealloc: load 172.16.0.1 for "default/old": not a usable address of any range
}

// The addresses of one subnet, the lowest free one first.
func ExampleRange() {
	r, err := servicealloc.NewRange(netip.MustParsePrefix("192.0.2.0/24"),
		servicealloc.LowestFirst(), servicealloc.StaticBand(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	gateway := netip.MustParseAddr("192.0.2.1")
	fmt.Println(r.Allocate(gateway))
	ip, _, err := r.AllocateNext()
	fmt.Println(ip, err)
	ip, _, err = r.AllocateNext()
	fmt.Println(ip, err)
	r.Release(ip)
	fmt.Println(r.Free())
	// Output:
	// <nil>
	// 192.0.2.2 <nil>
	// 192.0.2.3 <nil>
	// 252
}

func ExampleNewRange() {
	r, err := servicealloc.NewRange(netip.MustParsePrefix("10.96.0.0/24"))
	if err != nil {
		fmt.Println(err)
		return
	}
	// Cluster DNS asks for its well-known address. It lies in the static band.
	dns := netip.MustParseAddr("10.96.0.10")
	band, taken := r.Lookup(dns)
	fmt.Println(dns, "is", band, taken, r.Allocate(dns))
	// Other services take what they are given.
	will, _, _ := r.DryRun(netip.Addr{})
	ip, spilled, err := r.AllocateNext()
	band, taken = r.Lookup(ip)
	fmt.Println(ip == will, band, taken, spilled, err)
	fmt.Println(r.Stats().Static, r.Stats().Dynamic)
	fmt.Println(r.Release(ip), r.Release(ip))
	fmt.Println(r.Allocate(netip.MustParseAddr("10.96.0.255")))
	// Output:
	// 10.96.0.10 is static false <nil>
	// true dynamic true false <nil>
	// {16 1 15} {238 1 237}
	// true false
	// servicealloc: allocate 10.96.0.255 in 10.96.0.0/24: out of range
}

// The bands of a /27: addresses .17 to .30 go first, then the engine spills.
func ExamplePool_AllocateNext() {
	r, err := servicealloc.NewRange(netip.MustParsePrefix("192.0.2.0/27"), servicealloc.LowestFirst())
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := 0; ; i++ {
		ip, spilled, err := r.AllocateNext()
		if errors.Is(err, ipalloc.ErrFull) {
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
	// 30 servicealloc: allocate in 192.0.2.0/27: full
}

func ExampleNewPorts() {
	p, err := servicealloc.NewPorts(servicealloc.PortRange{First: 30000, Last: 32767}, servicealloc.LowestFirst())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.AllocateNext()) // after the 86 static ports
	fmt.Println(p.AllocateNext())
	fmt.Println(p.Allocate(30053))
	fmt.Println(p.Stats().Static)
	// Output:
	// 30086 false <nil>
	// 30087 false <nil>
	// <nil>
	// {86 1 85}
}
