package kubestore

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// BenchmarkCommit writes records of 300 bytes: by one caller, by many of one process, by one caller in each of two and four
// processes that contend.
func BenchmarkCommit(b *testing.B) {
	value := strings.Repeat("v", 300)
	for _, tt := range []struct{ stores, callers int }{{1, 1}, {1, 8}, {1, 64}, {2, 1}, {4, 1}, {2, 32}} {
		b.Run(fmt.Sprintf("processes=%d/callers=%d", tt.stores, tt.callers), func(b *testing.B) {
			name := newName()
			openAt(b, name, Options{})
			var next atomic.Int64
			var group sync.WaitGroup
			var stores []*Store
			for range tt.stores {
				stores = append(stores, openAt(b, name, Options{}))
			}
			b.ResetTimer()
			for _, s := range stores {
				for range tt.callers {
					group.Go(func() {
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							if _, err := s.Commit(b.Context(), []store.Op{put(fmt.Sprint("k", i%5000), value, store.AnyRevision)}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
			}
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// BenchmarkGet reads one record, alone and by many callers.
func BenchmarkGet(b *testing.B) {
	s := openAt(b, newName(), Options{})
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			var next atomic.Int64
			var group sync.WaitGroup
			for range callers {
				group.Go(func() {
					for next.Add(1) <= int64(b.N) {
						if _, err := s.Get(b.Context(), nil, "a"); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gets/s")
		})
	}
}

// BenchmarkOpen opens a store with a snapshot of 10,000 records of 300 bytes.
func BenchmarkOpen(b *testing.B) {
	s := openAt(b, newName(), Options{Slots: 8})
	value := strings.Repeat("v", 300)
	for i := range 20 {
		var ops []store.Op
		for j := range 500 {
			ops = append(ops, put(fmt.Sprintf("k%d-%d", i, j), value, 0))
		}
		if _, err := s.Commit(b.Context(), ops); err != nil {
			b.Fatal(err)
		}
	}
	s.settleSnapshot()
	for b.Loop() {
		openAt(b, s.name, Options{NoCreate: true})
	}
}
