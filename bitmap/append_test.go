package bitmap_test

import (
	"math"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
)

// BM7: more than there are is all there are, however many were asked for.
func TestAppendNextClearOfAll(t *testing.T) {
	b := bitmap.New(100)
	b.SetRange(3, 97)
	for _, k := range []int{5, 6, math.MaxInt - 1, math.MaxInt} {
		if got := b.AppendNextClear([]uint64{42}, 50, k); !slices.Equal(got, []uint64{42, 98, 99, 0, 1, 2}) {
			t.Errorf("k %d: %v, want 42 and all clear ordinals from 50 on", k, got)
		}
	}
	for _, k := range []int{0, -1, math.MinInt} {
		if got := b.AppendNextClear([]uint64{42}, 50, k); !slices.Equal(got, []uint64{42}) {
			t.Errorf("k %d: %v, want nothing appended", k, got)
		}
	}
}
