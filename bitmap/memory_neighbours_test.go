package bitmap_test

import (
	"math/rand/v2"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
)

// Neighbours that come and go beside isolated ordinals, at every distance,
// leave nothing of the forks that led to them.
func TestNeighboursLeaveNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 15))
	xs := make([]uint64, 300)
	for i := range xs {
		xs[i] = rng.Uint64()
	}
	for _, holes := range []bool{false, true} {
		got := weigh(1, func() *bitmap.Bitmap {
			b := bitmap.NewPow2(64)
			set, clear := b.Set, b.Clear
			if holes {
				b.SetRange(0, top)
				set, clear = clear, set
			}
			for _, x := range xs {
				set(x)
			}
			for bit := 12; bit < 64; bit += 6 {
				for _, x := range xs {
					set(x ^ 1<<bit)
					clear(x ^ 1<<bit)
				}
			}
			return b
		})
		each := (got - spares) / float64(len(xs))
		t.Logf("holes %v: %.0f bytes each beyond the spares", holes, each)
		if each > 2048 {
			t.Errorf("holes %v: %.0f bytes each, want at most 2 KiB and the spares", holes, each)
		}
	}
}
