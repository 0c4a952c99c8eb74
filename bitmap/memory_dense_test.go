package bitmap_test

import (
	"math/rand/v2"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
)

// Dense sets, at most 1.3 bits for each ordinal and 1 KiB, order summaries
// included; a quarter more of the constant where a root is over a few pages only.
func TestDenseSetsCost(t *testing.T) {
	for _, n := range []uint64{1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 20} {
		if testing.Short() && n > 1<<16 {
			break
		}
		for _, fit := range []bool{false, true} {
			for name, build := range map[string]func(b *bitmap.Bitmap){
				"random half": func(b *bitmap.Bitmap) {
					rng := rand.New(rand.NewPCG(n, 10))
					for b.Count() < n/2 {
						b.Set(rng.Uint64N(n))
					}
				},
				"full, one by one": func(b *bitmap.Bitmap) {
					for x := range n {
						b.Set(x)
					}
				},
				"full, at random": func(b *bitmap.Bitmap) {
					rng := rand.New(rand.NewPCG(n, 11))
					for !b.Full() {
						b.SetNextClear(rng.Uint64N(n))
					}
				},
				"filled and emptied": func(b *bitmap.Bitmap) {
					for x := range n {
						b.Set(x)
					}
					for x := range n {
						b.Clear(x)
					}
				},
				"every other ordinal": func(b *bitmap.Bitmap) {
					for x := uint64(0); x < n; x += 2 {
						b.Set(x)
					}
				},
			} {
				got := weigh(int(max(2, 1<<18/n)), func() *bitmap.Bitmap {
					b := bitmap.New(n)
					build(b)
					if fit {
						b.BestFit(0)
						b.MaxClearOrder()
					}
					return b
				})
				most := float64(n)*1.3/8 + 1024
				if 4096 < n && n <= 10*4096 {
					most += 256 // a root with all its slots over a few pages
				}
				t.Logf("2^%d, %s, summaries %v: %.0f bytes, %.3f bits an ordinal", order(n), name, fit, got, got*8/float64(n))
				if got > most {
					t.Errorf("2^%d, %s, summaries %v: %.0f bytes, want at most %.0f", order(n), name, fit, got, most)
				}
			}
		}
	}
}

func order(n uint64) (k int) {
	for ; n > 1; n >>= 1 {
		k++
	}
	return k
}
