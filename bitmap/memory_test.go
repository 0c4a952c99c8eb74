package bitmap_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/ipalloc/ipalloc/bitmap"
)

// heap returns the bytes that are live after a collection.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first may leave finalizers and caches behind
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// weigh returns how many bytes of heap one set that build makes keeps alive: the
// growth over many of them, divided. What else the process allocates meanwhile counts as
// well, so the middle one of three measurements is taken.
func weigh(copies int, build func() *bitmap.Bitmap) float64 {
	var growth [3]float64
	for i := range growth {
		sets := make([]*bitmap.Bitmap, copies)
		before := heap()
		for i := range sets {
			sets[i] = build()
		}
		after := heap()
		runtime.KeepAlive(sets)
		growth[i] = (float64(after) - float64(before)) / float64(copies)
	}
	slices.Sort(growth[:])
	return growth[1]
}

// spares is what the reserve may keep beyond what the ordinals need: 64 pages with
// their order summaries, 8 inner nodes, and the lists of both.
const spares = 64*(576+64) + 8*(576+512+3*64) + 4096

// An untouched set is one small object.
func TestNewCostsOneAllocation(t *testing.T) {
	for _, last := range lasts {
		var b *bitmap.Bitmap
		if n := fewestAllocs(10, func() { b = newSet(last) }); n != 1 {
			t.Errorf("last %d: %v allocations, want 1", last, n)
		}
		runtime.KeepAlive(b)
	}
	if size := unsafe.Sizeof(bitmap.Bitmap{}); size >= 1024 {
		t.Errorf("a Bitmap has %d bytes, want less than 1 KiB", size)
	}
	if got := weigh(1000, func() *bitmap.Bitmap { return bitmap.NewPow2(64) }); got >= 1024 {
		t.Errorf("an untouched 2^64 costs %.0f bytes, want less than 1 KiB", got)
	}
}

// sparse are ways to scatter ordinals over 2^64 so that each is alone in its page.
// The last two make the most inner nodes that can be: at each of the nine levels
// above a page the path forks in two, or one side of each fork is a lone page.
var sparse = map[string]func() []uint64{
	"random": func() (out []uint64) {
		rng := rand.New(rand.NewPCG(12, 12))
		for range 2000 {
			out = append(out, rng.Uint64())
		}
		return out
	},
	"stride of a page": func() []uint64 { return stride(2000, 1<<12) },
	"stride of 2^18":   func() []uint64 { return stride(2000, 1<<18) },
	"stride of 2^18+1": func() []uint64 { return stride(2000, 1<<18+1) },
	"stride of 2^40":   func() []uint64 { return stride(2000, 1<<40) },
	"stride of 2^53":   func() []uint64 { return stride(2000, 1<<53) },
	"pairs far apart": func() []uint64 {
		var out []uint64
		for i := range uint64(1000) {
			out = append(out, i<<54, i<<54|1<<53)
		}
		return out
	},
	"forks": func() (out []uint64) {
		for i := range uint64(512) {
			x := uint64(0)
			for level := range 9 {
				x |= i >> level & 1 << (12 + 6*level)
			}
			out = append(out, x)
		}
		return out
	},
	"combs": func() (out []uint64) {
		for root := range uint64(16) {
			for level := range 9 {
				out = append(out, root<<60|1<<(12+6*level)&(1<<60-1))
			}
		}
		return out
	},
}

func stride(n, by uint64) (out []uint64) {
	for i := range n {
		out = append(out, i*by)
	}
	return out
}

// sparser are ways to scatter them over 2^24, where an array finds pages: two pages in
// as many slots of 2^18 as make the array worth its memory, and in all of them.
var sparser = map[string]func() []uint64{
	"pairs in a quarter of 2^24": func() []uint64 { return stride(32, 1<<17) },
	"pairs in 2^24":              func() []uint64 { return stride(128, 1<<17) },
	"one in 2^20":                func() []uint64 { return stride(16, 1<<20) },
}

// Isolated ordinals, at most 2 KiB each, set in an empty space or clear in a
// full one, order summaries included.
func TestIsolatedOrdinalsCost(t *testing.T) {
	for name, ordinals := range sparse {
		isolated(t, name, 64, ordinals())
	}
	for name, ordinals := range sparser {
		isolated(t, name, 24, ordinals())
	}
}

func isolated(t *testing.T, name string, order int, xs []uint64) {
	for _, holes := range []bool{false, true} {
		for _, fit := range []bool{false, true} {
			got := weigh(max(1, 2000/len(xs)), func() *bitmap.Bitmap {
				b := bitmap.NewPow2(order)
				if holes {
					last, _ := b.Last()
					b.SetRange(0, last)
				}
				for _, x := range xs {
					if holes {
						b.Clear(x)
					} else {
						b.Set(x)
					}
				}
				if fit {
					b.BestFit(0)
				}
				return b
			})
			each := got / float64(len(xs))
			t.Logf("%s, holes %v, summaries %v: %.0f bytes each", name, holes, fit, each)
			if got > 2048*float64(len(xs))+4096 {
				t.Errorf("%s, holes %v, summaries %v: %.0f bytes each, want at most 2 KiB", name, holes, fit, each)
			}
		}
	}
}

// What is wholly set or clear in an aligned run is two bits in a node that is
// there anyway, but for the spares.
func TestAlignedRunsCost(t *testing.T) {
	const n = 1 << 20 // 256 pages, 4 inner nodes under the root
	inner := float64(6*(1<<10+512) + spares)
	for name, c := range map[string]struct {
		build func(b *bitmap.Bitmap)
		most  float64
	}{
		"full, one by one": {func(b *bitmap.Bitmap) {
			for x := range uint64(n) {
				b.Set(x)
			}
		}, inner},
		"filled and emptied at random": {func(b *bitmap.Bitmap) {
			rng := rand.New(rand.NewPCG(13, 13))
			for !b.Full() {
				b.SetNextClear(rng.Uint64N(n))
			}
			for !b.Empty() {
				x, ok := b.NextSet(rng.Uint64N(n))
				if !ok {
					x, _ = b.NextSet(0)
				}
				b.Clear(x)
			}
		}, inner},
		"every other page": {func(b *bitmap.Bitmap) {
			for x := uint64(0); x < n; x += 8192 {
				b.SetRange(x, x+4095)
			}
		}, inner},
		"every other page, then half of it gone": {func(b *bitmap.Bitmap) {
			for x := uint64(0); x < n; x += 2 {
				b.Set(x)
			}
			b.ClearRange(0, n-1)
			b.BestFit(0)
		}, inner},
		"whole": {func(b *bitmap.Bitmap) {
			b.SetRange(0, n-1)
		}, 2048},
	} {
		got := weigh(2, func() *bitmap.Bitmap {
			b := bitmap.New(n)
			c.build(b)
			return b
		})
		t.Logf("%s: %.0f bytes", name, got)
		if got > c.most {
			t.Errorf("%s: %.0f bytes, want at most %.0f", name, got, c.most)
		}
	}
	for k := range 64 { // one aligned run of any size in 2^64
		got := weigh(8, func() *bitmap.Bitmap {
			b := bitmap.NewPow2(64)
			b.SetRange(1<<63, 1<<63|(1<<k-1))
			return b
		})
		if got > 4096 {
			t.Errorf("one run of 2^%d in 2^64: %.0f bytes, want at most 4 KiB", k, got)
		}
	}
	if got := weigh(4, func() *bitmap.Bitmap { // and its two edges when it is not aligned
		b := bitmap.NewPow2(64)
		b.SetRange(12345, 1<<63+12345)
		return b
	}); got > 4096+spares {
		t.Errorf("one unaligned run in 2^64: %.0f bytes", got)
	}
}

// The memory of a churn is that of its fill, not of its history.
func TestChurnDoesNotGrow(t *testing.T) {
	for _, last := range []uint64{1<<20 - 1, 1<<24 - 1, top} {
		rng := rand.New(rand.NewPCG(14, 14))
		got := weigh(1, func() *bitmap.Bitmap {
			b := newSet(last)
			for range 3000 { // ranges of all sizes, anywhere
				lo := rng.Uint64() & last
				k := rng.UintN(64)
				hi := min(last, lo|(1<<k-1))
				b.SetRange(lo, hi)
				b.ClearRange(rng.Uint64()&lo, hi)
			}
			b.ClearRange(0, last)
			b.Set(77)
			return b
		})
		t.Logf("last %d: %.0f bytes", last, got)
		if got > spares+4096 {
			t.Errorf("last %d: one ordinal after a churn costs %.0f bytes, want at most the spares, %d", last, got, spares+4096)
		}
	}
}
