package model_test

import (
	"fmt"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/model"
)

const top = ^uint64(0)

// cells is the twin's own twin: one bool for each ordinal.
type cells []bool

func (c cells) count(lo, hi int) (n uint64) {
	for _, set := range c[lo : hi+1] {
		if set {
			n++
		}
	}
	return n
}

func (c cells) fill(lo, hi int, state bool) (changed uint64) {
	for i := lo; i <= hi; i++ {
		if c[i] != state {
			c[i] = state
			changed++
		}
	}
	return changed
}

// clear reports whether [at, at+size) is all clear and within the set.
func (c cells) clear(at, size int) bool {
	return at >= 0 && at+size <= len(c) && c.count(at, at+size-1) == 0
}

func build(pattern, n int) (*model.Bitmap, cells) {
	m, c := model.NewBitmap(uint64(n-1)), make(cells, n)
	for i := range n {
		if pattern>>i&1 != 0 {
			c[i] = true
			m.SetRange(uint64(i), uint64(i))
		}
	}
	return m, c
}

// The oracle of every other test is worth what is proved of it: every state of 9
// ordinals, every operation, against one bool for each.
func TestBitmapAgainstCells(t *testing.T) {
	const n = 9
	for pattern := range 1 << n {
		m, c := build(pattern, n)
		same(t, m, c, fmt.Sprintf("state %09b", pattern))
		queries(t, m, c)
		for lo := range n {
			for hi := lo; hi < n; hi++ {
				for _, state := range []bool{true, false} {
					m, c := build(pattern, n)
					op := m.ClearRange
					if state {
						op = m.SetRange
					}
					if got, want := op(uint64(lo), uint64(hi)), c.fill(lo, hi, state); got != want {
						t.Fatalf("state %09b: fill [%d, %d] %v changes %d, want %d", pattern, lo, hi, state, got, want)
					}
					same(t, m, c, fmt.Sprintf("state %09b after fill [%d, %d] %v", pattern, lo, hi, state))
				}
			}
		}
	}
}

// same compares whole states: each ordinal, and the runs, which must be maximal.
func same(t *testing.T, m *model.Bitmap, c cells, when string) {
	t.Helper()
	for i, set := range c {
		if m.Test(uint64(i)) != set {
			t.Fatalf("%s: ordinal %d is %v", when, i, !set)
		}
	}
	for _, state := range []bool{true, false} {
		var want [][2]uint64
		for i := 0; i < len(c); i++ {
			if c[i] != state {
				continue
			}
			lo := i
			for i+1 < len(c) && c[i+1] == state {
				i++
			}
			want = append(want, [2]uint64{uint64(lo), uint64(i)})
		}
		if got := m.Runs(state); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%s: runs of %v are %v, want %v", when, state, got, want)
		}
	}
}

func queries(t *testing.T, m *model.Bitmap, c cells) {
	n := len(c)
	for x := range n {
		for hi := x; hi < n; hi++ {
			if got, want := m.Count(uint64(x), uint64(hi)), c.count(x, hi); got != want {
				t.Fatalf("%v: Count(%d, %d) = %d, want %d", c, x, hi, got, want)
			}
		}
		for _, state := range []bool{true, false} {
			want, ok := -1, false
			for i := n - 1; i >= x; i-- {
				if c[i] == state {
					want, ok = i, true
				}
			}
			if got, gotOK := m.Next(uint64(x), state); gotOK != ok || ok && got != uint64(want) {
				t.Fatalf("%v: Next(%d, %v) = %d %v, want %d %v", c, x, state, got, gotOK, want, ok)
			}
		}
	}
	for _, state := range []bool{true, false} {
		rank := uint64(0)
		for x := range n {
			if c[x] != state {
				continue
			}
			if got, ok := m.Select(rank, state); !ok || got != uint64(x) {
				t.Fatalf("%v: Select(%d, %v) = %d %v, want %d", c, rank, state, got, ok, x)
			}
			rank++
		}
		if got, ok := m.Select(rank, state); ok {
			t.Fatalf("%v: Select(%d, %v) = %d, want none", c, rank, state, got)
		}
	}
	fits(t, m, c)
}

// fits compares the maximal aligned clear runs and the best of them for each
// order.
func fits(t *testing.T, m *model.Bitmap, c cells) {
	var want [][2]uint64
	for at := range c {
		for k := 4; k >= 0; k-- {
			size := 1 << k
			if at%size == 0 && c.clear(at, size) && !c.clear(at&^(2*size-1), 2*size) {
				want = append(want, [2]uint64{uint64(at), uint64(k)})
			}
		}
	}
	if got := m.Fits(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%v: Fits() = %v, want %v", c, got, want)
	}
	for k := range 6 {
		best, ok := [2]uint64{0, 99}, false
		for _, f := range want {
			if f[1] >= uint64(k) && f[1] < best[1] {
				best, ok = f, true
			}
		}
		if got, gotOK := m.BestFit(k); gotOK != ok || ok && got != best[0] {
			t.Fatalf("%v: BestFit(%d) = %d %v, want %d %v", c, k, got, gotOK, best[0], ok)
		}
	}
}

// The end of uint64 is where a list of closed runs goes wrong.
func TestBitmapAtTheEndOfUint64(t *testing.T) {
	m := model.NewBitmap(top)
	if got := fmt.Sprint(m.Fits()); got != "[[0 64]]" {
		t.Fatalf("an empty 2^64 fits %s", got)
	}
	if lo, ok := m.BestFit(64); !ok || lo != 0 {
		t.Fatalf("BestFit(64) = %d %v", lo, ok)
	}
	if got := m.SetRange(0, top); got != 0 { // 2^64 modulo 2^64
		t.Fatalf("SetRange of all changes %d", got)
	}
	if got := m.Runs(false); got != nil {
		t.Fatalf("a full set has clear runs %v", got)
	}
	if _, ok := m.Next(0, false); ok {
		t.Fatal("a full set has a clear ordinal")
	}
	if got := m.ClearRange(top, top); got != 1 || fmt.Sprint(m.Runs(false)) != fmt.Sprint([][2]uint64{{top, top}}) {
		t.Fatalf("clearing the last ordinal changes %d and leaves %v", got, m.Runs(false))
	}
	if x, ok := m.Select(0, false); !ok || x != top {
		t.Fatalf("Select = %d %v", x, ok)
	}
	m.ClearRange(1<<63, top)
	if got := m.Count(0, top); got != 1<<63 {
		t.Fatalf("Count = %d", got)
	}
}
