package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// BenchmarkWatchers reports what the server spends on a process that watches: a session, and memory that no other one shares.
//
//	go test -run '^$' -bench Watchers -benchtime 200x .
func BenchmarkWatchers(b *testing.B) {
	server := servers.NewPostgres(b, servers.PostgresOptions{NoSync: true, Settings: []string{fmt.Sprint("max_connections=", b.N+20)}})
	db := connect(b, "pgx", server.DSN())
	openIn(b, db, Options{})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for range b.N {
		own := connect(b, "pgx", server.DSN())
		own.SetMaxIdleConns(0)
		s := openIn(b, own, Options{})
		go func() {
			for range s.Watch(ctx, s.high.Load(), "h") { // until ctx ends
			}
		}()
	}
	var pids []int
	for len(pids) < b.N {
		var list sql.NullString
		if err := db.QueryRowContext(ctx, "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE query LIKE 'LISTEN%'").Scan(&list); err != nil {
			b.Fatal(err)
		}
		pids = pids[:0]
		for word := range strings.FieldsSeq(list.String) {
			var pid int
			fmt.Sscan(word, &pid)
			pids = append(pids, pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
	sum := 0
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			b.Skip(err)
		}
		for line := range strings.Lines(string(text)) {
			if kind, size, _ := strings.Cut(line, ":"); strings.HasPrefix(kind, "Private_") {
				kb := 0
				fmt.Sscan(size, &kb)
				sum += kb
			}
		}
	}
	b.ReportMetric(float64(sum)/float64(b.N), "kB/session")
}
