package main

import "github.com/ipalloc/ipalloc/bench/internal/frame"

var serviceTargets = []frame.Target{
	// Kubernetes takes no less than 740 ns for a pair, ours 29 to 50: both draw a random start, and a mutex that costs 5 ns is 10 of them.
	{Text: "services, pair, 50 % of a /16: Kubernetes / ours", Got: frame.RatioOf("svcpair/16/50", kubernetes, ours), Limit: 15, Least: true},
	{Text: "services, pair, 99 % of a /16: Kubernetes / ours", Got: frame.RatioOf("svcpair/16/99", kubernetes, ours), Limit: 25, Least: true},
	{Text: "services, pair, 50 % of a /12: Kubernetes / ours", Got: frame.RatioOf("svcpair/12/50", kubernetes, ours), Limit: 15, Least: true},
	{Text: "services, pair, 99 % of a /12: Kubernetes / ours", Got: frame.RatioOf("svcpair/12/99", kubernetes, ours), Limit: 15, Least: true},
	{Text: "services, pair, 50 % of an IPv6 /108: Kubernetes / ours", Got: frame.RatioOf("svcpair/v6/50", kubernetes, ours), Limit: 15, Least: true},
	{Text: "services, pair, 99 % of an IPv6 /108: Kubernetes / ours", Got: frame.RatioOf("svcpair/v6/99", kubernetes, ours), Limit: 25, Least: true},
	{Text: "services, pair, 50 % of a /16: Cilium / ours", Got: frame.RatioOf("svcpair/16/50", cilium, ours), Limit: 1.4, Least: true},
	{Text: "services, pair, 99 % of a /16: Cilium / ours", Got: frame.RatioOf("svcpair/16/99", cilium, ours), Limit: 8, Least: true},
	{Text: "services, pair, 50 % of a /12: Cilium / ours", Got: frame.RatioOf("svcpair/12/50", cilium, ours), Limit: 1.4, Least: true},
	{Text: "services, pair, 99 % of a /12: Cilium / ours", Got: frame.RatioOf("svcpair/12/99", cilium, ours), Limit: 6, Least: true},
	{Text: "services, pair, 50 % of an IPv6 /108: Cilium / ours", Got: frame.RatioOf("svcpair/v6/50", cilium, ours), Limit: 1.4, Least: true},
	{Text: "services, pair, 99 % of an IPv6 /108: Cilium / ours", Got: frame.RatioOf("svcpair/v6/99", cilium, ours), Limit: 8, Least: true},
	// The floor is the bitset behind the same mutex, which starts at the same random place. Ours has two bands to look at, the receiver
	// of changes to ask for, an address of either family to tell apart, and the page and the counts that cidrset has too: 9 to 15 ns
	// more at 50 % of IPv4, 4 ns of IPv6, and next to nothing at 99 %, where the bitset has to search.
	{Text: "services, pair, 50 % of a /16: ours / bitset", Got: frame.RatioOf("svcpair/16/50", ours, flat), Limit: 1.75},
	{Text: "services, pair, 99 % of a /16: ours / bitset", Got: frame.RatioOf("svcpair/16/99", ours, flat), Limit: 1.25},
	{Text: "services, pair, 50 % of a /12: ours / bitset", Got: frame.RatioOf("svcpair/12/50", ours, flat), Limit: 1.9},
	{Text: "services, pair, 99 % of a /12: ours / bitset", Got: frame.RatioOf("svcpair/12/99", ours, flat), Limit: 1.25},
	{Text: "services, pair, 50 % of an IPv6 /108: ours / bitset", Got: frame.RatioOf("svcpair/v6/50", ours, flat), Limit: 1.35},
	{Text: "services, pair, 99 % of an IPv6 /108: ours / bitset", Got: frame.RatioOf("svcpair/v6/99", ours, flat), Limit: 1.25},
	{Text: "services, named address: ours / Cilium", Got: frame.RatioOf("svcnamed/16", ours, cilium), Limit: 1.1},
	{Text: "services, pair, 2 goroutines: Kubernetes / ours", Got: frame.RatioOf("svcpair/g2", kubernetes, ours), Limit: 10, Least: true},
}
