package bitmap_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
)

// fewestAllocs returns what f allocates in a run, on average over runs of them: the least
// of three counts, because the count is the process's, and the runtime allocates for
// itself now and then, when a collection starts.
func fewestAllocs(runs int, f func()) float64 {
	n := testing.AllocsPerRun(runs, f)
	for range 2 {
		n = min(n, testing.AllocsPerRun(runs, f))
	}
	return n
}

// zeroAlloc runs f until it has warmed up: from then on a single allocation among all
// the operations of a run fails. f does thousands of operations.
func zeroAlloc(t *testing.T, name string, f func()) {
	t.Helper()
	for range 10 { // a reserve grows to what a random churn ever needs at once
		f()
	}
	if n := fewestAllocs(1, f); n > 0 {
		t.Errorf("%s: %v allocations in steady state", name, n)
	}
}

// fills are the fills at which the tests want no allocation, as clear ordinals of n.
func fills(n uint64) map[string]uint64 {
	return map[string]uint64{"50 %": n / 2, "99 %": n / 100, "99.99 %": n / 10000}
}

// loaded returns a set over [0, n) with that many clear ordinals at random.
func loaded(n, clear uint64, rng *rand.Rand) *bitmap.Bitmap {
	b := bitmap.New(n)
	b.SetRange(0, n-1)
	for b.Len()-b.Count() < clear {
		b.Clear(rng.Uint64N(n))
	}
	return b
}

// Single ordinals, taken and given back at a steady fill.
func TestFlipsDoNotAllocate(t *testing.T) {
	const ops = 4000
	for _, n := range []uint64{1 << 16, 1 << 20} {
		for fill, clear := range fills(n) {
			for name, take := range map[string]func(b *bitmap.Bitmap, x uint64) uint64{
				"SetNextClear": func(b *bitmap.Bitmap, x uint64) uint64 { y, _ := b.SetNextClear(x); return y },
				"SelectClear+Set": func(b *bitmap.Bitmap, x uint64) uint64 {
					y, _ := b.SelectClear(x % (b.Len() - b.Count()))
					b.Set(y)
					return y
				},
				"BestFit+Set": func(b *bitmap.Bitmap, _ uint64) uint64 { y, _ := b.BestFit(0); b.Set(y); return y },
			} {
				rng := rand.New(rand.NewPCG(n, clear))
				b := loaded(n, clear, rng)
				cursor := uint64(0)
				zeroAlloc(t, fmt.Sprintf("%s+Clear, %d at %s", name, n, fill), func() {
					for range ops {
						cursor = (take(b, cursor) + 1) % n
						x, _ := b.Select(rng.Uint64N(b.Count()))
						b.Clear(x)
					}
				})
				if b.Len()-b.Count() != clear || b.Check() != nil {
					t.Fatalf("%s: %d clear, want %d, %v", name, b.Len()-b.Count(), clear, b.Check())
				}
			}
		}
	}
}

// What only looks never allocates, not even at first; BestFit and MaxClearOrder do
// once, for their summaries.
func TestQueriesDoNotAllocate(t *testing.T) {
	sink := uint64(0)
	for _, n := range []uint64{1 << 16, 1 << 20} {
		for fill, clear := range fills(n) {
			rng := rand.New(rand.NewPCG(n, clear))
			b := loaded(n, clear, rng)
			for name, f := range map[string]func(x uint64) (uint64, bool){
				"Test":        func(x uint64) (uint64, bool) { return 0, b.Test(x) },
				"NextSet":     b.NextSet,
				"NextClear":   b.NextClear,
				"Rank":        func(x uint64) (uint64, bool) { return b.Rank(x), true },
				"Select":      b.Select,
				"SelectClear": b.SelectClear,
				"CountRange":  func(x uint64) (uint64, bool) { return b.CountRange(x/2, x), true },
				"Word":        func(x uint64) (uint64, bool) { return b.Word(x), true },
				"Count":       func(uint64) (uint64, bool) { return b.Count(), b.Full() || b.Empty() },
			} {
				if got := fewestAllocs(1, func() {
					for range 1000 {
						y, _ := f(rng.Uint64N(n))
						sink += y
					}
				}); got != 0 {
					t.Errorf("%s, %d at %s: %v allocations", name, n, fill, got)
				}
			}
			for name, f := range map[string]func(k uint64) (uint64, bool){
				"BestFit":       func(k uint64) (uint64, bool) { return b.BestFit(int(k % 21)) },
				"MaxClearOrder": func(uint64) (uint64, bool) { k, ok := b.MaxClearOrder(); return uint64(k), ok },
			} {
				zeroAlloc(t, fmt.Sprintf("%s, %d at %s", name, n, fill), func() {
					for k := range uint64(1000) {
						y, _ := f(k)
						sink += y
					}
				})
			}
		}
	}
}

// Pages that stand unused in their slots are taken for others: with 16 of them, the
// next page costs no allocation.
func TestStandingSparesAreUsed(t *testing.T) {
	build := func(more uint64) float64 {
		return fewestAllocs(5, func() {
			b := bitmap.New(1 << 18)
			for page := range uint64(17) { // one more than may stand: it is in the reserve
				b.Set(page << 12)
			}
			for page := range uint64(17) {
				b.Clear(page << 12)
			}
			for page := range more {
				b.Set((40 + page) << 12)
			}
		})
	}
	without, with := build(1), build(2)
	if with != without {
		t.Errorf("a page beside 16 unused ones costs %v allocations", with-without)
	}
}

// Batches.
func TestBatchesDoNotAllocate(t *testing.T) {
	for _, n := range []uint64{1 << 16, 1 << 20} {
		for fill, clear := range fills(n) {
			rng := rand.New(rand.NewPCG(n, clear))
			b := loaded(n, clear, rng)
			dst := make([]uint64, min(16, clear))
			cursor := uint64(0)
			zeroAlloc(t, fmt.Sprintf("SetNextN+Clear, %d at %s", n, fill), func() {
				for range 200 {
					if got := b.SetNextN(dst, cursor); got != len(dst) {
						t.Fatalf("SetNextN took %d of %d", got, len(dst))
					}
					cursor = (dst[len(dst)-1] + 1) % n
					for range dst {
						x, _ := b.Select(rng.Uint64N(b.Count()))
						b.Clear(x)
					}
				}
			})
		}
	}
}

// Ranges of a page and of 256 pages, aligned and not, set and cleared again,
// in an empty, a full and a broken set of several sizes.
func TestRangesDoNotAllocate(t *testing.T) {
	for _, last := range []uint64{1<<24 - 1, 1<<32 - 1, top} {
		for _, size := range []uint64{1 << 12, 1 << 20} {
			for _, off := range []uint64{0, 1, 63, 64, 4095, 5000} {
				for _, start := range []string{"empty", "full", "broken"} {
					b := newSet(last)
					switch start {
					case "full":
						b.SetRange(0, last)
					case "broken":
						for i := range uint64(3000) {
							b.Set(i * 1399)
						}
					}
					zeroAlloc(t, fmt.Sprintf("range of %d at %d, last %d, %s", size, off, last, start), func() {
						for at := uint64(0); at < 1<<22; at += max(size, 1<<15) {
							lo := at + off
							b.SetRange(lo, lo+size-1)
							b.ClearRange(lo, lo+size-1)
							b.SetRange(lo+17, lo+size-18)
							b.ClearRange(lo+size/2, lo+size-1)
							b.ClearRange(lo, lo+size/2)
						}
					})
				}
			}
		}
	}
}

// One range of any size, its two edges far apart and not aligned.
func TestRangesOfEveryOrderDoNotAllocate(t *testing.T) {
	for order := 1; order < 64; order += 2 {
		b := newSet(top)
		zeroAlloc(t, fmt.Sprintf("range of 2^%d", order), func() {
			for range 20 {
				b.SetRange(7, 7+(1<<order))
				b.ClearRange(8, 6+(1<<order))
				b.ClearRange(7, 7+(1<<order))
			}
		})
		if err := b.Check(); err != nil || !b.Empty() {
			t.Fatalf("%v, %v", err, b)
		}
	}
}

// Nodes below a root of 2^24, whose children lie in one array, come and go.
func TestNodesInPagesDoNotAllocate(t *testing.T) {
	for _, order := range []int{19, 21, 24} {
		b := bitmap.NewPow2(order)
		zeroAlloc(t, "ranges below a root of 2^24", func() {
			b.SetRange(4096*3+7, 1<<17)
			b.SetRange(1<<18+4096*3+7, 1<<18+1<<17)
			b.ClearRange(0, 1<<19-1)
		})
	}
}

// Blocks of several sizes out of one set at 90 %: one is given back, one
// of the same size is taken where it fits best.
func TestBestFitDoesNotAllocate(t *testing.T) {
	type block struct {
		lo uint64
		k  int
	}
	for _, n := range []uint64{1 << 16, 1 << 20, 1 << 24} {
		for _, cut := range []uint64{0, 3} { // 3: what is taken does not start aligned
			rng := rand.New(rand.NewPCG(n, 9))
			b := bitmap.New(n)
			var live []block
			take := func(k int) {
				lo, ok := b.BestFit(k)
				if !ok {
					t.Fatalf("no room for 2^%d in %d", k, n)
				}
				b.SetRange(lo+cut, lo+(1<<k-1))
				live = append(live, block{lo, k})
			}
			for b.Count() < n/10*9 {
				room, _ := b.MaxClearOrder()
				take(min(room, 3+rng.IntN(bits.Len64(n)-7)))
			}
			zeroAlloc(t, fmt.Sprintf("BestFit, n %d, cut %d, %d blocks", n, cut, len(live)), func() {
				for range 1000 {
					i := rng.IntN(len(live))
					v := live[i]
					live[i] = live[len(live)-1]
					live = live[:len(live)-1]
					b.ClearRange(v.lo+cut, v.lo+(1<<v.k-1))
					take(v.k)
				}
			})
			if err := b.Check(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
