package bitmap_test

import (
	"math/rand/v2"
	"testing"
)

// The smallest run that fits, and of those the lowest.
func TestBestFitTakesTheSmallestThenTheLowest(t *testing.T) {
	type run struct{ lo, hi uint64 }
	for _, c := range []struct {
		name  string
		last  uint64
		clear []run // all else is set
		k     int
		want  uint64
		ok    bool
	}{
		{"nothing clear", 255, nil, 0, 0, false},
		{"the only ordinal", 255, []run{{77, 77}}, 0, 77, true},
		{"too small", 255, []run{{76, 77}}, 2, 0, false},
		{"large enough but not aligned", 255, []run{{77, 80}}, 2, 0, false},
		{"not aligned, half of it", 255, []run{{77, 80}}, 1, 78, true},
		{"small before large", 255, []run{{0, 63}, {100, 101}}, 1, 100, true},
		{"lowest of equals", 255, []run{{200, 201}, {100, 101}, {0, 63}}, 1, 100, true},
		{"exact before larger", 255, []run{{0, 7}, {16, 31}, {64, 67}}, 2, 64, true},
		{"no exact one: next larger", 255, []run{{0, 31}, {64, 71}}, 2, 64, true},
		{"a part of a run is not maximal", 255, []run{{0, 15}, {64, 71}}, 3, 64, true},
		{"remainder of an unaligned run", 255, []run{{1, 15}, {64, 65}}, 0, 1, true},
		{"across words", 255, []run{{0, 127}, {128, 191}}, 6, 128, true},
		{"two words", 255, []run{{0, 63}, {128, 255}}, 7, 128, true},
		{"whole page", 8191, []run{{4096, 8191}}, 12, 4096, true},
		{"page in a node, smaller elsewhere", 1<<18 - 1, []run{{0, 8191}, {12288, 16383}}, 12, 12288, true},
		{"across pages", 1<<18 - 1, []run{{4096, 16383}}, 13, 8192, true},
		{"tail of n counts for what it is", 4999, []run{{4096, 4999}}, 9, 4096, true},
		{"tail, remainder", 4999, []run{{4096, 4999}}, 3, 4992, true},
		{"tail, too large", 4999, []run{{4096, 4999}}, 10, 0, false},
		{"2^40 in 2^64", top, []run{{1 << 41, 1<<41 + 1<<40 - 1}, {1 << 50, 1<<51 - 1}}, 40, 1 << 41, true},
		{"end of uint64", top, []run{{top - 255, top}}, 8, top - 255, true},
		{"last ordinal", top, []run{{top, top}}, 0, top, true},
		{"half of 2^64", top, []run{{1 << 63, top}}, 63, 1 << 63, true},
		{"half of 2^64 is not 2^64", top, []run{{1 << 63, top}}, 64, 0, false},
	} {
		b := newSet(c.last)
		b.SetRange(0, c.last)
		for _, r := range c.clear {
			b.ClearRange(r.lo, r.hi)
		}
		if lo, ok := b.BestFit(c.k); ok != c.ok || ok && lo != c.want {
			t.Errorf("%s: BestFit(%d) = %d %v, want %d %v", c.name, c.k, lo, ok, c.want, c.ok)
		}
		if err := b.Check(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// One set ordinal in 2^64 leaves exactly one maximal run of each order: its
// buddy. Taking the best fit of every order, smallest first, fills the space.
func TestBestFitBuddies(t *testing.T) {
	for _, x := range []uint64{0, 1, 63, 64, 4095, 4096, 1<<18 + 77, 1 << 40, 1<<60 - 1, 1 << 63, 0x123456789abcdef0, top - 4096, top} {
		w := newTwin(t, top)
		w.set(x)
		for k := range 64 {
			want := (x>>k ^ 1) << k
			if lo, ok := w.b.BestFit(k); !ok || lo != want {
				t.Fatalf("%d set: BestFit(%d) = %d %v, want %d", x, k, lo, ok, want)
			}
		}
		if lo, ok := w.b.BestFit(64); ok {
			t.Fatalf("%d set: BestFit(64) = %d", x, lo)
		}
		for k := range 64 {
			lo, ok := w.b.BestFit(0)
			if !ok || lo != (x>>k^1)<<k {
				t.Fatalf("%d set, orders below %d taken: BestFit(0) = %d %v", x, k, lo, ok)
			}
			if m, ok := w.b.MaxClearOrder(); !ok || m != 63 {
				t.Fatalf("%d set: MaxClearOrder = %d %v", x, m, ok)
			}
			w.fill(lo, lo+(1<<k-1), true)
			w.same("order %d taken", k)
		}
		if !w.b.Full() {
			t.Fatalf("%d set: not full after every order", x)
		}
	}
}

// An empty set over any n is the binary digits of n, largest first; a touched
// set that is empty again says the same.
func TestBestFitOfEmptySets(t *testing.T) {
	for _, last := range lasts {
		w := newTwin(t, last)
		w.fits()
		w.set(last / 2)
		w.clear(last / 2)
		w.fits()
		w.fits()
		w.fill(0, last, true)
		w.fits()
		w.fill(0, last, false)
		w.fits()
	}
}

// Summaries are refreshed lazily, so an answer must be right after each kind
// of change that comes between two questions.
func TestBestFitAfterEveryKindOfChange(t *testing.T) {
	for _, last := range []uint64{100, 4095, 8191, 1<<18 - 1, 1<<18 + 4999, 1<<24 - 1, top} {
		rng := rand.New(rand.NewPCG(last, 3))
		w := newTwin(t, last)
		w.fill(0, last, true)
		for range 12 { // free blocks of all sizes, some of them aligned
			k := rng.UintN(65)
			lo := rng.Uint64() & last
			w.fill(lo&^(1<<k-1), min(lo|(1<<k-1), last), false)
		}
		x := func() uint64 { return min(rng.Uint64()>>rng.UintN(64), last) }
		for step := range 150 {
			name := "Set"
			switch y := x(); step % 7 {
			case 0:
				w.set(y)
			case 1:
				name = "Clear"
				w.clear(y)
			case 2:
				name = "SetRange"
				w.fill(y, min(last, y|1<<rng.UintN(64)), true)
			case 3:
				name = "ClearRange"
				w.fill(y, min(last, y|1<<rng.UintN(64)), false)
			case 4:
				name = "SetNextClear"
				if z, ok := w.b.SetNextClear(y); ok {
					w.m.Fill(z, z, true)
				}
			case 5:
				name = "SetNextN"
				dst := make([]uint64, 70)
				for _, z := range dst[:w.b.SetNextN(dst, y)] {
					w.m.Fill(z, z, true)
				}
			case 6:
				name = "best fit taken"
				k := rng.IntN(20)
				if lo, ok := w.b.BestFit(k); ok {
					w.fill(lo, lo+(1<<k-1), true)
				}
			}
			w.fits()
			w.same("step %d, %s", step, name)
		}
	}
}

// Sets that are untouched, and empty again.
func TestFitsOfEmptySets(t *testing.T) {
	for _, last := range lasts {
		w := newTwin(t, last)
		w.fits()
		w.set(0)
		w.clear(0)
		w.fits()
	}
}
