package bitmap

import "fmt"

// NextRun returns the lowest multiple of 2^k at or after x from which 2^k
// ordinals are clear; ok is false if there is none. It panics if x is out of
// range or k is not in [0, 63]. The set is unchanged. It costs what
// [Bitmap.BestFit] does.
func (b *Bitmap) NextRun(x uint64, k int) (lo uint64, ok bool) {
	b.check(x)
	if k < 0 || k > 63 {
		panic(fmt.Sprintf("bitmap: order %d out of range [0, 63]", k))
	}
	if !b.touched {
		lo = alignUp(x, k)
		return lo, lo >= x && lo <= b.last && b.last-lo >= 1<<k-1
	}
	b.refresh(&b.root)
	return b.root.nextRun(x, k)
}

// alignUp returns the lowest multiple of 2^k at or after x, modulo 2^64.
func alignUp(x uint64, k int) uint64 { return (x + 1<<k - 1) &^ (1<<k - 1) }

// nextRun is NextRun within nd, in which x lies and whose summary is up to date.
func (nd *node) nextRun(x uint64, k int) (uint64, bool) {
	step(1)
	if k >= int(nd.shift) {
		return nd.nextGroup(x, k)
	}
	c := nd.slot(x)
	fits := ^nd.some | nd.order.atLeast(k)
	if fits>>c&1 != 0 {
		if lo, ok := nd.nextRunIn(c, x, k); ok {
			return lo, true
		}
	}
	if fits &= from(c + 1); fits == 0 {
		return 0, false
	}
	c = lowest(fits)
	return nd.nextRunIn(c, nd.start(c), k)
}

// nextGroup is nextRun for runs of whole slots.
func (nd *node) nextGroup(x uint64, k int) (uint64, bool) {
	j := k - int(nd.shift)
	if j > fanBits {
		return 0, false
	}
	m := ^nd.some
	for i := range j {
		m &= m >> (1 << i) & heads[i%8]
	}
	lo := alignUp(x, k)
	if lo < x || !nd.holds(lo) {
		return 0, false
	}
	if m &= from(nd.slot(lo)); m == 0 {
		return 0, false
	}
	return nd.start(lowest(m)), true
}

// nextRunIn is nextRun within slot c, for a run shorter than the slot.
func (nd *node) nextRunIn(c, x uint64, k int) (uint64, bool) {
	end := nd.start(c) | (1<<nd.shift - 1)
	if nd.some>>c&1 == 0 {
		return alignedIn(x, end, k)
	}
	if nd.kid == nil {
		m := ^nd.words[c]
		for i := range k {
			m &= m >> (1 << i) & heads[i%8]
		}
		m &= from(x % 64)
		return nd.start(c) + lowest(m), m != 0
	}
	kid := nd.kid[c]
	if nd.smaller(kid) && !kid.rest && x < kid.base {
		// Aligned runs before the child never reach into it unless they hold it.
		if lo, ok := alignedIn(x, kid.base-1, k); ok {
			return lo, true
		}
	}
	if x = max(x, kid.base); x <= kid.end() {
		if lo, ok := kid.nextRun(x, k); ok {
			return lo, true
		}
	}
	if nd.smaller(kid) && !kid.rest && kid.end() < end {
		return alignedIn(max(x, kid.end()+1), end, k)
	}
	return 0, false
}

// alignedIn returns the first aligned run of order k in [lo, hi].
func alignedIn(lo, hi uint64, k int) (uint64, bool) {
	at := alignUp(lo, k)
	return at, at >= lo && at <= hi && hi-at >= 1<<k-1
}

// atLeast returns the slots that hold a maximal run of order k or more.
func (o *order) atLeast(k int) (slots uint64) {
	for ; o != nil; o = o.next {
		for i := max(k, 0); i < fanBits; i++ {
			slots |= o.mask[i]
		}
		k -= fanBits
	}
	return slots
}
