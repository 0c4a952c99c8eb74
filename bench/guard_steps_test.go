//go:build invariants

package bench

import (
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// TestGuardSteps counts words and nodes looked at, on average over many operations
// that are the same in each run. No clock is in it: whatever makes a path look at
// more than it did is seen, on any machine and however busy that is.
func TestGuardSteps(t *testing.T) {
	for _, c := range []struct {
		name string
		most float64
		open func() side
	}{
		{"pair/size=2^16/full=50", 4.4, pair50},
		{"pair/size=2^16/full=99", 5.05, func() side { return pair(16, 100) }},
		{"pair/size=2^16/full=99.99", 8.5, func() side { return pair(16, 10000) }},
		{"pair/size=2^20/full=50", 6.6, func() side { return pair(20, 2) }},
		{"pair/size=2^20/full=99", 7.4, func() side { return pair(20, 100) }},
		{"pair/size=2^20/full=99.99", 15.7, func() side { return pair(20, 10000) }},
		{"far/size=2^16", 9.9, func() side { return steps(newFar(pool4, 16).step) }},
		{"far/size=2^24", 9.9, func() side { return steps(newFar(pool4, 24).step) }},
		{"far/size=2^64", 9.9, func() side { return steps(newFar(pool6, 64).step) }},
		{"fill/size=2^16", 2.2, fill},
		{"full/size=2^24", 2.2, func() side { return full(24) }},
		{"has/size=2^16", 2.2, asked},
		{"all/size=2^16", 0.13, all},
		{"stats/size=2^16", 8.8, func() side { return stats(16) }},
		{"range/children=2^6", 11, func() side { return rangeOf(6) }},
		{"range/children=2^12", 140, func() side { return rangeOf(12) }},
		{"range/children=2^20", 11, func() side { return rangeOf(20) }},
		{"range/children=2^60", 4.4, func() side { return rangeOf6(60) }},
		{"batch/work=pair", 2.4, batches},
		{"batch/work=fill", 0.068, batchFill},
		{"mixed/live=100", 16.5, func() side { return steps(newMixed(100).step) }},
		{"mixed/live=1000", 17, func() side { return steps(newMixed(1000).step) }},
		{"mixed/live=10000", 20.5, func() side { return steps(newMixed(10000).step) }},
		{"ipv6pair/size=2^64", 6.6, func() side { return churned6(64).run }},
		{"bitmap/nextclear/size=2^20", 4.1, func() side { return query(20, 100, (*bitmap.Bitmap).NextClear) }},
		{"bitmap/rank/size=2^20", 74, func() side { return query(20, 2, rank) }},
		{"bitmap/select/size=2^20", 74, func() side { return query(20, 2, selected) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			do := c.open()
			do(1 << 15)
			const n = 1 << 15
			before := invariant.Steps()
			do(n)
			got := float64(invariant.Steps()-before) / n
			t.Logf("%.2f steps, at most %.2f", got, c.most)
			if got > c.most {
				t.Errorf("%.2f steps, want at most %.2f", got, c.most)
			}
		})
	}
}

// all is the side of BenchmarkAll: once is one child.
func all() side {
	s, _ := loaded(16, 2, 0)
	return func(n int) {
		for n > 0 {
			for range s.All() {
				if n--; n == 0 {
					break
				}
			}
		}
	}
}
