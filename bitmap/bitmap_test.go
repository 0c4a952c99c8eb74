package bitmap_test

import (
	"fmt"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
)

// A set of every size says how large it is, before and after it is touched.
func TestSizes(t *testing.T) {
	for _, last := range lasts {
		b := newSet(last)
		for range 2 {
			wantLen := last + 1
			if last == top {
				wantLen = top // saturates
			}
			if got, ok := b.Last(); b.Len() != wantLen || !ok || got != last {
				t.Errorf("last %d: Len %d, Last %d %v", last, b.Len(), got, ok)
			}
			if !b.Empty() || b.Full() || b.Count() != 0 {
				t.Errorf("last %d: Empty %v, Full %v, Count %d of an empty set", last, b.Empty(), b.Full(), b.Count())
			}
			if err := b.Check(); err != nil {
				t.Error(err)
			}
			b.Set(last)
			b.Clear(last) // touched, and empty again
		}
	}
}

func TestNewPow2(t *testing.T) {
	for order := range 65 {
		b := bitmap.NewPow2(order)
		want := top
		if order < 64 {
			want = 1<<order - 1
		}
		if got, ok := b.Last(); !ok || got != want {
			t.Errorf("NewPow2(%d): last %d, want %d", order, got, want)
		}
		if k, ok := b.MaxClearOrder(); !ok || k != order {
			t.Errorf("NewPow2(%d): MaxClearOrder %d %v", order, k, ok)
		}
	}
}

// A set over no ordinals answers everything that takes no ordinal. The zero
// value is one.
func TestNoOrdinals(t *testing.T) {
	for _, b := range []*bitmap.Bitmap{bitmap.New(0), {}} {
		if last, ok := b.Last(); ok {
			t.Errorf("Last() = %d", last)
		}
		if b.Len() != 0 || b.Count() != 0 || !b.Empty() || !b.Full() {
			t.Errorf("Len %d, Count %d, Empty %v, Full %v", b.Len(), b.Count(), b.Empty(), b.Full())
		}
		for name, find := range map[string]func(uint64) (uint64, bool){
			"Select": b.Select, "SelectClear": b.SelectClear,
			"BestFit": func(k uint64) (uint64, bool) { return b.BestFit(int(k)) },
		} {
			for _, i := range []uint64{0, 1, 63, 64, 1 << 40} {
				if x, ok := find(i); ok {
					t.Errorf("%s(%d) = %d", name, i, x)
				}
			}
		}
		if k, ok := b.MaxClearOrder(); ok {
			t.Errorf("MaxClearOrder() = %d", k)
		}
		for range b.All() {
			t.Error("All yields")
		}
		for range b.Zeros() {
			t.Error("Zeros yields")
		}
		if got := append(runsOf(b, true), runsOf(b, false)...); got != nil {
			t.Errorf("runs %v", got)
		}
		if !b.Equal(b.Clone()) || b.Equal(bitmap.New(1)) || bitmap.New(1).Equal(b) {
			t.Error("a set over no ordinals equals its like and nothing else")
		}
		if err := b.Check(); err != nil {
			t.Error(err)
		}
		if got := b.String(); got != "[]:" {
			t.Errorf("String() = %q", got)
		}
	}
}

// Every flip at a landmark, in ascending, descending and interleaved
// order, and every question at every landmark after each. That opens pages on all
// sides of those that are there, so nodes are split and spliced.
func TestFlipsAtLandmarks(t *testing.T) {
	for _, last := range lasts {
		marks := landmarks(last)
		n := len(marks)
		orders := map[string]func(i int) int{
			"ascending":   func(i int) int { return i },
			"descending":  func(i int) int { return n - 1 - i },
			"interleaved": func(i int) int { return i/2 + i%2*(n-1-i/2-i/2) },
		}
		for name, at := range orders {
			w := newTwin(t, last)
			w.askAll(marks) // untouched
			for i := range n {
				w.set(marks[at(i)])
				w.set(marks[at(i)]) // again: no change
				w.same("%s, set %d", name, marks[at(i)])
				w.askAll(marks)
			}
			for i := range n {
				w.clear(marks[at(i)])
				w.clear(marks[at(i)])
				w.same("%s, clear %d", name, marks[at(i)])
			}
			if !w.b.Empty() {
				t.Fatalf("last %d: not empty after all", last)
			}
		}
	}
}

// askAll asks every question at every landmark and rank near one.
func (w *twin) askAll(marks []uint64) {
	for _, x := range marks {
		w.asks(x)
		w.ranks(x)
	}
	w.fits()
	w.ranks(uint64(len(marks)))
	w.ranks(w.m.Count(0, w.m.Last))
	w.ranks(w.m.Count(0, w.m.Last) - 1)
	w.ranks(w.m.Last - w.m.Count(0, w.m.Last))
	w.ranks(w.m.Last + 1 - w.m.Count(0, w.m.Last))
}

// Every range between two landmarks, set and cleared, in sets that are
// empty, full, and broken at the landmarks.
func TestRangesBetweenLandmarks(t *testing.T) {
	for _, last := range lasts {
		marks := landmarks(last)
		if testing.Short() && len(marks) > 12 {
			marks = append(marks[:6:6], marks[len(marks)-6:]...)
		}
		for _, start := range []string{"empty", "full", "broken"} {
			proto := newTwin(t, last)
			if start != "empty" {
				proto.fill(0, last, true)
			}
			for i := 0; start == "broken" && i < len(marks); i += 2 {
				proto.clear(marks[i])
			}
			for i, lo := range marks {
				for _, hi := range marks[i:] {
					for _, state := range []bool{true, false} {
						proto.rangeFrom(lo, max(lo, hi), state, start)
					}
				}
			}
		}
	}
}

// rangeFrom fills [lo, hi] in a copy of w, and undoes that in two ways.
func (w *twin) rangeFrom(lo, hi uint64, state bool, start string) {
	w.t.Helper()
	c := newTwin(w.t, w.m.Last)
	c.b = w.b.Clone()
	for _, r := range w.m.Runs(true) {
		c.m.Fill(r[0], r[1], true)
	}
	if got, want := c.b.CountRange(lo, hi), c.m.Count(lo, hi); got != want {
		w.t.Fatalf("last %d, %s: CountRange(%d, %d) = %d, want %d", c.m.Last, start, lo, hi, got, want)
	}
	c.fill(lo, hi, state)
	c.same("%s, fill [%d, %d] with %v", start, lo, hi, state)
	c.fill(lo, hi, state) // again: no change
	c.fill(lo, hi, !state)
	c.same("%s, fill [%d, %d] with %v and back", start, lo, hi, state)
}

// What Set does for x, SetRange does for [x, x], and the forms do not show
// which was used.
func TestEqualIgnoresHistory(t *testing.T) {
	for _, last := range lasts {
		a, b, c := newSet(last), newSet(last), newSet(last)
		for _, x := range landmarks(last) {
			a.Set(x)
			b.SetRange(x, x)
		}
		c.SetRange(0, last)
		for lo, hi := range a.ZeroRuns() {
			c.ClearRange(lo, hi)
		}
		if !a.Equal(b) || !a.Equal(c) || !c.Equal(b) {
			t.Fatalf("last %d: %v, %v and %v differ", last, a, b, c)
		}
		if !a.Clone().Equal(c.Clone()) {
			t.Fatalf("last %d: copies differ", last)
		}
		x := last / 2
		d := a.Clone()
		if !d.Set(x) {
			d.Clear(x)
		}
		if a.Equal(d) || d.Equal(a) {
			t.Fatalf("last %d: %v equals %v", last, a, d)
		}
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
	}
	one, other := newSet(99), newSet(99)
	one.Set(3)
	other.Set(4) // the same count, elsewhere
	one.Set(9)
	other.Set(9) // and as many runs
	if one.Equal(other) || newSet(99).Equal(newSet(98)) || newSet(top).Equal(newSet(top-1)) {
		t.Error("different sets are equal")
	}
	empty, full := newSet(top), newSet(top) // the counts are both 0 modulo 2^64
	full.SetRange(0, top)
	if empty.Equal(full) || full.Equal(empty) {
		t.Error("an empty and a full 2^64 are equal")
	}
}

// A clone shares nothing, its order summaries and spare pages included.
func TestCloneSharesNothing(t *testing.T) {
	for _, last := range []uint64{4095, 1<<18 - 1, 1<<24 + 77, top} {
		w := newTwin(t, last)
		for _, x := range landmarks(last) {
			w.set(x)
		}
		w.fill(0, last/2, true)
		w.b.BestFit(0)
		for i := range uint64(20) { // leaves spares
			w.clear(min(i<<12+7, last))
			w.set(min(i<<12+7, last))
		}
		c := &twin{t, w.b.Clone(), w.m}
		c.same("clone")
		before := fmt.Sprint(runsOf(w.b, true))
		c.b.SetRange(0, last)
		c.b.ClearRange(last/4, last)
		c.b.BestFit(0)
		if got := fmt.Sprint(runsOf(w.b, true)); got != before {
			t.Fatalf("last %d: a change of the clone shows in the original", last)
		}
		w.same("after changes of the clone")
	}
}

func TestString(t *testing.T) {
	b := bitmap.New(10)
	b.SetRange(0, 3)
	b.Set(7)
	if got, want := b.String(), "[0, 9]: 0-3 7"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	many := bitmap.New(100)
	for x := uint64(0); x < 100; x += 2 {
		many.Set(x)
	}
	if got, want := many.String(), "[0, 99]: 0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30 ..."; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	exact := bitmap.New(100)
	for x := uint64(0); x < 32; x += 2 {
		exact.Set(x)
	}
	if got, want := exact.String(), "[0, 99]: 0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30"; got != want {
		t.Errorf("String() of 16 runs = %q, want %q", got, want)
	}
}
