package sqlstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// BenchmarkCommit writes one record per commit, by some callers at once, each with keys of its own, on a file and on a server that
// wait for the disk.
//
//	go test -run '^$' -bench Commit ./...
func BenchmarkCommit(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint("sqlite/callers=", callers), func(b *testing.B) {
			commits(b, openIn(b, sqliteFile(b), Options{}), callers)
		})
	}
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint("postgres/callers=", callers), func(b *testing.B) {
			server := servers.NewPostgres(b, servers.PostgresOptions{})
			commits(b, openIn(b, connect(b, "pgx", server.DSN()), Options{}), callers)
		})
	}
}

func commits(b *testing.B, s *Store, callers int) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for c := range callers {
		wg.Go(func() {
			for i := 0; left.Add(-1) >= 0; i++ {
				op := store.Op{Kind: store.Put, Key: fmt.Sprintf("b%d-%d", c, i%64), Value: "some value of a block with some addresses in it", Expect: store.AnyRevision}
				if _, err := s.Commit(context.Background(), []store.Op{op}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}
