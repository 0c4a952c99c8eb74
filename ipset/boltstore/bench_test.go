package boltstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// BenchmarkCommit writes one record per commit, by some callers at once, each with keys of its own.
//
//	go test -run '^$' -bench Commit ./...
func BenchmarkCommit(b *testing.B) {
	for _, opts := range []boltstore.Options{{}, {NoSync: true}} {
		for _, callers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("nosync=%v/callers=%d", opts.NoSync, callers), func(b *testing.B) {
				s, err := boltstore.Open(context.Background(), b.TempDir()+"/store.db", opts)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				before := s.Stats().Transactions
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				b.ResetTimer()
				for c := range callers {
					wg.Add(1)
					go func() {
						defer wg.Done()
						for i := 0; left.Add(-1) >= 0; i++ {
							op := store.Op{Kind: store.Put, Key: fmt.Sprintf("b%d-%d", c, i%64), Value: "some value of a block with some addresses in it", Expect: store.AnyRevision}
							if _, err := s.Commit(context.Background(), []store.Op{op}); err != nil {
								b.Error(err)
								return
							}
						}
					}()
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
				b.ReportMetric(float64(s.Stats().Transactions-before)/float64(b.N), "transactions/commit") // of two syncs each
			})
		}
	}
}
