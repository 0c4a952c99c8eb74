package bitmap_test

import (
	"bytes"
	"math/bits"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/bitmap/bitsetconv"
	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/internal/test/model"
)

// The small world: every state of a set of 16 ordinals, every operation with every
// operand. The model answers every question once for each state; an operation must
// lead to the state that the pattern says, in which all answers are those of that
// state, whatever the way there. No randomness.
//
// Under the tag "invariants" the set checks itself after each of the 26 million
// operations, which takes a minute; without it, only in the world of 11 ordinals.
const smallN = 16

// smallFit is what the model says of the order summaries of one state.
type smallFit struct {
	best [6]int8 // BestFit of order 0 to 5, -1: none
	max  int8    // MaxClearOrder, -1: none
}

func TestSmallWorld(t *testing.T) {
	if testing.Short() {
		smallWorlds(t, 12, false)
		return
	}
	smallWorlds(t, smallN, invariant.Enabled)
}

func TestSmallWorldChecked(t *testing.T) { smallWorlds(t, 11, true) }

func smallWorlds(t *testing.T, n int, checked bool) {
	fits := make([]smallFit, 1<<n)
	for _, pass := range []struct {
		name string
		do   func(*smallWorld, uint64)
	}{{"questions", (*smallWorld).questions}, {"operations", (*smallWorld).operations}} {
		t.Run(pass.name, func(t *testing.T) { // the second needs what the first records
			const parts = 4
			for i := range parts {
				t.Run("", func(t *testing.T) {
					t.Parallel()
					w := &smallWorld{t: t, n: uint64(n), b: bitmap.New(uint64(n)), fits: fits, checked: checked}
					for p := i; p < 1<<n && !t.Failed(); p += parts {
						pass.do(w, uint64(p))
					}
				})
			}
		})
	}
}

// A smallWorld is one set that is led through the states.
type smallWorld struct {
	t    *testing.T
	n    uint64
	b    *bitmap.Bitmap
	fits []smallFit

	checked bool // whether the set checks itself after each operation
	turn    int  // counts the operations
}

// enter brings the set into the state p.
func (w *smallWorld) enter(p uint64) {
	w.b.ClearRange(0, w.n-1)
	for ; p != 0; p &= p - 1 {
		w.b.Set(uint64(bits.TrailingZeros64(p)))
	}
}

func (w *smallWorld) fail(p uint64, op string, x, got, want any) {
	w.t.Errorf("state %0*b: %s(%v) = %v, want %v", int(w.n), p, op, x, got, want)
}

// at checks that the set is in state p in all it derives.
func (w *smallWorld) at(p uint64, op string, x any) {
	tail := ^uint64(0) << w.n
	if got := w.b.Word(0); got != p|tail {
		w.fail(p, op+", Word", x, got&^tail, p)
	}
	if got, want := w.b.Count(), uint64(bits.OnesCount64(p)); got != want {
		w.fail(p, op+", Count", x, got, want)
	}
	if w.b.Empty() != (p == 0) || w.b.Full() != (p|tail == ^uint64(0)) {
		w.fail(p, op+", Empty and Full", x, w.b.Empty(), w.b.Full())
	}
	f := &w.fits[p]
	w.turn++ // one order in turn: each is asked of every state, after some other operation
	k := w.turn % len(f.best)
	if lo, ok := w.b.BestFit(k); ok != (f.best[k] >= 0) || ok && lo != uint64(f.best[k]) {
		w.fail(p, op+", BestFit", k, lo, f.best[k])
	}
	if k, ok := w.b.MaxClearOrder(); ok != (f.max >= 0) || ok && k != int(f.max) {
		w.fail(p, op+", MaxClearOrder", x, k, f.max)
	}
	if !w.checked {
		return
	}
	if err := w.b.Check(); err != nil {
		w.fail(p, op+", Check", x, err, nil)
	}
}

// questions asks the set in state p everything that does not change it, and
// records what the model says of the fits.
func (w *smallWorld) questions(p uint64) {
	m := model.NewBitmap(w.n - 1)
	for x := range w.n {
		if p>>x&1 != 0 {
			m.Fill(x, x, true)
		}
	}
	f := smallFit{max: -1}
	for k := range f.best {
		f.best[k] = -1
		if lo, ok := m.BestFit(k); ok {
			f.best[k] = int8(lo)
			f.max = int8(k)
		}
	}
	w.fits[p] = f
	w.enter(p)
	tw := &twin{w.t, w.b, m}
	for range f.best {
		w.at(p, "enter", p)
	}
	for x := range w.n {
		tw.asks(x)
		tw.ranks(x)
		for hi := x; hi < w.n; hi++ {
			if got, want := w.b.CountRange(x, hi), m.Count(x, hi); got != want {
				w.fail(p, "CountRange", [2]uint64{x, hi}, got, want)
			}
		}
	}
	tw.ranks(w.n)
	for _, state := range []bool{true, false} {
		if diff := diffRuns(runsOf(w.b, state), m.Runs(state)); diff != "" {
			w.fail(p, "runs", state, diff, "none that differ")
		}
	}
	w.whole(p)
}

// whole checks the operations on the set as a whole.
func (w *smallWorld) whole(p uint64) {
	set, clear := slices.Collect(w.b.All()), slices.Collect(w.b.Zeros())
	for i, x := range append(set, clear...) {
		if (p>>x&1 != 0) != (i < len(set)) {
			w.fail(p, "All and Zeros", x, i < len(set), p>>x&1)
		}
	}
	if !slices.IsSorted(set) || !slices.IsSorted(clear) || len(set)+len(clear) != int(w.n) {
		w.fail(p, "All and Zeros", "", set, clear)
	}
	data, err := w.b.MarshalBinary()
	if err != nil {
		w.fail(p, "MarshalBinary", "", err, nil)
	}
	var c bitmap.Bitmap
	if err := c.UnmarshalBinary(data); err != nil || c.Check() != nil || !c.Equal(w.b) || !w.b.Clone().Equal(&c) {
		w.fail(p, "UnmarshalBinary", data, &c, w.b)
	}
	if again, _ := c.MarshalBinary(); !bytes.Equal(again, data) {
		w.fail(p, "MarshalBinary", "again", again, data)
	}
	s, err := bitsetconv.To(w.b)
	if err != nil || uint64(s.Len()) != w.n || uint64(s.Count()) != w.b.Count() || !bitsetconv.From(s).Equal(w.b) {
		w.fail(p, "bit set", "", s, w.b)
	}
}

// operations does everything that changes the set, from state p and back.
func (w *smallWorld) operations(p uint64) {
	w.enter(p)
	for x := range w.n {
		bit := uint64(1) << x
		if got, want := w.b.Set(x), p&bit == 0; got != want {
			w.fail(p, "Set", x, got, want)
		}
		w.at(p|bit, "Set", x)
		if !w.b.Clear(x) || w.b.Clear(x) {
			w.fail(p|bit, "Clear", x, "wrong", "true, then false")
		}
		w.at(p&^bit, "Clear", x)
		if p&bit != 0 {
			w.b.Set(x)
		}
		for hi := x; hi < w.n; hi++ {
			w.ranges(p, x, hi)
		}
		w.next(p, x)
	}
	w.at(p, "all and back", p)
	if err := w.b.Check(); err != nil {
		w.fail(p, "all and back, Check", p, err, nil)
	}
}

func (w *smallWorld) ranges(p, lo, hi uint64) {
	mask := ^uint64(0) << lo & (^uint64(0) >> (63 - hi))
	if got, want := w.b.SetRange(lo, hi), uint64(bits.OnesCount64(mask&^p)); got != want {
		w.fail(p, "SetRange", [2]uint64{lo, hi}, got, want)
	}
	w.at(p|mask, "SetRange", hi)
	if got := w.b.ClearRange(lo, hi); got != hi-lo+1 {
		w.fail(p|mask, "ClearRange", [2]uint64{lo, hi}, got, hi-lo+1)
	}
	w.at(p&^mask, "ClearRange", hi)
	for m := p & mask; m != 0; m &= m - 1 {
		w.b.Set(uint64(bits.TrailingZeros64(m)))
	}
	if got, want := w.b.ClearRange(lo, hi), uint64(bits.OnesCount64(mask&p)); got != want {
		w.fail(p, "ClearRange", [2]uint64{lo, hi}, got, want)
	}
	for m := p & mask; m != 0; m &= m - 1 {
		w.b.Set(uint64(bits.TrailingZeros64(m)))
	}
}

// next checks what finds clear ordinals from x and takes them.
func (w *smallWorld) next(p, x uint64) {
	var order [smallN]uint64 // the clear ordinals from x on, wrapping
	n := 0
	for i := range w.n {
		if y := (x + i) % w.n; p>>y&1 == 0 {
			order[n] = y
			n++
		}
	}
	clear := order[:n]
	y, ok := w.b.SetNextClear(x)
	if ok != (n > 0) || ok && y != clear[0] {
		w.fail(p, "SetNextClear", x, y, clear)
	}
	if ok {
		w.at(p|1<<y, "SetNextClear", x)
		w.b.Clear(y)
	}
	var buf [smallN + 2]uint64
	for _, k := range []int{0, 1, 3, int(w.n), int(w.n) + 1} {
		want := clear[:min(k, n)]
		if got := w.b.SetNextN(buf[:k], x); !slices.Equal(buf[:got], want) {
			w.fail(p, "SetNextN", x, buf[:got], want)
		}
		after := p
		for _, y := range want {
			after |= 1 << y
		}
		w.at(after, "SetNextN", x)
		for _, y := range want {
			w.b.Clear(y)
		}
	}
}
