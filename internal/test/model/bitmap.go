package model

// Bitmap is the twin of bitmap.Bitmap: the maximal runs of set ordinals in a list,
// ascending and closed. Each operation is a loop over the list.
type Bitmap struct {
	Last uint64 // highest ordinal
	runs [][2]uint64
}

// NewBitmap returns an empty set over [0, last].
func NewBitmap(last uint64) *Bitmap { return &Bitmap{Last: last} }

// SumRuns returns how many ordinals the runs have, at most the largest uint64.
func SumRuns(runs [][2]uint64) (n uint64) {
	for _, r := range runs {
		if n += r[1] - r[0] + 1; n <= r[1]-r[0] {
			return ^uint64(0)
		}
	}
	return n
}

// Runs returns the maximal runs of ordinals in the given state.
func (m *Bitmap) Runs(state bool) (out [][2]uint64) {
	if state {
		return m.runs
	}
	next := uint64(0)
	for _, r := range m.runs {
		if next < r[0] {
			out = append(out, [2]uint64{next, r[0] - 1})
		}
		if next = r[1] + 1; r[1] == m.Last {
			return out
		}
	}
	return append(out, [2]uint64{next, m.Last})
}

// In returns the parts of the runs that are in [lo, hi].
func (m *Bitmap) In(lo, hi uint64, state bool) (out [][2]uint64) {
	for _, r := range m.Runs(state) {
		if r[0] <= hi && lo <= r[1] {
			out = append(out, [2]uint64{max(lo, r[0]), min(hi, r[1])})
		}
	}
	return out
}

// Count returns how many ordinals of [lo, hi] are set.
func (m *Bitmap) Count(lo, hi uint64) uint64 { return SumRuns(m.In(lo, hi, true)) }

// Test reports whether x is set.
func (m *Bitmap) Test(x uint64) bool { return m.Count(x, x) == 1 }

// Fill brings [lo, hi] into a state and returns how many ordinals were in the other.
func (m *Bitmap) Fill(lo, hi uint64, state bool) (changed uint64) {
	changed = SumRuns(m.In(lo, hi, !state))
	var parts [][2]uint64
	if lo > 0 {
		parts = m.In(0, lo-1, true)
	}
	if state {
		parts = append(parts, [2]uint64{lo, hi})
	}
	if hi < m.Last {
		parts = append(parts, m.In(hi+1, m.Last, true)...)
	}
	m.runs = nil
	for _, r := range parts {
		if n := len(m.runs); n > 0 && m.runs[n-1][1]+1 == r[0] {
			m.runs[n-1][1] = r[1] // neighbours are one run
		} else {
			m.runs = append(m.runs, r)
		}
	}
	return changed
}

// Next returns the lowest ordinal of the given state at or after x.
func (m *Bitmap) Next(x uint64, state bool) (uint64, bool) {
	for _, r := range m.In(x, m.Last, state) {
		return r[0], true
	}
	return 0, false
}

// Select returns the ordinal of the given state with i others below it.
func (m *Bitmap) Select(i uint64, state bool) (uint64, bool) {
	for _, r := range m.Runs(state) {
		if i <= r[1]-r[0] {
			return r[0] + i, true
		}
		i -= r[1] - r[0] + 1
	}
	return 0, false
}

// Fits returns the maximal aligned runs of clear ordinals, ascending, as the
// first ordinal and the order of each.
func (m *Bitmap) Fits() (out [][2]uint64) {
	for _, r := range m.Runs(false) {
		for lo, more := r[0], true; more; {
			// The largest aligned run that starts at lo and ends by r[1] is maximal: its
			// double starts before lo or ends beyond r[1].
			k, rest := uint64(64), ^uint64(0) // rest is 2^k - 1
			for lo&rest != 0 || rest > r[1]-lo {
				k, rest = k-1, rest>>1
			}
			out = append(out, [2]uint64{lo, k})
			more = lo+rest != r[1]
			lo += rest + 1
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
