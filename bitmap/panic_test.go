package bitmap_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
)

// mustPanic runs f and returns what it panics with, a message of this package.
func mustPanic(t *testing.T, name string, f func()) (msg string) {
	t.Helper()
	defer func() {
		t.Helper()
		r := recover()
		if r == nil {
			t.Errorf("%s does not panic", name)
			return
		}
		if msg = fmt.Sprint(r); !strings.HasPrefix(msg, "bitmap: ") {
			t.Errorf("%s panics with %q, not with a message of the package", name, msg)
		}
	}()
	f()
	return ""
}

// An ordinal out of range panics in every method that takes one, and the set
// is as it was.
func TestOutOfRangePanics(t *testing.T) {
	sets := map[string]func() *bitmap.Bitmap{
		"zero value": func() *bitmap.Bitmap { return &bitmap.Bitmap{} },
		"n=0":        func() *bitmap.Bitmap { return bitmap.New(0) },
	}
	for _, last := range lasts {
		if last == top {
			continue // nothing is out of range
		}
		sets[fmt.Sprintf("last %d, untouched", last)] = func() *bitmap.Bitmap { return newSet(last) }
		sets[fmt.Sprintf("last %d, touched", last)] = func() *bitmap.Bitmap {
			b := newSet(last)
			for _, x := range landmarks(last) {
				b.Set(x)
			}
			return b
		}
		sets[fmt.Sprintf("last %d, full", last)] = func() *bitmap.Bitmap {
			b := newSet(last)
			b.SetRange(0, last)
			return b
		}
	}
	for name, set := range sets {
		b := set()
		was := b.Clone()
		last, ok := b.Last()
		bad := []uint64{last + 1, last + 2, last + 64, last | 4095 + 1, 1 << 63, top - 1, top}
		if !ok {
			bad = append(bad, 0)
		}
		for _, x := range bad {
			if ok && x <= last {
				continue // wrapped round
			}
			for method, f := range map[string]func(){
				"Test":         func() { b.Test(x) },
				"Word":         func() { b.Word(x) },
				"Set":          func() { b.Set(x) },
				"Clear":        func() { b.Clear(x) },
				"NextSet":      func() { b.NextSet(x) },
				"NextClear":    func() { b.NextClear(x) },
				"SetNextClear": func() { b.SetNextClear(x) },
				"SetNextN":     func() { b.SetNextN(make([]uint64, 1), x) },
				"SetNextN0":    func() { b.SetNextN(nil, x) },
				"Rank":         func() { b.Rank(x) },
				"SetRange":     func() { b.SetRange(0, x) },
				"ClearRange":   func() { b.ClearRange(0, x) },
				"CountRange":   func() { b.CountRange(0, x) },
				"SetRange1":    func() { b.SetRange(x, x) },
				"ClearRange1":  func() { b.ClearRange(x, x) },
				"CountRange1":  func() { b.CountRange(x, x) },
			} {
				msg := mustPanic(t, fmt.Sprintf("%s: %s(%d)", name, method, x), f)
				if !strings.Contains(msg, fmt.Sprint(x)) {
					t.Errorf("%s: %s(%d) panics with %q, which does not name the ordinal", name, method, x, msg)
				}
			}
		}
		if !b.Equal(was) || b.Check() != nil {
			t.Errorf("%s: the set changed: %v, was %v", name, b, was)
		}
	}
}

// Ranges are closed, so lo above hi is a mistake, not an empty range.
func TestInvertedRangePanics(t *testing.T) {
	for _, last := range lasts {
		if last == 0 {
			continue
		}
		b := newSet(last)
		b.Set(last)
		for _, r := range [][2]uint64{{1, 0}, {last, 0}, {last, last - 1}, {last/2 + 1, last / 2}} {
			for method, f := range map[string]func(lo, hi uint64) uint64{
				"SetRange": b.SetRange, "ClearRange": b.ClearRange, "CountRange": b.CountRange,
			} {
				mustPanic(t, fmt.Sprintf("last %d: %s(%d, %d)", last, method, r[0], r[1]), func() { f(r[0], r[1]) })
			}
		}
		if b.Count() != 1 || !b.Test(last) || b.Check() != nil {
			t.Errorf("last %d: the set changed: %v", last, b)
		}
	}
}

// Orders.
func TestOrderPanics(t *testing.T) {
	for _, last := range []uint64{0, 4095, 5000, top} {
		for _, touched := range []bool{false, true} {
			b := newSet(last)
			if touched {
				b.Set(0)
			}
			for _, k := range []int{-1, -64, math.MinInt} {
				mustPanic(t, fmt.Sprintf("BestFit(%d)", k), func() { b.BestFit(k) })
			}
			for _, k := range []int{65, 66, 128, math.MaxInt} { // a run that no set has is not a mistake
				if lo, ok := b.BestFit(k); ok {
					t.Errorf("last %d: BestFit(%d) = %d", last, k, lo)
				}
			}
		}
	}
	mustPanic(t, "BestFit(-1) over no ordinals", func() { bitmap.New(0).BestFit(-1) })
	for _, order := range []int{-1, 65, 128, math.MinInt} {
		mustPanic(t, fmt.Sprintf("NewPow2(%d)", order), func() { bitmap.NewPow2(order) })
	}
}

// A rank that does not exist is an answer, not a mistake.
func TestRanksBeyondTheEnd(t *testing.T) {
	for _, last := range lasts {
		for _, fill := range []string{"empty", "one", "full"} {
			w := newTwin(t, last)
			switch fill {
			case "one":
				w.set(last / 2)
			case "full":
				w.fill(0, last, true)
			}
			for _, i := range []uint64{0, 1, last - 1, last, last + 1, last + 2, top - 1, top} {
				w.ranks(i)
			}
		}
	}
}
