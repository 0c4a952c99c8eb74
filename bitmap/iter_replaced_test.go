package bitmap_test

import (
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
)

// A set that is replaced as a whole while it is gone through, by another size
// too, ends the iteration or goes on in it, never panics or starts again.
func TestIterateOverReplacedSet(t *testing.T) {
	var forms [][]byte
	for _, last := range []uint64{0, 63, 5000, 1 << 18, top} {
		for _, marks := range [][]uint64{landmarks(last), {last}} {
			b := newSet(last)
			for _, x := range marks {
				b.Set(x)
			}
			set, _ := b.MarshalBinary()
			b.SetRange(0, last)
			for _, x := range marks {
				b.Clear(x)
			}
			cut, _ := b.MarshalBinary()
			forms = append(forms, set, cut)
		}
	}
	for _, form := range forms {
		for _, other := range forms {
			for at := range 12 {
				for _, state := range []bool{true, false} {
					var b bitmap.Bitmap
					if err := b.UnmarshalBinary(form); err != nil {
						t.Fatal(err)
					}
					n, prev := 0, uint64(0)
					step := func(lo, hi uint64) bool {
						if n > at && lo <= prev {
							t.Fatalf("from %x to %x: %d comes after %d", form, other, lo, prev)
						}
						if prev = hi; n == at {
							if err := b.UnmarshalBinary(other); err != nil {
								t.Fatal(err)
							}
						}
						n++
						return n < 400
					}
					if state {
						b.Runs()(step)
					} else {
						b.ZeroRuns()(step)
					}
					n = 0
					seq := b.Zeros()
					if state {
						seq = b.All()
					}
					seq(func(x uint64) bool { return step(x, x) })
				}
			}
		}
	}
}
