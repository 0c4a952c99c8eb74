package repair_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/servicealloc"
	"github.com/ipalloc/ipalloc/servicealloc/repair"
)

// A repair loop compares the registry with the services, plans what has been wrong for
// long enough, and applies the plan.
func Example() {
	reg, err := servicealloc.NewRegistry(servicealloc.PortRange{}, servicealloc.LowestFirst())
	if err != nil {
		panic(err)
	}
	if err := reg.SetRange(servicealloc.RangeInfo{Name: "main", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}); err != nil {
		panic(err)
	}
	if _, err := reg.Allocate("default/gone", servicealloc.Request{Addrs: []netip.Addr{netip.IPv4Unspecified()}}); err != nil {
		panic(err)
	}
	services := []servicealloc.Grant{{Owner: "default/new", Addrs: []netip.Addr{netip.MustParseAddr("10.96.1.9")}}}

	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var findings []*repair.Finding
	for range 3 {
		findings = repair.Diff(reg, services, findings, now)
		plan := repair.Plan(findings, 3, time.Minute)
		for _, step := range plan {
			fmt.Println(step)
		}
		for _, problem := range repair.Apply(reg, plan) {
			fmt.Println(problem)
		}
		now = now.Add(time.Minute)
	}
	// Output:
	// take 10.96.1.9 for "default/new" (missing, seen 1 time in 0s)
	// release 10.96.1.1 of "default/gone" (leaked, seen 3 times in 2m0s)
}
