package metrics_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/metrics"
)

// An engine on a store that is counted and timed.
func Example() {
	ctx, registry := context.Background(), prometheus.NewRegistry()
	db := metrics.NewStore("pods", store.NewMemory())
	engine, err := ipset.New(db, ipset.Options{Retry: db.Retry(ipset.Retry{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry.MustRegister(db, metrics.NewEngine("pods", engine, metrics.EngineOptions{Hosts: 20}))

	err = engine.AddPool(ctx, ipset.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/16")})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := engine.Assign(ctx, ipset.HostOwner("node-a"), "pod-1"); err != nil {
		fmt.Println(err)
		return
	}
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() == "ipalloc_pool_count" {
			for _, m := range f.GetMetric() {
				fmt.Println(m.GetLabel()[3].GetValue(), m.GetGauge().GetValue())
			}
		}
	}
	// Output:
	// cooling 0
	// free 65535
	// reserved 0
	// used 1
}
