package main

var serviceTargets = []target{
	{text: "services, pair, 50 % of a /16: Kubernetes / ours", got: ratioOf("svcpair/16/50", kubernetes, ours), limit: 30, least: true},
	{text: "services, pair, 99 % of a /16: Kubernetes / ours", got: ratioOf("svcpair/16/99", kubernetes, ours), limit: 30, least: true},
	{text: "services, pair, 50 % of a /12: Kubernetes / ours", got: ratioOf("svcpair/12/50", kubernetes, ours), limit: 30, least: true},
	{text: "services, pair, 99 % of a /12: Kubernetes / ours", got: ratioOf("svcpair/12/99", kubernetes, ours), limit: 30, least: true},
	{text: "services, pair, 50 % of an IPv6 /108: Kubernetes / ours", got: ratioOf("svcpair/v6/50", kubernetes, ours), limit: 30, least: true},
	{text: "services, pair, 99 % of an IPv6 /108: Kubernetes / ours", got: ratioOf("svcpair/v6/99", kubernetes, ours), limit: 30, least: true},
	{text: "services, pair, 50 % of a /16: Cilium / ours", got: ratioOf("svcpair/16/50", cilium, ours), limit: 1.4, least: true},
	{text: "services, pair, 99 % of a /16: Cilium / ours", got: ratioOf("svcpair/16/99", cilium, ours), limit: 8, least: true},
	{text: "services, pair, 50 % of a /12: Cilium / ours", got: ratioOf("svcpair/12/50", cilium, ours), limit: 1.4, least: true},
	{text: "services, pair, 99 % of a /12: Cilium / ours", got: ratioOf("svcpair/12/99", cilium, ours), limit: 8, least: true},
	{text: "services, pair, 50 % of an IPv6 /108: Cilium / ours", got: ratioOf("svcpair/v6/50", cilium, ours), limit: 1.4, least: true},
	{text: "services, pair, 99 % of an IPv6 /108: Cilium / ours", got: ratioOf("svcpair/v6/99", cilium, ours), limit: 8, least: true},
	{text: "services, pair, 50 % of a /16: ours / bitset", got: ratioOf("svcpair/16/50", ours, flat), limit: 1.15},
	{text: "services, pair, 99 % of a /16: ours / bitset", got: ratioOf("svcpair/16/99", ours, flat), limit: 1.15},
	{text: "services, named address: ours / Cilium", got: ratioOf("svcnamed/16", ours, cilium), limit: 1.1},
	{text: "services, free addresses of a /16: ours / Kubernetes", got: ratioOf("svcfree/16", ours, kubernetes), limit: 1.2},
	{text: "services, pair, 2 goroutines: Kubernetes / ours", got: ratioOf("svcpair/g2", kubernetes, ours), limit: 10, least: true},
	{text: "services, listing: for an address of a /12", got: nsOf("svcall/12", ours), limit: 10, unit: " ns"},
	{text: "services, free addresses: /12 / /16", got: oursOver("svcfree/12", "svcfree/16"), limit: 1.5},
}
