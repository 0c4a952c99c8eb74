package bench

import (
	"flag"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/bench/internal/thread"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

const (
	// passes of a comparison, in each of which both sides run once.
	passes = 9
	// slice is the time of a side in a pass.
	slice = 3 * time.Millisecond
	// attempts is how often a comparison may be made before it counts as failed.
	attempts = 8
)

// A guard compares two sides, of which the first must not take more than most
// times as long as the second.
type guard struct {
	name  string
	usual float64 // what it was when the bound was set, on an AMD EPYC with Go 1.26
	most  float64
	open  func() (a, b side)
}

// check makes the comparison, again and again while it fails: what disturbs it can
// make either side slower, so only a bound that is never met is not met.
func (g *guard) check(t *testing.T) {
	a, b := g.open()
	best := math.Inf(1)
	for i := range attempts {
		best = min(best, ratio(a, b))
		if best <= g.most {
			t.Logf("%.2f, usually %.2f, at most %.2f; attempt %d", best, g.usual, g.most, i+1)
			return
		}
	}
	t.Errorf("%.2f, usually %.2f, want at most %.2f; the best of %d attempts", best, g.usual, g.most, attempts)
}

// ratio returns how many times as long a takes as b: the median over the passes.
func ratio(a, b side) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	na, nb := calibrate(a), calibrate(b)
	runtime.GC() // not in the middle of what follows
	v := make([]float64, passes)
	for i := range v {
		var ta, tb float64
		if i%2 == 0 {
			ta = timed(a, na)
			tb = timed(b, nb)
		} else {
			tb = timed(b, nb)
			ta = timed(a, na)
		}
		v[i] = ta / tb
	}
	slices.Sort(v)
	return v[passes/2]
}

// calibrate returns how often a side fills a slice, which warms it up too.
func calibrate(s side) int {
	for n := batch; ; {
		took := timed(s, n) * float64(n)
		if f := float64(slice) / max(took, 1); f > 1.2 {
			n = int(float64(n)*min(f, 20)) + 1
		} else {
			return n
		}
	}
}

// timed returns how long one of n takes, in nanoseconds.
func timed(s side, n int) float64 {
	t := thread.Time()
	s(n)
	return float64(thread.Time()-t) / float64(n)
}

// ratios says that times are compared. They are not while the packages of
// "go test ./..." compete for the machine.
var ratios = flag.Bool("ratios", false, "compare times too, as make bench-guard does")

// guards are the comparisons. Both sides run the same code on another size or
// fullness, or the same operation beside a plain bitset, so the ratio depends on how
// the structure grows and hardly on the machine: two kinds of processor agree within
// 25 %, and eight runs on a machine under load within 20 %. A bound lies far enough above the
// usual figure to hold on other machines, and below twice as much, the loss that it has
// to notice. What an operation costs beside another one is guarded by steps.
var guards = []guard{
	{"pair/full=50/bitset", 1.33, 1.7, func() (a, b side) { return pair(16, 2), flatChurned(16, 2).run }},
	{"pair/full=99/bitset", 1.21, 1.6, func() (a, b side) { return pair(16, 100), flatChurned(16, 100).run }},
	{"pair/full=99.99/bitset", 1.15, 1.5, func() (a, b side) { return pair(16, 10000), flatChurned(16, 10000).run }},
	{"pair/size=2^20/full=50/bitset", 1.55, 2, func() (a, b side) { return pair(20, 2), flatChurned(20, 2).run }},
	{"pair/size=2^20/full=99/bitset", 1.33, 1.8, func() (a, b side) { return pair(20, 100), flatChurned(20, 100).run }},
	{"pair/size=2^20/full=99.99/bitset", 1.51, 2, func() (a, b side) { return pair(20, 10000), flatChurned(20, 10000).run }},
	{"pair/size=2^24/full=50/bitset", 1.56, 2, func() (a, b side) { return pair(24, 2), flatChurned(24, 2).run }},
	{"pair/size=2^24/full=99/bitset", 1.36, 2, func() (a, b side) { return pair(24, 100), flatChurned(24, 100).run }},
	{"pair/size=2^24/full=99.99/bitset", 1.69, 2.2, func() (a, b side) { return pair(24, 10000), flatChurned(24, 10000).run }},
	{"pair/full=99/full=50", 1.22, 1.8, func() (a, b side) { return pair(16, 100), pair50() }},

	{"pair/full=50/size=2^20/size=2^16", 1.17, 1.8, func() (a, b side) { return pair(20, 2), pair50() }},
	{"pair/full=99/size=2^20/size=2^16", 1.25, 1.9, func() (a, b side) { return pair(20, 100), pair(16, 100) }},
	{"pair/full=99.99/size=2^20/size=2^16", 1.43, 2, func() (a, b side) { return pair(20, 10000), pair(16, 10000) }},

	{"far/size=2^20/size=2^16", 1, 1.5, func() (a, b side) { return farIn(20), farIn(16) }},
	{"far/size=2^24/size=2^16", 1, 1.5, func() (a, b side) { return farIn(24), farIn(16) }},
	{"far/size=2^64/size=2^16", 1.3, 2, func() (a, b side) { return steps(newFar(pool6, 64).step), farIn(16) }},

	{"range/children=2^12/children=2^6", 4.9, 7.5, func() (a, b side) { return rangeOf(12), rangeOf(6) }},
	{"range/children=2^20/children=2^6", 1.08, 1.7, func() (a, b side) { return rangeOf(20), rangeOf(6) }},
	{"range/children=2^60/children=2^6", 1.1, 1.7, func() (a, b side) { return rangeOf6(60), rangeOf(6) }},

	{"ipv6pair/size=2^64/size=2^40", 1.0, 1.5, func() (a, b side) { return churned6(64).run, churned6(40).run }},
}

func farIn(order int) side { return steps(newFar(pool4, order).step) }

func TestGuardRatios(t *testing.T) {
	if !*ratios {
		t.Skip("ratios are measured by make bench-guard")
	}
	if raced || invariant.Enabled || testing.CoverMode() != "" {
		t.Fatal("ratios say nothing about this build: it has the race detector, assertions or coverage")
	}
	for i := range guards {
		t.Run(guards[i].name, guards[i].check)
	}
}
