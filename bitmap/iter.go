package bitmap

import "iter"

// All returns the set ordinals, ascending.
//
// The set may be changed during the loop; this holds for all iterators of this package.
// An ordinal flipped while its word of 64 is being iterated may be reported in either
// state; later ordinals are exact. It does not allocate per result.
func (b *Bitmap) All() iter.Seq[uint64] {
	return func(yield func(uint64) bool) { b.each(true, yield) }
}

// Zeros is like All, but returns the clear ordinals.
func (b *Bitmap) Zeros() iter.Seq[uint64] {
	return func(yield func(uint64) bool) { b.each(false, yield) }
}

func (b *Bitmap) each(state bool, yield func(uint64) bool) {
	for at := uint64(0); b.some && at <= b.last; {
		x, ok := b.nextOf(at, state)
		if !ok {
			return
		}
		base := x &^ 63
		for w := (b.Word(x) ^ fill(!state)) & from(x%64); w != 0; w &= w - 1 {
			if y := base + lowest(w); y > b.last || !yield(y) {
				return
			}
		}
		if base|63 >= b.last {
			return
		}
		at = base + 64
	}
}

func (b *Bitmap) nextOf(x uint64, state bool) (uint64, bool) {
	if state {
		return b.NextSet(x)
	}
	return b.NextClear(x)
}

// Runs returns the maximal runs [lo, hi] of set ordinals, ascending. If the set
// changes between two steps, the next run starts at least two above the end of the
// last one. O(log64 n) a run.
func (b *Bitmap) Runs() iter.Seq2[uint64, uint64] {
	return func(yield func(lo, hi uint64) bool) { b.runs(true, yield) }
}

// ZeroRuns is like [Bitmap.Runs], but returns the maximal runs of clear ordinals.
func (b *Bitmap) ZeroRuns() iter.Seq2[uint64, uint64] {
	return func(yield func(lo, hi uint64) bool) { b.runs(false, yield) }
}

func (b *Bitmap) runs(state bool, yield func(lo, hi uint64) bool) {
	for x := uint64(0); b.some && x <= b.last; {
		lo, ok := b.nextOf(x, state)
		if !ok {
			return
		}
		end, ok := b.nextOf(lo, !state)
		if !ok {
			yield(lo, b.last)
			return
		}
		if !yield(lo, end-1) || end >= b.last {
			return
		}
		x = end + 1
	}
}
