package bitsetconv_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/bits-and-blooms/bitset"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/bitmap/bitsetconv"
)

var bitsetSizes = []uint64{1, 2, 63, 64, 65, 4095, 4096, 4097, 8192, 1<<18 - 1, 1 << 18, 1<<18 + 1, 1<<18 + 4097, 1 << 20}

// Random operations on a set and on a flat bitset, all answers equal, and
// converted into each other both ways now and then.
func TestAgainstBitSet(t *testing.T) {
	for _, n := range bitsetSizes {
		steps := 4000
		if testing.Short() {
			steps = 500
		}
		rng := rand.New(rand.NewPCG(n, 8))
		o := &oracle{t: t, rng: rng, n: n, b: bitmap.New(n), s: bitset.New(uint(n))}
		for step := range steps {
			o.step(rng.UintN(12))
			if step%(steps/8) == 0 {
				o.convert()
			}
		}
		o.convert()
	}
}

// An oracle is a set and the flat bitset that it must agree with.
type oracle struct {
	t   *testing.T
	rng *rand.Rand
	n   uint64
	b   *bitmap.Bitmap
	s   *bitset.BitSet
}

func (o *oracle) same(op string, x uint64, got, want any) {
	if got != want {
		o.t.Fatalf("n %d: %s(%d) = %v, bitset has %v", o.n, op, x, got, want)
	}
}

func (o *oracle) step(op uint) {
	x := o.rng.Uint64N(o.n)
	y := min(o.n-1, x+o.rng.Uint64N(o.n)>>o.rng.UintN(20))
	switch op {
	case 0, 1:
		o.same("Set", x, o.b.Set(x), !o.s.Test(uint(x)))
		o.s.Set(uint(x))
	case 2, 3:
		o.same("Clear", x, o.b.Clear(x), o.s.Test(uint(x)))
		o.s.Clear(uint(x))
	case 4, 5:
		before := o.s.Count()
		if set := op == 4; set {
			got := o.b.SetRange(x, y)
			o.fill(x, y, true)
			o.same("SetRange", x, got, uint64(o.s.Count()-before))
		} else {
			got := o.b.ClearRange(x, y)
			o.fill(x, y, false)
			o.same("ClearRange", x, got, uint64(before-o.s.Count()))
		}
	case 6:
		o.same("Test", x, o.b.Test(x), o.s.Test(uint(x)))
		o.same("Count", x, o.b.Count(), uint64(o.s.Count()))
		o.same("Full", x, o.b.Full(), o.s.All())
		o.same("Empty", x, o.b.Empty(), o.s.None())
	case 7:
		o.next(x)
	case 8: // bitset's Rank counts x itself
		below := uint64(o.s.Rank(uint(x)))
		if o.s.Test(uint(x)) {
			below--
		}
		o.same("Rank", x, o.b.Rank(x), below)
		o.same("CountRange", x, o.b.CountRange(x, y), uint64(o.s.Rank(uint(y)))-below)
	case 9:
		if c := uint64(o.s.Count()); c > 0 {
			i := o.rng.Uint64N(c)
			got, ok := o.b.Select(i)
			o.same("Select", i, ok, true)
			o.same("Select", i, got, uint64(o.s.Select(uint(i))))
		}
	case 10:
		want, wantOK := o.s.NextClear(uint(x))
		if !wantOK {
			want, wantOK = o.s.NextClear(0)
		}
		got, ok := o.b.SetNextClear(x)
		o.same("SetNextClear", x, ok, wantOK)
		if ok {
			o.same("SetNextClear", x, got, uint64(want))
			o.s.Set(want)
		}
	case 11:
		o.batch(x)
	}
}

func (o *oracle) fill(lo, hi uint64, state bool) {
	for y := lo; y <= hi; y++ {
		o.s.SetTo(uint(y), state)
	}
}

func (o *oracle) next(x uint64) {
	want, wantOK := o.s.NextSet(uint(x))
	got, ok := o.b.NextSet(x)
	o.same("NextSet", x, ok, wantOK)
	if ok {
		o.same("NextSet", x, got, uint64(want))
	}
	want, wantOK = o.s.NextClear(uint(x))
	got, ok = o.b.NextClear(x)
	o.same("NextClear", x, ok, wantOK)
	if ok {
		o.same("NextClear", x, got, uint64(want))
	}
}

func (o *oracle) batch(x uint64) {
	dst := make([]uint64, o.rng.UintN(100))
	free := o.n - uint64(o.s.Count())
	dst = dst[:o.b.SetNextN(dst, x)]
	o.same("SetNextN", x, uint64(len(dst)), min(uint64(cap(dst)), free))
	at := uint(x)
	for _, y := range dst {
		want, ok := o.s.NextClear(at)
		if !ok {
			want, _ = o.s.NextClear(0)
		}
		o.same("SetNextN", x, y, uint64(want))
		o.s.Set(want)
		at = want
	}
}

// convert converts both into each other and compares all words.
func (o *oracle) convert() {
	s, err := bitsetconv.To(o.b)
	if err != nil {
		o.t.Fatal(err)
	}
	if !s.Equal(o.s) || uint64(s.Len()) != o.n {
		o.t.Fatalf("n %d: the bit set differs: %d of %d, want %d", o.n, s.Count(), s.Len(), o.s.Count())
	}
	b := bitsetconv.From(o.s)
	if err := b.Check(); err != nil {
		o.t.Fatal(err)
	}
	if err := o.b.Check(); err != nil {
		o.t.Fatal(err)
	}
	if !b.Equal(o.b) {
		o.t.Fatalf("n %d: the set from the bit set differs", o.n)
	}
}

// Sizes and fills that conversion could stumble over.
func TestBitSetBoundaries(t *testing.T) {
	for _, n := range append([]uint64{0}, bitsetSizes...) {
		for _, fill := range []string{"empty", "full", "first", "last", "all but first", "all but last"} {
			b := bitmap.New(n)
			if n > 0 {
				switch fill {
				case "full":
					b.SetRange(0, n-1)
				case "first":
					b.Set(0)
				case "last":
					b.Set(n - 1)
				case "all but first":
					b.SetRange(0, n-1)
					b.Clear(0)
				case "all but last":
					b.SetRange(0, n-1)
					b.Clear(n - 1)
				}
			}
			s, err := bitsetconv.To(b)
			if err != nil || uint64(s.Len()) != n || uint64(s.Count()) != b.Count() {
				t.Fatalf("n %d, %s: %v, %v", n, fill, s, err)
			}
			back := bitsetconv.From(s)
			if err := back.Check(); err != nil || !back.Equal(b) {
				t.Fatalf("n %d, %s: %v comes back as %v, %v", n, fill, b, back, err)
			}
		}
	}
	for _, n := range []uint64{1<<33 + 1, 1 << 40, 1<<64 - 1} {
		if s, err := bitsetconv.To(bitmap.New(n)); !errors.Is(err, ipalloc.ErrLimit) || s != nil {
			t.Errorf("n %d: a bit set and error %v, want only an error", n, err)
		}
	}
	if _, err := bitsetconv.To(bitmap.NewPow2(64)); err == nil {
		t.Error("2^64 ordinals fit a flat bit set")
	}
}

// A bit set may hold bits beyond its length; they are ignored.
func TestFromBitSetIgnoresTheTail(t *testing.T) {
	ones := ^uint64(0)
	for _, c := range []struct {
		n     uint
		words []uint64
		want  []uint64
	}{
		{0, nil, nil},
		{0, []uint64{ones}, nil},
		{5, []uint64{ones}, []uint64{0, 1, 2, 3, 4}},
		{5, []uint64{1 << 5}, nil},
		{64, []uint64{1, ones}, []uint64{0}},
		{65, []uint64{2, ones}, []uint64{1, 64}},
		{63, []uint64{1<<63 | 1<<62}, []uint64{62}},
	} {
		b := bitsetconv.From(bitset.FromWithLength(c.n, c.words))
		want := bitmap.New(uint64(c.n))
		for _, x := range c.want {
			want.Set(x)
		}
		if err := b.Check(); err != nil || !b.Equal(want) {
			t.Errorf("length %d of %x: %v, %v; want %v", c.n, c.words, b, err, want)
		}
	}
	words := make([]uint64, 4096/64+2)
	words[4096/64] = ones
	if b := bitsetconv.From(bitset.FromWithLength(4097, words)); b.Count() != 1 || !b.Test(4096) {
		t.Errorf("length 4097: %v, want 4096 alone", b)
	}
}
