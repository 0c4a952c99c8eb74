package bitmap_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

// A watch follows an iteration over single ordinals of one state while the set
// changes under it, and knows what it must yield: an ordinal of a word not yet
// begun is seen as it is when its word comes; one of the current word may be seen
// either way if it was flipped; what is behind does not matter.
type watch struct {
	t      *testing.T
	state  bool
	expect []bool // whether to be yielded; decided when the word comes at the latest
	unsure []bool // flipped while its word was current
	seen   []bool
	at     uint64 // the ordinal last yielded
	began  bool
}

func newWatch(t *testing.T, b *bitmap.Bitmap, state bool) *watch {
	n := b.Len()
	w := &watch{t: t, state: state, expect: make([]bool, n), unsure: make([]bool, n), seen: make([]bool, n)}
	for x := range n {
		w.expect[x] = b.Test(x) == state
	}
	return w
}

func (w *watch) yield(x uint64) {
	if w.began && x <= w.at {
		w.t.Fatalf("%d comes after %d", x, w.at)
	}
	w.at, w.began, w.seen[x] = x, true, true
}

func (w *watch) flipped(lo, hi uint64, set bool) {
	for y := lo; y <= hi; y++ {
		if y/64 > w.at/64 {
			w.expect[y] = set == w.state
		} else if y/64 == w.at/64 {
			w.unsure[y] = true
		}
	}
}

func (w *watch) end() {
	for x := range w.expect {
		if !w.unsure[x] && w.seen[x] != w.expect[x] {
			w.t.Fatalf("ordinal %d: yielded %v, want %v", x, w.seen[x], w.expect[x])
		}
	}
}

// Flips and fills between two steps, anywhere, with words, pages and nodes
// coming and going under the iterator.
func TestIterateWhileChanging(t *testing.T) {
	for seed := range seeds.Each(t, 60, 60) {
		rng := rand.New(rand.NewPCG(seed, 4))
		n := []uint64{1, 64, 65, 200, 4096, 4097, 9000, 30000}[seed%8]
		state := seed/8%2 == 0
		b := bitmap.New(n)
		for range rng.UintN(6) {
			lo := rng.Uint64N(n)
			b.SetRange(lo, lo+rng.Uint64N(n-lo))
		}
		for range rng.UintN(40) {
			b.Set(rng.Uint64N(n))
			b.Clear(rng.Uint64N(n))
		}
		seq := b.Zeros()
		if state {
			seq = b.All()
		}
		w := newWatch(t, b, state)
		for x := range seq {
			w.yield(x)
			switch rng.UintN(40) {
			case 0:
				lo := rng.Uint64N(n)
				hi := lo + rng.Uint64N(n-lo)
				b.SetRange(lo, hi)
				w.flipped(lo, hi, true)
			case 1:
				lo := rng.Uint64N(n)
				hi := lo + rng.Uint64N(n-lo)
				b.ClearRange(lo, hi)
				w.flipped(lo, hi, false)
			case 2, 3, 4, 5: // itself
				if state {
					b.Clear(x)
				} else {
					b.Set(x)
				}
				w.flipped(x, x, !state)
			case 6, 7, 8, 9: // nearby or far ahead
				y := min(n-1, x+rng.Uint64N(130))
				if set := rng.UintN(2) == 0; set {
					b.Set(y)
					w.flipped(y, y, true)
				} else {
					b.Clear(y)
					w.flipped(y, y, false)
				}
			}
		}
		w.end()
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// A run is maximal when it is yielded, but for what was yielded before, and
// nothing of its state is left out between two of them.
func TestRunsWhileChanging(t *testing.T) {
	for seed := range seeds.Each(t, 80, 80) {
		rng := rand.New(rand.NewPCG(seed, 5))
		last := []uint64{0, 63, 64, 199, 4095, 4096, 1<<18 + 4999, top}[seed%8]
		state := seed/8%2 == 0
		b := newSet(last)
		x := func() uint64 { return min(rng.Uint64()>>rng.UintN(64), last) }
		change := func() {
			lo, hi := x(), x()
			if rng.UintN(2) == 0 {
				b.SetRange(min(lo, hi), max(lo, hi))
			} else {
				b.ClearRange(min(lo, hi), max(lo, hi))
			}
			b.Set(x())
			b.Clear(x())
		}
		for range 20 {
			change()
		}
		seq := b.ZeroRuns()
		if state {
			seq = b.Runs()
		}
		all := func(lo, hi uint64, set bool) bool { // [lo, hi] is in one state
			n := b.CountRange(lo, hi)
			return set && n == min(hi-lo, top-1)+1 || !set && n == 0
		}
		from, steps := uint64(0), 0 // the lowest ordinal the next run may hold
		for lo, hi := range seq {
			where := fmt.Sprintf("seed %d: run [%d, %d] of %v", seed, lo, hi, state)
			if lo < from || hi < lo || hi > last {
				t.Fatalf("%s: starts before %d or is no range of [0, %d]", where, from, last)
			}
			if !all(lo, hi, state) || hi < last && b.Test(hi+1) == state || lo > from && !all(from, lo-1, !state) {
				t.Fatalf("%s: not maximal, or leaves out something after %d: %v", where, from, b)
			}
			if steps++; hi >= last-min(last, 1) || steps > 200 {
				break
			}
			from = hi + 2
			change()
		}
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// Iterating allocates nothing for a result.
func TestIteratorsDoNotAllocate(t *testing.T) {
	b := bitmap.New(1 << 18)
	for x := uint64(0); x < 1<<18; x += 3 {
		b.Set(x)
	}
	sum := uint64(0)
	for name, f := range map[string]func(){
		"All": func() {
			for x := range b.All() {
				sum += x
			}
		},
		"Zeros": func() {
			for x := range b.Zeros() {
				sum += x
			}
		},
		"Runs": func() {
			for lo, hi := range b.Runs() {
				sum += lo + hi
			}
		},
		"ZeroRuns": func() {
			for lo, hi := range b.ZeroRuns() {
				sum += lo + hi
			}
		},
	} {
		// A few allocations for the closures, none for the 87,000 results.
		if n := fewestAllocs(3, f); n > 4 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
