package bench

import (
	"fmt"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
)

// loadedBitmap returns a bitmap of 2^order ordinals of which 1/free is clear, and
// as many ordinals as a window holds, of either state.
func loadedBitmap(order int, free uint64) (m *bitmap.Bitmap, at []uint64) {
	m = bitmap.NewPow2(order)
	total := uint64(1) << order
	m.SetRange(0, total-1)
	for i := range total / free {
		m.Clear(scatter(i, order))
	}
	at = make([]uint64, window)
	for i := range at {
		at[i] = scatter(uint64(i)*(total/window), order)
	}
	return m, at
}

// eachBitmap runs a benchmark at every size and fill.
func eachBitmap(b *testing.B, f func(b *testing.B, m *bitmap.Bitmap, at []uint64)) {
	each(b, func(b *testing.B, order int) {
		for _, fill := range fills {
			b.Run("full="+fill.name, func(b *testing.B) {
				m, at := loadedBitmap(order, fill.free)
				f(b, m, at)
			})
		}
	})
}

// BenchmarkBitmapFlip clears a set ordinal and sets it again.
func BenchmarkBitmapFlip(b *testing.B) {
	eachBitmap(b, func(b *testing.B, m *bitmap.Bitmap, at []uint64) {
		n := m.Count()
		for i := range at {
			at[i], _ = m.Select(at[i] % n)
		}
		x := random(1)
		for b.Loop() {
			o := at[x.below(windowBits)]
			m.Clear(o)
			m.Set(o)
		}
	})
}

// BenchmarkBitmapNextClear looks for the next clear ordinal from anywhere.
func BenchmarkBitmapNextClear(b *testing.B) {
	eachBitmap(b, func(b *testing.B, m *bitmap.Bitmap, at []uint64) {
		x, sum := random(1), uint64(0)
		for b.Loop() {
			next, _ := m.NextClear(at[x.below(windowBits)])
			sum += next
		}
		sink = sum
	})
}

// BenchmarkBitmapBestFit looks for the best-fitting run of 2^order clear ordinals
// after one ordinal flipped.
func BenchmarkBitmapBestFit(b *testing.B) {
	for _, order := range []int{16, 24} {
		for _, k := range []int{0, 4, 8} {
			b.Run(fmt.Sprintf("%s/full=50/order=%d", size(order), k), func(b *testing.B) {
				m, at := loadedBitmap(order, 2)
				m.ClearRange(1<<(order-1), 1<<(order-1)|1<<12-1) // somewhere for each of them
				m.BestFit(0)                                     // makes the summaries
				x, sum := random(1), uint64(0)
				for b.Loop() {
					if o := at[x.below(windowBits)]; !m.Set(o) {
						m.Clear(o)
					}
					lo, _ := m.BestFit(k)
					sum += lo
				}
				sink = sum
			})
		}
	}
}

// BenchmarkBitmapRank counts the set ordinals below one.
func BenchmarkBitmapRank(b *testing.B) {
	eachBitmap(b, func(b *testing.B, m *bitmap.Bitmap, at []uint64) {
		x, sum := random(1), uint64(0)
		for b.Loop() {
			sum += m.Rank(at[x.below(windowBits)])
		}
		sink = sum
	})
}

// BenchmarkBitmapSelect looks for the i-th set ordinal.
func BenchmarkBitmapSelect(b *testing.B) {
	eachBitmap(b, func(b *testing.B, m *bitmap.Bitmap, at []uint64) {
		n := m.Count()
		for i := range at {
			at[i] %= n
		}
		x, sum := random(1), uint64(0)
		for b.Loop() {
			o, _ := m.Select(at[x.below(windowBits)])
			sum += o
		}
		sink = sum
	})
}

// BenchmarkBitmapSelectClear looks for the i-th clear ordinal.
func BenchmarkBitmapSelectClear(b *testing.B) {
	eachBitmap(b, func(b *testing.B, m *bitmap.Bitmap, at []uint64) {
		n := m.Len() - m.Count()
		for i := range at {
			at[i] %= n
		}
		x, sum := random(1), uint64(0)
		for b.Loop() {
			o, _ := m.SelectClear(at[x.below(windowBits)])
			sum += o
		}
		sink = sum
	})
}

// sink is where results go that nothing else needs.
var sink uint64
