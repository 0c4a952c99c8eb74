package bench

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset"
)

// states are the states in which memory and snapshots are measured.
var states = []struct {
	name  string
	taken func(order int) uint64 // how many children, scattered; MaxUint64: all
}{
	{"empty", func(int) uint64 { return 0 }},
	{"sparse", func(order int) uint64 { return 1 << order >> 12 }}, // one in 4,096
	{"half", func(order int) uint64 { return 1 << order >> 1 }},
	{"full", func(int) uint64 { return math.MaxUint64 }},
}

// inState returns a set of 2^order children of which n are taken.
func inState(order int, n uint64) *cidrset.Set {
	s, codec := newSet(order)
	if n == math.MaxUint64 {
		must(s.Occupy(pool4))
		return s
	}
	for i := range n {
		must(s.Occupy(codec.Prefix(scatter(i, order))))
	}
	return s
}

// liveHeap returns the bytes of the objects that are reachable.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one left to sweep, and what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// weight returns the bytes of one of what make makes, measured over that many.
func weight[T any](copies int, make1 func() T) float64 {
	held := make([]T, copies)
	before := liveHeap()
	for i := range held {
		held[i] = make1()
	}
	after := liveHeap()
	runtime.KeepAlive(held)
	return (float64(after) - float64(before)) / float64(copies)
}

// BenchmarkMemory reports the memory of a set, whole (B/set) and for each child
// that it could hand out (B/child, bits/child); its time is that of making it.
func BenchmarkMemory(b *testing.B) {
	each(b, func(b *testing.B, order int) {
		for _, st := range states {
			b.Run("state="+st.name, func(b *testing.B) {
				n := st.taken(order)
				for b.Loop() {
					inState(order, n)
				}
				copies := 4 // so that what else the heap does is small beside them
				switch {
				case n == 0 || n == math.MaxUint64:
					copies = 256
				case order == 24:
					copies = 1
				}
				bytes := weight(copies, func() *cidrset.Set { return inState(order, n) })
				perChild := bytes / float64(uint64(1)<<order)
				b.ReportMetric(bytes, "B/set")
				b.ReportMetric(perChild, "B/child")
				b.ReportMetric(8*perChild, "bits/child")
			})
		}
	})
}

// BenchmarkMemoryIsolated reports the memory of 4,096 children that are scattered
// over an IPv6 pool, for each of them (B/taken).
func BenchmarkMemoryIsolated(b *testing.B) {
	each6(b, func(b *testing.B, order int) {
		for b.Loop() {
			isolated(order)
		}
		b.ReportMetric(weight(1, func() *cidrset.Set { return isolated(order) })/window, "B/taken")
	})
}

func isolated(order int) *cidrset.Set {
	s, codec := newSet6(order)
	for i := range uint64(window) {
		must(s.Occupy(codec.Prefix(scatter(i, order))))
	}
	return s
}

// BenchmarkSnapshot makes the snapshot of a set, whose length it
// reports (B/snapshot).
func BenchmarkSnapshot(b *testing.B) {
	snapshots(b, func(b *testing.B, s *cidrset.Set) {
		buf := must(s.MarshalBinary())
		for b.Loop() {
			var err error
			if buf, err = s.MarshalBinary(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(buf)), "B/snapshot")
	})
}

// BenchmarkRestore makes a set of a snapshot.
func BenchmarkRestore(b *testing.B) {
	snapshots(b, func(b *testing.B, s *cidrset.Set) {
		data := must(s.MarshalBinary())
		for b.Loop() {
			if _, err := cidrset.Restore(s.Pool(), s.ChildBits(), data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func snapshots(b *testing.B, f func(b *testing.B, s *cidrset.Set)) {
	for _, order := range []int{16, 20} {
		for _, st := range states {
			b.Run(fmt.Sprintf("%s/state=%s", size(order), st.name), func(b *testing.B) {
				s := inState(order, st.taken(order))
				f(b, s)
			})
		}
	}
}
