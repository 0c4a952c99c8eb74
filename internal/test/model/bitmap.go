package model

import (
	"math/bits"
	"sort"
)

// Bitmap is the twin of bitmap.Bitmap: a sorted list of maximal runs of set
// ordinals, each operation a walk over the whole list.
type Bitmap struct {
	Last uint64 // highest ordinal
	runs []run
}

type run struct{ lo, hi uint64 } // closed

// NewBitmap returns an empty set over [0, last].
func NewBitmap(last uint64) *Bitmap { return &Bitmap{Last: last} }

// Test reports whether x is set.
func (m *Bitmap) Test(x uint64) bool {
	for _, r := range m.runs {
		if r.lo <= x && x <= r.hi {
			return true
		}
	}
	return false
}

// Count returns how many ordinals of [lo, hi] are set, modulo 2^64.
func (m *Bitmap) Count(lo, hi uint64) (n uint64) {
	for _, r := range m.runs {
		if l, h := max(lo, r.lo), min(hi, r.hi); l <= h {
			n += h - l + 1
		}
	}
	return n
}

// SetRange sets [lo, hi] and returns how many were clear, modulo 2^64.
func (m *Bitmap) SetRange(lo, hi uint64) uint64 {
	changed := hi - lo + 1 - m.Count(lo, hi)
	m.ClearRange(lo, hi)
	m.runs = append(m.runs, run{lo, hi})
	m.normalise()
	return changed
}

// ClearRange clears [lo, hi] and returns how many were set, modulo 2^64.
func (m *Bitmap) ClearRange(lo, hi uint64) uint64 {
	changed := m.Count(lo, hi)
	var left []run
	for _, r := range m.runs {
		if r.hi < lo || r.lo > hi {
			left = append(left, r)
			continue
		}
		if r.lo < lo {
			left = append(left, run{r.lo, lo - 1})
		}
		if r.hi > hi {
			left = append(left, run{hi + 1, r.hi})
		}
	}
	m.runs = left
	return changed
}

// normalise sorts the runs and joins neighbours.
func (m *Bitmap) normalise() {
	sort.Slice(m.runs, func(i, j int) bool { return m.runs[i].lo < m.runs[j].lo })
	var out []run
	for _, r := range m.runs {
		if n := len(out); n > 0 && out[n-1].hi+1 == r.lo {
			out[n-1].hi = r.hi
		} else {
			out = append(out, r)
		}
	}
	m.runs = out
}

// Runs returns the maximal runs of ordinals in the given state as closed pairs,
// ascending.
func (m *Bitmap) Runs(state bool) (out [][2]uint64) {
	if state {
		for _, r := range m.runs {
			out = append(out, [2]uint64{r.lo, r.hi})
		}
		return out
	}
	next, done := uint64(0), false
	for _, r := range m.runs {
		if r.lo > next {
			out = append(out, [2]uint64{next, r.lo - 1})
		}
		next = r.hi + 1
		done = r.hi == m.Last
	}
	if !done {
		out = append(out, [2]uint64{next, m.Last})
	}
	return out
}

// Next returns the lowest ordinal of the given state at or after x.
func (m *Bitmap) Next(x uint64, state bool) (uint64, bool) {
	for _, r := range m.Runs(state) {
		if r[1] >= x {
			return max(r[0], x), true
		}
	}
	return 0, false
}

// Select returns the ordinal of the given state with i others below it.
func (m *Bitmap) Select(i uint64, state bool) (uint64, bool) {
	for _, r := range m.Runs(state) {
		if n := r[1] - r[0]; i <= n {
			return r[0] + i, true
		} else {
			i -= n + 1
		}
	}
	return 0, false
}

// Fits returns the maximal aligned runs of clear ordinals, ascending, as the
// first ordinal and the order of each.
func (m *Bitmap) Fits() (out [][2]uint64) {
	for _, r := range m.Runs(false) {
		lo, hi := r[0], r[1]
		for {
			// The largest aligned run that starts at lo and ends by hi is maximal: its
			// double starts before lo or ends beyond hi.
			k := min(bits.TrailingZeros64(lo), 64)
			for k == 64 && hi-lo != ^uint64(0) || k < 64 && 1<<k-1 > hi-lo {
				k--
			}
			out = append(out, [2]uint64{lo, uint64(k)})
			if k == 64 || hi-lo == 1<<k-1 {
				break
			}
			lo += 1 << k
		}
	}
	return out
}

// BestFit returns the first ordinal of the lowest of the smallest maximal aligned
// clear runs of at least 2^k.
func (m *Bitmap) BestFit(k int) (uint64, bool) {
	lo, best := uint64(0), 65
	for _, f := range m.Fits() {
		if int(f[1]) >= k && int(f[1]) < best {
			lo, best = f[0], int(f[1])
		}
	}
	return lo, best < 65
}
