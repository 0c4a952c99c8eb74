//go:build invariants

package bitmap_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// Steps are words and nodes looked at. Every bound below is a multiple of the
// number of levels, 64^levels >= n, words included: a set of 2^12 has two levels
// (a page, a word), one of 2^64 eleven. None depends on how full the set is.

// levels returns log64 of the size of [0, last], rounded up, at least 2.
func levels(last uint64) (n uint64) {
	for n = 1; last >= 64; last >>= 6 {
		n++
	}
	return max(n, 2)
}

// steps returns how many steps f takes.
func steps(f func()) uint64 {
	before := invariant.Steps()
	f()
	return invariant.Steps() - before
}

// worst keeps the most expensive call of each operation.
type worst map[string]uint64

func (w worst) run(op string, f func()) { w[op] = max(w[op], steps(f)) }

// pointBounds are the bounds of operations on one ordinal. A descent looks at one
// node a level.
//
// A search goes down twice at most: once to where x is, and once more, from the
// nearest later slot that has the state. Rank adds up to 64 counts a level and the
// 64 of one child that lies wholly below; Select goes through as many. A flip
// descends four times (find, count, summaries, and once more when a page has to be
// made), and may pull a spare out of the tree and let go of a few nodes; one that
// has to find its ordinal first searches as well.
func pointBounds(last uint64) map[string]uint64 {
	l := levels(last)
	return map[string]uint64{
		"Test": l, "Word": l,
		"NextSet": 2*l + 2, "NextClear": 2*l + 2,
		"Rank": 65*l + 64, "Select": 65*l + 64*l, "SelectClear": 65*l + 64*l,
		"CountRange": 2 * (66*l + 64),
		"Set":        6*l + 4, "Clear": 6*l + 4,
		"SetNextClear": 8*l + 8,
	}
}

// stepSets are sets of several sizes and fills, the clear ordinals of the fuller
// ones so rare that what lies between must not be looked at.
func stepSets(t *testing.T, visit func(name string, b *bitmap.Bitmap, x func() uint64)) {
	for _, last := range []uint64{1<<12 - 1, 1<<18 - 1, 1<<20 - 1, 1<<24 - 1, 1<<24 + 77, 1<<32 - 1, top} {
		rng := rand.New(rand.NewPCG(last, 15))
		x := func() uint64 {
			if rng.UintN(2) == 0 {
				return min(rng.Uint64()>>rng.UintN(64), last) // all magnitudes
			}
			return rng.Uint64() & last
		}
		for _, free := range []uint64{0, 1, 100, 5000} {
			b := newSet(last)
			b.SetRange(0, last)
			for range free {
				b.Clear(x())
			}
			visit(fmt.Sprintf("last %d, %d clear", last, free), b, x)
			c := newSet(last)
			for range free {
				c.Set(x())
			}
			visit(fmt.Sprintf("last %d, %d set", last, free), c, x)
		}
		half := newSet(last)
		for i := range min(last, 1<<20) {
			if rng.Uint64()&1 == 0 {
				half.Set(i)
			}
		}
		visit(fmt.Sprintf("last %d, random half of the first 2^20", last), half, x)
	}
}

// Single ordinals.
func TestStepsOfPoints(t *testing.T) {
	stepSets(t, func(name string, b *bitmap.Bitmap, x func() uint64) {
		w := worst{}
		last, _ := b.Last()
		for range 400 {
			x, y := x(), x()
			lo, hi := min(x, y), max(x, y)
			w.run("Test", func() { b.Test(x) })
			w.run("Word", func() { b.Word(x) })
			w.run("NextSet", func() { b.NextSet(x) })
			w.run("NextClear", func() { b.NextClear(x) })
			w.run("Rank", func() { b.Rank(x) })
			w.run("CountRange", func() { b.CountRange(lo, hi) })
			if !b.Empty() {
				w.run("Select", func() { b.Select(y % b.Count()) })
			}
			if !b.Full() {
				w.run("SelectClear", func() { b.SelectClear(y % max(1, last-b.Rank(last))) })
			}
			var set, clear bool
			w.run("Set", func() { set = b.Set(x) })
			w.run("Clear", func() { clear = b.Clear(y) })
			if set {
				w.run("Clear", func() { b.Clear(x) })
			}
			if clear {
				w.run("Set", func() { b.Set(y) })
			}
			w.run("SetNextClear", func() {
				var ok bool
				if lo, ok = b.SetNextClear(x); !ok {
					lo = last
				}
			})
			w.run("Clear", func() { b.Clear(lo) })
		}
		for op, most := range pointBounds(last) {
			if w[op] > most {
				t.Errorf("%s: %s takes %d steps, want at most %d", name, op, w[op], most)
			}
		}
	})
}

// The bounds would hold for a meter that does not count: each operation looks at every
// node on the way to its ordinal.
func TestStepsAreCounted(t *testing.T) {
	b := newSet(1<<24 - 1)
	for _, x := range []uint64{0, 1, 2, 1 << 12, 1 << 18} { // the page of 0 is below two other nodes
		b.Set(x)
	}
	for op, f := range map[string]func(){
		"Test": func() { b.Test(0) }, "Word": func() { b.Word(0) },
		"NextSet": func() { b.NextSet(0) }, "NextClear": func() { b.NextClear(0) },
		"Rank": func() { b.Rank(0) }, "Select": func() { b.Select(0) }, "SelectClear": func() { b.SelectClear(0) },
		"CountRange": func() { b.CountRange(0, 0) },
		"Set":        func() { b.Set(0) }, "Clear": func() { b.Clear(1) },
		"SetNextClear": func() { b.SetNextClear(5) },
	} {
		if got := steps(f); got < 3 {
			t.Errorf("%s takes %d steps, which reads less than its way", op, got)
		}
	}
}

// rangeBound is the bound of a range that cuts nothing but its own edges: at each
// of the levels of both edges, 64 slots and the step into each; one word after the
// other in the two pages; twice, since a range of whole slots may have to be put
// together from below first. Then the way to the pages at both edges once more.
func rangeBound(last uint64) uint64 { return 2*(66*levels(last)+64) + 4*levels(last) }

// SetRange over 2^40 ordinals is as cheap as over 2^6: the same bound, and
// aligned ranges of every size take no more than one node full of slots.
func TestStepsOfRanges(t *testing.T) {
	for _, base := range []uint64{0, 1 << 45, 1 << 63, top - 1<<46 + 1} {
		for k := range 45 {
			for _, off := range []uint64{0, 1, 63, 4095, 1<<k/3 + 77} {
				b := newSet(top)
				b.Set(base ^ 1<<50) // a tree to start from
				lo, hi := base+off, base+off+(1<<k-1)
				if hi < lo {
					continue
				}
				w := worst{}
				w.run("set", func() { b.SetRange(lo, hi) })
				w.run("count", func() { b.CountRange(lo, hi) })
				w.run("set again", func() { b.SetRange(lo, hi) })
				w.run("clear", func() { b.ClearRange(lo, hi) })
				w.run("clear again", func() { b.ClearRange(lo, hi) })
				most := rangeBound(top)
				if off == 0 {
					// Down to the node whose slots it fills, all 64 of them at most, with two
					// steps for each and the way once more for counts and summaries.
					most = 4*levels(top) + 2*64
				}
				for op, got := range w {
					if op == "count" {
						if got > pointBounds(top)["CountRange"] {
							t.Errorf("2^%d from %d: %s takes %d steps", k, lo, op, got)
						}
					} else if got > most {
						t.Errorf("2^%d from %d: %s takes %d steps, want at most %d", k, lo, op, got, most)
					}
				}
			}
		}
	}
}

// A range costs, beyond its own edges, only the nodes that it cuts off: here
// n pages that hold one ordinal each, and the inner nodes above them.
func TestStepsOfCuts(t *testing.T) {
	for _, n := range []uint64{1, 10, 100, 1000} {
		for _, by := range []uint64{1 << 12, 1 << 18, 1 << 40, 1 << 50} {
			b := newSet(top)
			for i := range n {
				b.Set(i*by + 5)
			}
			got := steps(func() { b.SetRange(0, n*by-1) })
			if most := rangeBound(top) + 2*n; got > most {
				t.Errorf("cutting %d pages every %d: %d steps, want at most %d", n, by, got, most)
			}
		}
	}
}

// Best fit with summaries warm. One descent finds the run; what
// flipped since the last question is asked again: one slot for each level of the
// way to it, and all 64 of a node that the flip made: a page, an inner node, and
// one more where the first flip of all makes the way to n.
func TestStepsOfFits(t *testing.T) {
	stepSets(t, func(name string, b *bitmap.Bitmap, x func() uint64) {
		last, _ := b.Last()
		l := levels(last)
		b.BestFit(0)
		w := worst{}
		for i := range 300 {
			k := i % 66
			b.MaxClearOrder()
			w.run("warm BestFit", func() { b.BestFit(k) })
			w.run("warm MaxClearOrder", func() { b.MaxClearOrder() })
			x := x()
			if !b.Set(x) {
				b.Clear(x)
			}
			w.run("BestFit after a flip", func() { b.BestFit(k) })
		}
		for op, most := range map[string]uint64{
			"warm BestFit": l, "warm MaxClearOrder": l,
			"BestFit after a flip": 2*l + 3*64,
		} {
			if w[op] > most {
				t.Errorf("%s: %s takes %d steps, want at most %d", name, op, w[op], most)
			}
		}
		const flips = 500
		for range flips {
			x := x()
			if !b.Set(x) {
				b.Clear(x)
			}
		}
		if got, most := steps(func() { b.BestFit(0) }), flips*(l+2*64)+l; got > most {
			t.Errorf("%s: BestFit after %d flips takes %d steps, want at most %d", name, flips, got, most)
		}
	})
}

// Best fit among many runs none of which is the right one.
func TestStepsOfFitsInFragments(t *testing.T) {
	const n = 1 << 22
	b := bitmap.New(n)
	b.SetRange(0, n-1)
	for x := uint64(0); x < n; x += 64 { // 65,536 runs of 2^5
		b.ClearRange(x, x+31)
	}
	b.ClearRange(n-4096, n-4096+127) // and one of 2^7 near the end
	b.BestFit(0)
	for k, want := range map[int]uint64{0: 0, 5: 0, 6: n - 4096, 7: n - 4096} {
		var lo uint64
		got := steps(func() { lo, _ = b.BestFit(k) })
		if lo != want || got > levels(n-1) {
			t.Errorf("BestFit(%d) = %d in %d steps, want %d in at most %d", k, lo, got, want, levels(n-1))
		}
	}
	if got := steps(func() { b.BestFit(8) }); got > levels(n-1) {
		t.Errorf("BestFit(8), of which there is none, takes %d steps", got)
	}
}

// A batch looks at each word once: a descent for each word that has one of
// the ordinals, whether the set is empty or full but for them.
func TestStepsOfBatches(t *testing.T) {
	stepSets(t, func(name string, b *bitmap.Bitmap, x func() uint64) {
		last, _ := b.Last()
		l := levels(last)
		for _, k := range []int{1, 64, 1000} {
			dst := make([]uint64, k)
			c := b.Clone()
			got := steps(func() { dst = dst[:c.SetNextN(dst, x())] })
			words := uint64(1)
			for i := range dst {
				if i > 0 && dst[i]/64 != dst[i-1]/64 {
					words++
				}
			}
			if most := (words + 2) * (6*l + 4); got > most {
				t.Errorf("%s: SetNextN of %d in %d words takes %d steps, want at most %d", name, len(dst), words, got, most)
			}
		}
	})
}

// An iteration costs a search for each word that has a result, or each run.
func TestStepsOfIterators(t *testing.T) {
	b := newSet(top)
	for i := range uint64(1000) {
		b.SetRange(i<<50, i<<50+9)
	}
	l := levels(top)
	got := steps(func() {
		for range b.All() {
		}
	})
	if most := 1001 * (3*l + 2); got > most {
		t.Errorf("All over 1,000 words takes %d steps, want at most %d", got, most)
	}
	got = steps(func() {
		for range b.Runs() {
		}
		for range b.ZeroRuns() {
		}
	})
	if most := 2 * 1002 * (4*l + 4); got > most {
		t.Errorf("Runs and ZeroRuns over 1,000 runs take %d steps, want at most %d", got, most)
	}
}
