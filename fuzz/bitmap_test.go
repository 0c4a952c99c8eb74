package fuzz

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

// bitmapSizes are the spaces a trace may choose from, as the highest ordinal:
// around every boundary of the structure, powers of two and not, up to 2^64.
var bitmapSizes = []uint64{
	0, 1, 2, 15, 62, 63, 64, 99, 4094, 4095, 4096, 4099, 8191, 65535, 1<<18 - 1, 1 << 18,
	1<<24 - 1, 1<<24 + 77, 1<<32 - 1, 1<<40 + 4097, 1<<60 - 1, 1 << 60, 1<<63 + 5, 1<<64 - 2, 1<<64 - 1,
}

const bitmapOps = 12

// bitmapReplay holds the two sides of a replay.
type bitmapReplay struct {
	t testing.TB
	b *bitmap.Bitmap
	m *model.Bitmap
}

// replayBitmap runs a trace on both sides and compares every answer.
func replayBitmap(t testing.TB, data []byte) {
	tr := model.NewTrace(data)
	last := bitmapSizes[tr.Op(len(bitmapSizes))]
	r := &bitmapReplay{t, bitmap.New(last + 1), model.NewBitmap(last)}
	if last == 1<<64-1 {
		r.b = bitmap.NewPow2(64)
	}
	for tr.More() {
		op := tr.Op(bitmapOps)
		r.step(op, tr)
		if err := r.b.Check(); err != nil {
			t.Fatalf("after op %d: %v", op, err)
		}
	}
	r.compare()
}

// operand reads an ordinal: near 0, near the end, near a multiple of 4,096, or
// anywhere, so that the boundaries of pages and nodes are met often.
func (r *bitmapReplay) operand(tr *model.Trace) uint64 {
	v := tr.Uint()
	off := v >> 2 % 200
	switch v % 4 {
	case 0:
		return min(off, r.m.Last)
	case 1:
		return r.m.Last - min(off, r.m.Last)
	case 2:
		return min(v>>2%64<<12+v>>8%200, r.m.Last)
	}
	if r.m.Last == 1<<64-1 {
		return v * 0x9E3779B97F4A7C15
	}
	return v * 0x9E3779B97F4A7C15 % (r.m.Last + 1)
}

func (r *bitmapReplay) step(op int, tr *model.Trace) {
	b, m := r.b, r.m
	x := r.operand(tr)
	switch op {
	case 0:
		r.same("Set", x, b.Set(x), m.Fill(x, x, true) == 1)
	case 1:
		r.same("Clear", x, b.Clear(x), m.Fill(x, x, false) == 1)
	case 2, 3, 4:
		lo, hi := r.rangeFrom(x, tr)
		r.fill(op == 3, lo, hi)
	case 5:
		got, ok := b.NextSet(x)
		want, wok := m.Next(x, true)
		r.same2("NextSet", x, got, ok, want, wok)
		got, ok = b.NextClear(x)
		want, wok = m.Next(x, false)
		r.same2("NextClear", x, got, ok, want, wok)
	case 6:
		want, wok := m.Next(x, false)
		if !wok {
			want, wok = m.Next(0, false)
		}
		got, ok := b.SetNextClear(x)
		r.same2("SetNextClear", x, got, ok, want, wok)
		if wok {
			m.Fill(want, want, true)
		}
	case 7:
		k := int(tr.Below(66))
		got, ok := b.BestFit(k)
		want, wok := m.BestFit(k)
		r.same2("BestFit", uint64(k), got, ok, want, wok)
		if ok && k < 64 {
			r.fill(true, got, got+(1<<k-1))
		}
	case 8:
		r.ranks(x, tr)
	case 9:
		r.batch(x, int(tr.Below(200)))
	case 10:
		r.reload()
	case 11:
		k, ok := b.MaxClearOrder()
		want := 64
		for ; want >= 0; want-- {
			if _, fits := m.BestFit(want); fits {
				break
			}
		}
		r.same2("MaxClearOrder", 0, uint64(k), ok, uint64(want), want >= 0)
	}
}

// rangeFrom returns a range from x, short, page-sized, aligned or to anywhere.
func (r *bitmapReplay) rangeFrom(x uint64, tr *model.Trace) (lo, hi uint64) {
	v := tr.Uint()
	k := v >> 2 % 64
	switch v % 4 {
	case 0:
		return x, x + min(v>>2%5000, r.m.Last-x)
	case 1:
		lo = x &^ (1<<k - 1)
		return lo, lo + min(1<<k-1, r.m.Last-lo)
	case 2:
		return x, r.m.Last
	}
	y := r.operand(tr)
	return min(x, y), max(x, y)
}

func (r *bitmapReplay) fill(state bool, lo, hi uint64) {
	r.same("CountRange", lo, r.m.Count(lo, hi), r.b.CountRange(lo, hi))
	name, do := "ClearRange", r.b.ClearRange
	if state {
		name, do = "SetRange", r.b.SetRange
	}
	r.same(name, lo, do(lo, hi), r.m.Fill(lo, hi, state))
}

func (r *bitmapReplay) ranks(x uint64, tr *model.Trace) {
	below := uint64(0)
	if x > 0 {
		below = r.m.Count(0, x-1)
	}
	r.same("Rank", x, r.b.Rank(x), below)
	r.same("Test", x, r.b.Test(x), r.m.Test(x))
	i := tr.Uint()
	if n := r.m.Count(0, r.m.Last); n > 0 && i%2 == 0 {
		i = i / 2 % n
	}
	got, ok := r.b.Select(i)
	want, wok := r.m.Select(i, true)
	r.same2("Select", i, got, ok, want, wok)
	got, ok = r.b.SelectClear(i)
	want, wok = r.m.Select(i, false)
	r.same2("SelectClear", i, got, ok, want, wok)
}

func (r *bitmapReplay) batch(x uint64, k int) {
	var want []uint64
	at, wrapped := x, false
	for len(want) < k {
		y, ok := r.m.Next(at, false)
		if !ok || (wrapped && y >= x) {
			if wrapped || x == 0 {
				break
			}
			at, wrapped = 0, true
			continue
		}
		want = append(want, y)
		if y == r.m.Last {
			if x == 0 || wrapped {
				break
			}
			at, wrapped = 0, true
			continue
		}
		at = y + 1
	}
	dst := make([]uint64, k)
	r.same("SetNextN", x, r.b.SetNextN(dst, x), len(want))
	for i, y := range want {
		r.same("SetNextN", x, dst[i], y)
		r.m.Fill(y, y, true)
	}
}

func (r *bitmapReplay) reload() {
	data, err := r.b.MarshalBinary()
	if err != nil {
		r.t.Fatal(err)
	}
	var c bitmap.Bitmap
	if err := c.UnmarshalBinary(data); err != nil {
		r.t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		r.t.Fatal(err)
	}
	if !c.Equal(r.b) || !r.b.Clone().Equal(&c) {
		r.t.Fatalf("%v reads back as %v", r.b, &c)
	}
	again, _ := c.MarshalBinary()
	if !bytes.Equal(data, again) {
		r.t.Fatalf("%v has two binary forms", r.b)
	}
	r.b = &c
}

// compare compares the whole state.
func (r *bitmapReplay) compare() {
	for _, state := range []bool{true, false} {
		seq := r.b.Runs()
		if !state {
			seq = r.b.ZeroRuns()
		}
		want := r.m.Runs(state)
		i := 0
		for lo, hi := range seq {
			if i >= len(want) || want[i] != [2]uint64{lo, hi} {
				r.t.Fatalf("run %d of state %v is [%d, %d], want %v", i, state, lo, hi, want[min(i, len(want)):])
			}
			i++
		}
		r.same("runs", 0, i, len(want))
	}
	r.same("Empty", 0, r.b.Empty(), len(r.m.Runs(true)) == 0)
	r.same("Full", 0, r.b.Full(), len(r.m.Runs(false)) == 0)
	r.same("Count", 0, r.b.Count(), r.m.Count(0, r.m.Last))
	want := -1
	for _, f := range r.m.Fits() {
		want = max(want, int(f[1]))
	}
	if k, ok := r.b.MaxClearOrder(); ok != (want >= 0) || ok && k != want {
		r.t.Fatalf("MaxClearOrder() = %d, %v, want %d", k, ok, want)
	}
}

func (r *bitmapReplay) same(op string, x uint64, got, want any) {
	if got != want {
		r.t.Fatalf("%s at %d (last %d): got %v, want %v\n%v", op, x, r.m.Last, got, want, r.b)
	}
}

func (r *bitmapReplay) same2(op string, x, got uint64, ok bool, want uint64, wok bool) {
	if ok != wok || ok && got != want {
		r.t.Fatalf("%s at %d (last %d): got %d %v, want %d %v\n%v", op, x, r.m.Last, got, ok, want, wok, r.b)
	}
}

// randomBitmapTrace returns a trace of n operations with mostly small operands.
func randomBitmapTrace(rng *rand.Rand, n int) []byte {
	data := []byte{byte(rng.UintN(256))}
	for range n {
		data = model.AppendOp(data, byte(rng.UintN(256)), rng.Uint64()>>rng.UintN(64), rng.Uint64()>>rng.UintN(64), rng.Uint64()>>rng.UintN(64))
	}
	return data
}

func TestBitmapAgainstModel(t *testing.T) {
	for seed := range seeds.Each(t, 300, 2000) {
		replayBitmap(t, randomBitmapTrace(rand.New(rand.NewPCG(seed, 1)), 60))
	}
}

func FuzzBitmap(f *testing.F) {
	for seed := range uint64(len(bitmapSizes)) {
		data := randomBitmapTrace(rand.New(rand.NewPCG(seed, 2)), 20)
		data[0] = byte(seed)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<12 {
			return // the model is quadratic
		}
		replayBitmap(t, data)
	})
}
