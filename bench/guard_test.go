package bench

import (
	"flag"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// start is the origin of wall times.
var start = time.Now()

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
	t := threadTime()
	s(n)
	return float64(threadTime()-t) / float64(n)
}

// measured skips the test unless ratios mean something: they are measured only
// when asked for by name, which is how make bench-guard asks, and not while the
// packages of "go test ./..." compete for the machine.
func measured(t *testing.T) {
	t.Helper()
	switch {
	case !strings.Contains(flag.Lookup("test.run").Value.String(), "Guard"):
		t.Skip("ratios are measured by make bench-guard, or go test -run Guard")
	case raced, invariant.Enabled, testing.CoverMode() != "":
		t.Skip("this build is not the one that is used")
	}
}

// guards are the comparisons. A bound lies far enough above the usual figure to
// hold on other machines, and below twice as much, which is what it is there to
// notice. Most compare with the pair at 50 %, which the first one holds.
var guards = []guard{
	{"pair/full=50/bitset", 1.33, 1.7, func() (a, b side) { return pair(16, 2), flatChurned(16, 2).run }},
	{"pair/full=99/bitset", 1.21, 1.6, func() (a, b side) { return pair(16, 100), flatChurned(16, 100).run }},
	{"pair/full=99.99/bitset", 1.15, 1.5, func() (a, b side) { return pair(16, 10000), flatChurned(16, 10000).run }},
	{"pair/full=99/full=50", 1.22, 1.8, func() (a, b side) { return pair(16, 100), pair50() }},

	{"far/size=2^16/pair", 2.25, 3, func() (a, b side) { return steps(newFar(pool4, 16).step), pair50() }},
	{"far/size=2^20/pair", 2.15, 3, func() (a, b side) { return steps(newFar(pool4, 20).step), pair50() }},
	{"far/size=2^24/pair", 2.17, 3, func() (a, b side) { return steps(newFar(pool4, 24).step), pair50() }},
	{"far/size=2^64/pair", 2.7, 3.9, func() (a, b side) { return steps(newFar(pool6, 64).step), pair50() }},

	{"pair/full=50/size=2^20/size=2^16", 1.17, 1.8, func() (a, b side) { return pair(20, 2), pair50() }},
	{"pair/full=99/size=2^20/size=2^16", 1.25, 1.9, func() (a, b side) { return pair(20, 100), pair(16, 100) }},
	{"pair/full=99.99/size=2^20/size=2^16", 1.43, 2, func() (a, b side) { return pair(20, 10000), pair(16, 10000) }},

	{"range/children=2^6/pair", 2.9, 4.4, func() (a, b side) { return rangeOf(6), pair50() }},
	{"range/children=2^12/children=2^6", 4.9, 7.5, func() (a, b side) { return rangeOf(12), rangeOf(6) }},
	{"range/children=2^20/children=2^6", 1.08, 1.7, func() (a, b side) { return rangeOf(20), rangeOf(6) }},
	{"range/children=2^60/children=2^6", 0.9, 1.5, func() (a, b side) { return rangeOf6(60), rangeOf(6) }},

	{"batch/work=pair/pair", 0.7, 1.1, func() (a, b side) { return batches(), pair50() }},
	{"batch/work=fill/fill", 0.33, 0.5, func() (a, b side) { return batchFill(), fill() }},
	{"fill/pair", 0.55, 0.85, func() (a, b side) { return fill(), pair50() }},
	{"full/pair", 0.47, 0.8, func() (a, b side) { return full(24), pair50() }},
	{"has/pair", 0.87, 1.35, func() (a, b side) { return asked(), pair50() }},
	{"all/fill", 0.37, 0.58, func() (a, b side) { return all(), fill() }},

	{"mixed/live=1000/pair", 8.2, 12.5, func() (a, b side) { return steps(newMixed(1000).step), pair50() }},
	{"mixed/live=10000/live=100", 1.33, 2, func() (a, b side) { return steps(newMixed(10000).step), steps(newMixed(100).step) }},

	{"ipv6pair/size=2^64/pair", 1.77, 2.7, func() (a, b side) { return churned6(64).run, pair50() }},
	{"ipv6pair/size=2^64/size=2^40", 1.0, 1.5, func() (a, b side) { return churned6(64).run, churned6(40).run }},

	{"snapshot/state=half/4096 fills", 0.3, 0.5, func() (a, b side) { return snapshot(), fills4096() }},
	{"restore/state=half/4096 fills", 0.16, 0.27, func() (a, b side) { return restore(), fills4096() }},

	{"bitmap/nextclear/pair", 1.03, 1.6, func() (a, b side) { return query(20, 100, (*bitmap.Bitmap).NextClear), pair50() }},
	{"bitmap/rank/pair", 2.2, 3.4, func() (a, b side) { return query(20, 2, rank), pair50() }},
	{"bitmap/select/pair", 4.2, 6.4, func() (a, b side) { return query(20, 2, selected), pair50() }},
}

func TestGuardRatios(t *testing.T) {
	measured(t)
	for i := range guards {
		t.Run(guards[i].name, guards[i].check)
	}
}
