package bitmap_test

import (
	"bytes"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
)

// The small world again, with the tree under it: [0, last] is cut into a few
// atoms, and every state is a subset of the atoms. The cuts lie at, just before
// and just after the boundaries of words, pages and nodes, so that states differ
// in which nodes there are, how deep they hang, and what they leave out.
var atomWorlds = []struct {
	name  string
	last  uint64
	start []uint64 // the first ordinal of each atom but the first
}{
	{"words of a page", 4095, []uint64{1, 63, 64, 128, 129, 2048, 4032, 4095}},
	{"pages of a node", 1<<18 - 1, []uint64{4095, 4096, 8192, 8193, 1 << 17, 1<<18 - 4096, 1<<18 - 1}},
	{"tail in a word", 5000, []uint64{1, 4096, 4097, 4160, 4992, 4999, 5000}},
	{"tail in a lone page", 1 << 18, []uint64{64, 4096, 1<<18 - 4096, 1<<18 - 1, 1 << 18}},
	{"levels from the low end", top, []uint64{1, 64, 1 << 12, 1 << 18, 1 << 24, 1 << 36, 1 << 60}},
	{"levels from the high end", top, []uint64{top - 1<<60 + 1, top - 1<<36 + 1, top - 1<<24 + 1, top - 1<<18 + 1, top - 1<<12 + 1, top - 63, top}},
	{"inside one slot", top, []uint64{1<<40 + 1<<12, 1<<40 + 1<<12 + 5, 1<<40 + 1<<13, 1<<40 + 1<<18, 1<<40 + 1<<24 + 1, 1 << 42}},
	{"tail of a tree", 1<<63 + 5, []uint64{1 << 30, 1<<63 - 1, 1 << 63, 1<<63 + 1, 1<<63 + 5}},
}

func TestAtoms(t *testing.T) {
	for _, world := range atomWorlds {
		t.Run(world.name, func(t *testing.T) {
			a := &atoms{t: t, last: world.last, start: append([]uint64{0}, world.start...)}
			n := len(a.start)
			step := 1
			if testing.Short() {
				step = 5
			}
			for p := 0; p < 1<<n; p += step {
				a.state(p)
			}
		})
	}
}

type atoms struct {
	t     *testing.T
	last  uint64
	start []uint64
}

func (a *atoms) end(i int) uint64 {
	if i+1 < len(a.start) {
		return a.start[i+1] - 1
	}
	return a.last
}

// build makes state p: by setting its atoms in an empty set, or by clearing the
// others in a full one.
func (a *atoms) build(p int, up bool) *twin {
	w := newTwin(a.t, a.last)
	if !up {
		w.fill(0, a.last, true)
	}
	for i := range a.start {
		if set := p>>i&1 != 0; set == up {
			w.fill(a.start[i], a.end(i), up)
		}
	}
	return w
}

// state compares everything in state p, and every range of atoms set and cleared
// from there, with order summaries kept all along.
func (a *atoms) state(p int) {
	n := len(a.start)
	w, v := a.build(p, true), a.build(p, false)
	w.same("state %0*b built up", n, p)
	v.same("state %0*b cut out", n, p)
	for i := range n {
		for _, x := range []uint64{a.start[i], a.end(i)} {
			w.asks(x)
			v.asks(x)
			w.ranks(x)
			v.ranks(x)
		}
	}
	w.fits()
	v.fits()
	up, _ := w.b.MarshalBinary()
	cut, _ := v.b.MarshalBinary()
	var back bitmap.Bitmap
	if err := back.UnmarshalBinary(up); err != nil || !bytes.Equal(up, cut) || !w.b.Equal(v.b) || !back.Equal(w.b) || back.Check() != nil {
		a.t.Fatalf("state %0*b has two forms, or reads back as another: %v, %v, %v", n, p, w.b, v.b, &back)
	}
	turn := p
	for lo := range n {
		for hi := lo; hi < n; hi++ {
			for _, state := range []bool{true, false} {
				w.fill(a.start[lo], a.end(hi), state)
				w.same("state %0*b, atoms %d-%d to %v", n, p, lo, hi, state)
				w.answer("BestFit", uint64(turn%65), pair(w.b.BestFit(turn%65)), pair(w.m.BestFit(turn%65)))
				turn++
				for i := lo; i <= hi; i++ { // and back
					w.fill(a.start[i], a.end(i), p>>i&1 != 0)
				}
			}
		}
	}
	w.same("state %0*b again", n, p)
	w.fits()
}
