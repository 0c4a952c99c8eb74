package metrics_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/metrics"
)

// One scrape of 100,000 blocks in memory with ten addresses each.
func BenchmarkScrape(b *testing.B) {
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if err := e.AddPool(b.Context(), alloc.Pool{Name: "pods", Prefix: prefix("10.0.0.0/8"), BlockBits: 26}); err != nil {
		b.Fatal(err)
	}
	for i := range 100_000 {
		if _, err := e.AutoAssign(b.Context(), alloc.AssignArgs{Owner: alloc.HostOwner(fmt.Sprint("host", i)), Num4: 10,
			Handle: fmt.Sprint("handle", i)}); err != nil {
			b.Fatal(err)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewEngine("pods", e, metrics.EngineOptions{Hosts: 10}))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
