package bitmap_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/test/model"
)

const top = uint64(math.MaxUint64)

// lasts are the sizes that every table goes through, as the highest ordinal: one
// below, at and above a word, a page, an inner node of each level that is cheap to
// fill, and the end of uint64.
var lasts = []uint64{
	0, 1, 62, 63, 64, 510, 511, 4094, 4095, 4096, 8191, 1<<18 - 2, 1<<18 - 1, 1 << 18,
	1<<24 - 1, 1<<32 - 1, 1<<40 + 4097, 1<<60 - 1, 1 << 60, 1<<63 + 4, top - 1, top,
}

// newSet returns an empty set over [0, last].
func newSet(last uint64) *bitmap.Bitmap {
	if last == top {
		return bitmap.NewPow2(64)
	}
	return bitmap.New(last + 1)
}

// landmarks are ordinals of [0, last] around every boundary of the structure, near
// both ends.
func landmarks(last uint64) (out []uint64) {
	for _, x := range []uint64{
		0, 1, 62, 63, 64, 65, 4094, 4095, 4096, 4097, 8191, 8192, 1<<18 - 1, 1 << 18, 1<<18 + 4096,
		1<<24 - 1, 1 << 24, 1<<32 + 5, 1<<60 - 1, 1 << 60, 1 << 63,
		last / 3, last &^ 4095, last - 4096, last - 4095, last - 64, last - 63, last - 1, last,
	} {
		if x <= last {
			out = append(out, x)
		}
	}
	return out
}

// A twin is a set and its model, driven together.
type twin struct {
	t testing.TB
	b *bitmap.Bitmap
	m *model.Bitmap
}

func newTwin(t testing.TB, last uint64) *twin {
	return &twin{t, newSet(last), model.NewBitmap(last)}
}

// fill brings [lo, hi] into a state on both sides and compares what changed.
func (w *twin) fill(lo, hi uint64, state bool) {
	w.t.Helper()
	name, do := "ClearRange", w.b.ClearRange
	if state {
		name, do = "SetRange", w.b.SetRange
	}
	if got, want := do(lo, hi), w.m.Fill(lo, hi, state); got != want {
		w.t.Fatalf("%s(%d, %d) = %d, want %d, last %d", name, lo, hi, got, want, w.m.Last)
	}
}

func (w *twin) set(x uint64) {
	w.t.Helper()
	if got, want := w.b.Set(x), w.m.Fill(x, x, true) == 1; got != want {
		w.t.Fatalf("Set(%d) = %v, want %v, last %d", x, got, want, w.m.Last)
	}
}

func (w *twin) clear(x uint64) {
	w.t.Helper()
	if got, want := w.b.Clear(x), w.m.Fill(x, x, false) == 1; got != want {
		w.t.Fatalf("Clear(%d) = %v, want %v, last %d", x, got, want, w.m.Last)
	}
}

// same compares the whole state and has the set check itself. It prints the runs
// that differ.
func (w *twin) same(format string, args ...any) {
	w.t.Helper()
	when := fmt.Sprintf(format, args...)
	if err := w.b.Check(); err != nil {
		w.t.Fatalf("last %d, %s: %v", w.m.Last, when, err)
	}
	full := len(w.m.Runs(false)) == 0
	count := w.m.Count(0, w.m.Last)
	if w.b.Count() != count || w.b.Full() != full || w.b.Empty() != (len(w.m.Runs(true)) == 0) {
		w.t.Fatalf("last %d, %s: Count %d, Full %v, Empty %v; want %d, %v", w.m.Last, when, w.b.Count(), w.b.Full(), w.b.Empty(), count, full)
	}
	for _, state := range []bool{true, false} {
		if diff := diffRuns(runsOf(w.b, state), w.m.Runs(state)); diff != "" {
			w.t.Fatalf("last %d, %s: runs of state %v differ\n%s", w.m.Last, when, state, diff)
		}
	}
}

func runsOf(b *bitmap.Bitmap, state bool) (out [][2]uint64) {
	seq := b.ZeroRuns()
	if state {
		seq = b.Runs()
	}
	for lo, hi := range seq {
		out = append(out, [2]uint64{lo, hi})
		if n := len(out); n > 1 && lo <= out[n-2][1] {
			break // out of order, and perhaps without end
		}
	}
	return out
}

// diffRuns returns the runs that are in one of got and want only, "" if none is.
func diffRuns(got, want [][2]uint64) string {
	in := map[[2]uint64]bool{}
	for _, r := range want {
		in[r] = true
	}
	var s strings.Builder
	for i, r := range got {
		if !in[r] {
			fmt.Fprintf(&s, "  has  %d-%d\n", r[0], r[1])
		} else if i > 0 && r[0] <= got[i-1][1] {
			fmt.Fprintf(&s, "  has  %d-%d out of order\n", r[0], r[1])
		}
		delete(in, r)
	}
	for _, r := range want {
		if in[r] {
			fmt.Fprintf(&s, "  want %d-%d\n", r[0], r[1])
		}
	}
	return s.String()
}

// asks compares every query that takes an ordinal, at x.
func (w *twin) asks(x uint64) {
	w.t.Helper()
	b, m := w.b, w.m
	w.answer("NextSet", x, pair(b.NextSet(x)), pair(m.Next(x, true)))
	w.answer("NextClear", x, pair(b.NextClear(x)), pair(m.Next(x, false)))
	below := uint64(0)
	if x > 0 {
		below = m.Count(0, x-1)
	}
	w.answer("Rank", x, pair(b.Rank(x), true), pair(below, true))
	w.answer("Test", x, pair(0, b.Test(x)), pair(0, m.Test(x)))
	word := uint64(0)
	for i := range uint64(64) {
		if y := x&^63 + i; y > m.Last || m.Test(y) {
			word |= 1 << i
		}
	}
	w.answer("Word", x, pair(b.Word(x), true), pair(word, true))
}

// ranks compares Select and SelectClear at rank i.
func (w *twin) ranks(i uint64) {
	w.t.Helper()
	w.answer("Select", i, pair(w.b.Select(i)), pair(w.m.Select(i, true)))
	w.answer("SelectClear", i, pair(w.b.SelectClear(i)), pair(w.m.Select(i, false)))
}

// fits compares BestFit of every order and MaxClearOrder.
func (w *twin) fits() {
	w.t.Helper()
	most := -1
	for k := range 66 {
		want := pair(w.m.BestFit(k))
		w.answer("BestFit", uint64(k), pair(w.b.BestFit(k)), want)
		if want.ok {
			most = k
		}
	}
	if k, ok := w.b.MaxClearOrder(); ok != (most >= 0) || ok && k != most {
		w.t.Fatalf("MaxClearOrder() = %d %v, want %d, last %d: %v", k, ok, most, w.m.Last, w.b)
	}
}

type found struct {
	x  uint64
	ok bool
}

func pair(x uint64, ok bool) found { return found{x, ok} }

func (w *twin) answer(name string, x uint64, got, want found) {
	w.t.Helper()
	if got.ok != want.ok || want.ok && got.x != want.x {
		w.t.Fatalf("%s(%d) = %d %v, want %d %v, last %d: %v", name, x, got.x, got.ok, want.x, want.ok, w.m.Last, w.b)
	}
}
