package etcdstore

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

// BenchmarkWatchers reports what a member spends on a process that watches the records of a host: a connection, watchers, memory.
//
//	go test -run '^$' -bench Watchers -benchtime 500x .
func BenchmarkWatchers(b *testing.B) {
	c := servers.NewEtcd(b, servers.EtcdOptions{NoSync: true})
	metric := func(name string) (value float64) {
		resp, err := http.Get(c.Endpoints()[0] + "/metrics")
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
				fmt.Sscan(text, &value)
			}
		}
		return value
	}
	const memory, watchers = "process_resident_memory_bytes", "etcd_debugging_mvcc_watcher_total"
	prefix := newPrefix()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	before := metric(memory)
	for i := range b.N {
		s := openIn(b, connect(b, c.Endpoints()), prefix, Options{})
		rev := mustCommit(b, s, fmt.Sprint("n", i), "")
		go func() {
			for range s.Watch(ctx, rev, fmt.Sprintf("n%d/", i)) { // until ctx ends
			}
		}()
	}
	for metric(watchers) < float64(b.N) {
		time.Sleep(10 * time.Millisecond)
	}
	b.ReportMetric(metric(watchers)/float64(b.N), "watchers/process")
	b.ReportMetric((metric(memory)-before)/float64(b.N)/1000, "kB/process")
}
