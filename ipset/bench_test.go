package ipset

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// BenchmarkEngine is an AutoAssign and the release of its address through the engine on a memory store, in a /26 with some
// addresses held by handles of their own.
func BenchmarkEngine(b *testing.B) {
	for _, used := range []int{0, 32, 62} {
		b.Run(fmt.Sprintf("used=%d", used), func(b *testing.B) {
			w := newWorld(b, alloc.Config{}, poolOf("a", "10.0.0.0/16", 26))
			for i := range used {
				w.assign(want("h", 1, fmt.Sprintf("handle-%033d", i)))
			}
			a := want("h", 1, fmt.Sprintf("handle-%033d", 99))
			b.ReportAllocs()
			for b.Loop() {
				got, err := w.AutoAssign(bg, a)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := w.ReleaseIPs(bg, alloc.Release{Address: got.V4[0].Address, Guard: alloc.Guard{Seq: got.V4[0].Seq}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFirstBlock is the first address of a host that has no block, in clusters of different size.
func BenchmarkFirstBlock(b *testing.B) {
	for _, blocks := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprintf("blocks=%d", blocks), func(b *testing.B) {
			w := newWorld(b, alloc.Config{}, poolOf("a", "10.0.0.0/8", 26))
			for i := range blocks {
				w.assign(want(fmt.Sprint("old", i/20), 64, ""))
			}
			e := w.engine(w.store) // a new engine, with nothing cached
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				host := fmt.Sprint("new", i)
				if _, err := e.AutoAssign(bg, want(host, 1, "h")); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if _, err := e.ReleaseByHandle(bg, "h"); err != nil {
					b.Fatal(err)
				}
				if _, err := e.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner(host)}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// full returns a world whose pool has all its addresses assigned, to hosts with 20 blocks each.
func full(t testing.TB, prefix string) *world {
	w := newWorld(t, alloc.Config{}, poolOf("a", prefix, 26))
	n := 1 << (26 - netip.MustParsePrefix(prefix).Bits())
	for i := range n {
		w.assign(want(fmt.Sprint("old", i/20), 64, ""))
	}
	return w
}

// BenchmarkFull is an AutoAssign that finds nothing, in pools of different size.
func BenchmarkFull(b *testing.B) {
	for _, prefix := range []string{"10.0.0.0/22", "10.0.0.0/16", "10.0.0.0/10"} {
		b.Run("pool="+prefix[9:], func(b *testing.B) {
			w := full(b, prefix)
			for b.Loop() {
				got, err := w.AutoAssign(bg, want("new", 1, "h"))
				if err != nil || len(got.V4) != 0 || got.Short[0].Reason != alloc.ReasonFull {
					b.Fatal(got, err)
				}
			}
		})
	}
}

// BenchmarkBorrow takes and releases the only free address of a full pool, by a host that has no block.
func BenchmarkBorrow(b *testing.B) {
	for _, prefix := range []string{"10.0.0.0/22", "10.0.0.0/16", "10.0.0.0/10"} {
		b.Run("pool="+prefix[9:], func(b *testing.B) {
			w := full(b, prefix)
			if _, err := w.ReleaseIPs(bg, alloc.Release{Address: ip("10.0.0.77")}); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				got, err := w.AutoAssign(bg, want("new", 1, "h"))
				if err != nil || len(got.V4) != 1 {
					b.Fatal(got, err)
				}
				if _, err := w.ReleaseIPs(bg, alloc.Release{Address: got.V4[0].Address}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLoad loads a snapshot of ten million addresses in 156,250 blocks, each with a handle of 40 bytes. It is
// skipped in short mode: it takes minutes to build.
func BenchmarkLoad(b *testing.B) {
	if testing.Short() {
		b.Skip("builds ten million allocations")
	}
	w := newWorld(b, alloc.Config{}, poolOf("a", "10.0.0.0/8", 26))
	const n = 10_000_000
	for i := range n {
		a := want(fmt.Sprint("host", i/64/20), 1, fmt.Sprintf("k8s-pod-network.%024d", i))
		if _, err := w.AutoAssign(bg, a); err != nil {
			b.Fatal(err)
		}
	}
	data, err := w.store.MarshalBinary()
	if err != nil {
		b.Fatal(err)
	}
	built := liveHeap() - uint64(len(data))
	runtime.KeepAlive(w)
	w = nil
	b.ResetTimer()
	start := time.Now()
	m, err := store.RestoreMemory(data)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(time.Since(start).Seconds(), "s-load")
	b.ReportMetric(float64(built)/1e9, "GB-built")
	b.ReportMetric(float64(len(data))/1e9, "GB-snapshot")
	b.ReportMetric(float64(liveHeap()-uint64(len(data)))/1e9, "GB-loaded")
	runtime.KeepAlive(data)
	if have, _, err := m.List(bg, store.Range{}); err != nil || len(have) < n {
		b.Fatal(len(have), err)
	}
}

// liveHeap returns the bytes that are still reachable.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// BenchmarkOwnerOf2000 is an assignment and its release for an owner of 2,000 blocks, and an assignment of owners of 20 and of 2,000
// that finds all blocks full and claims one more, which is given back before the next, outside the time.
func BenchmarkOwnerOf2000(b *testing.B) {
	owner := func(b *testing.B, n, free int) *world {
		w := newWorld(b, alloc.Config{}, poolOf("a", "10.0.0.0/8", 26))
		for range n {
			w.assign(want("h", 64, ""))
		}
		for _, bl := range w.blocksOf("h")[:free] {
			if _, err := w.ReleaseIPs(bg, alloc.Release{Address: bl.Addr()}); err != nil {
				b.Fatal(err)
			}
		}
		return w
	}
	b.Run("assign", func(b *testing.B) {
		w := owner(b, 2000, 1)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := w.ReleaseIPs(bg, alloc.Release{Address: w.assign(want("h", 1, "p")).V4[0].Address}); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, n := range []int{20, 2000} {
		b.Run(fmt.Sprint("claim/", n), func(b *testing.B) {
			w := owner(b, n, 0)
			b.ReportAllocs()
			for b.Loop() {
				block := w.assign(want("h", 1, "p")).V4[0].Block
				b.StopTimer()
				w.releaseHandle("p")
				if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Prefix: block, Owner: alloc.HostOwner("h"), OnlyEmpty: true}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkSpaces is an AutoAssign and the release of its address in a store with 10,000 blocks: of the space without a name, with
// a pool for 10,000 hosts; of one named space that is the same; and of 10,000 spaces with a pool and a host each. It stays with one
// host ("one"), or goes round all of them ("round"). The three take turns of 100 calls in one process. "x-named" is how much more
// the median turn in many spaces takes than one in a named space, "x-default" than one without.
func BenchmarkSpaces(b *testing.B) {
	const n, turn, sides = 10_000, 100, 3
	asks := make([]alloc.AssignArgs, n)
	for i := range n {
		asks[i] = want(fmt.Sprintf("host-%05d", i), 1, fmt.Sprintf("handle-%033d", i))
	}
	var engines [sides][]*Engine
	for side := range sides {
		e, err := New(store.NewMemory(), Options{Cache: 1 << 15})
		if err != nil {
			b.Fatal(err)
		}
		for i := range n {
			in := e
			if side > 0 {
				in = inSpace(b, e, fmt.Sprintf("tenant-%05d", i*(side-1)))
			}
			if side == 2 || i == 0 {
				if err := in.AddPool(bg, poolOf("a", "10.0.0.0/8", 26)); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := in.AutoAssign(bg, asks[i]); err != nil {
				b.Fatal(err)
			}
			engines[side] = append(engines[side], in)
		}
	}
	var took [sides][]time.Duration
	var next [sides]int
	pairs := func(b *testing.B, side, step, times int) {
		start := time.Now()
		for range times {
			i := next[side]
			next[side] = (i + step) % n
			got, err := engines[side][i].AutoAssign(bg, asks[i])
			if err != nil {
				b.Fatal(err)
			}
			if _, err := engines[side][i].ReleaseIPs(bg, alloc.Release{Address: got.V4[0].Address, Guard: alloc.Guard{Seq: got.V4[0].Seq}}); err != nil {
				b.Fatal(err)
			}
		}
		took[side] = append(took[side], time.Since(start))
	}
	for _, step := range []int{0, 1} {
		b.Run([]string{"one", "round"}[step], func(b *testing.B) {
			for side := range sides {
				pairs(b, side, step, n) // warm
				took[side] = nil
			}
			for b.Loop() {
				for side := range sides {
					pairs(b, side, step, turn)
				}
			}
			var median [sides]float64
			for side := range sides {
				slices.Sort(took[side])
				median[side] = float64(took[side][len(took[side])/2]) / turn
			}
			b.ReportMetric(median[0], "ns/default")
			b.ReportMetric(median[2]/median[0], "x-default")
			b.ReportMetric(median[2]/median[1], "x-named")
			for side, name := range []string{"allocs/default", "allocs/named", "allocs/many"} {
				b.ReportMetric(testing.AllocsPerRun(1000, func() { pairs(b, side, step, 1) }), name)
			}
		})
	}
}
