package metrics_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
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

	err = engine.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/16")})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := engine.Assign(ctx, alloc.HostOwner("node-a"), "pod-1"); err != nil {
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
				fmt.Println(m.GetLabel()[4].GetValue(), m.GetGauge().GetValue())
			}
		}
	}
	// Output:
	// cooling 0
	// draining 0
	// free 65535
	// reserved 0
	// used 1
}

// Leak collection every few minutes, counted.
func ExampleNewLeaks() {
	ctx := context.Background()
	engine, err := ipset.New(store.NewMemory(), ipset.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	leaks := metrics.NewLeaks("pods", engine.Operator().NewCollector(10*time.Minute), nil)
	prometheus.NewRegistry().MustRegister(leaks)

	running := map[string]bool{"pod-1": true} // what the API server knows
	released, err := leaks.Run(ctx, func(a alloc.Allocation) alloc.Liveness {
		if running[a.Handle] {
			return alloc.Alive
		}
		return alloc.Leaked
	})
	fmt.Println(len(released), err)
	// Output: 0 <nil>
}

// A file and its backups.
func ExampleNewBackups() {
	ctx, dir := context.Background(), os.TempDir()
	db, err := boltstore.Open(ctx, filepath.Join(dir, fmt.Sprintf("example-%d.db", os.Getpid())), boltstore.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(db.Path())
	defer db.Close()
	backups := metrics.NewBackups("pods")
	prometheus.NewRegistry().MustRegister(backups,
		metrics.NewFile("pods", func() metrics.FileStats { return metrics.FileStats(db.Stats()) }, 1<<30))

	var to bytes.Buffer
	began := time.Now()
	n, err := db.Backup(ctx, &to)
	backups.Observe(began, time.Since(began), n, err)
	fmt.Println(n == int64(to.Len()), err)
	// Output: true <nil>
}
