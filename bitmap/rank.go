package bitmap

import "math/bits"

// Rank returns how many ordinals below x are set. It panics if x is out of
// range. O(log64 n).
func (b *Bitmap) Rank(x uint64) uint64 {
	b.check(x)
	return b.root.below(x)
}

// below returns how many set ordinals of the node are below x, which is in the node.
func (nd *node) below(x uint64) (sum uint64) {
	c := nd.slot(x)
	step(int(c) + 1)
	if nd.kid == nil {
		for _, w := range nd.words[:c] {
			sum += uint64(bits.OnesCount64(w))
		}
		return sum + uint64(bits.OnesCount64(nd.words[c]&^from(x%64)))
	}
	for _, n := range nd.words[:c] {
		sum += n
	}
	lo := nd.start(c)
	if !nd.mixed(c) {
		return sum + (x-lo)&fill(nd.some>>c&1 != 0)
	}
	kid := nd.kid[c]
	rest := fill(kid.outer)
	switch {
	case x < kid.base:
		return sum + (x-lo)&rest
	case x > kid.end():
		return sum + (kid.base-lo+x-kid.end()-1)&rest + kid.total()
	}
	return sum + (kid.base-lo)&rest + kid.below(x)
}

// Select returns the set ordinal of rank i, which has exactly i set ordinals below it. ok
// is false if there is none. O(log64 n).
func (b *Bitmap) Select(i uint64) (x uint64, ok bool) {
	if i >= b.count && (b.count != 0 || b.Empty()) {
		return 0, false
	}
	return b.pick(&b.root, i, true), true
}

// SelectClear returns the clear ordinal of rank i, which has exactly i clear ordinals
// below it. ok is false if there is none. O(log64 n).
func (b *Bitmap) SelectClear(i uint64) (x uint64, ok bool) {
	if free := b.last - b.count; !b.some || b.Full() || i > free {
		return 0, false // free-1, because the count of an empty 2^64 space does not fit a uint64
	}
	if !b.touched {
		return i, true
	}
	return b.pick(&b.root, i, false), true
}

// pick returns the ordinal of nd that has the given state and i others of that state
// below it in nd; it must exist.
func (b *Bitmap) pick(nd *node, i uint64, state bool) uint64 {
	for c := uint64(0); ; c++ {
		step(1)
		if nd.kid == nil {
			w := nd.words[c] ^ fill(!state)
			if n := uint64(bits.OnesCount64(w)); i >= n {
				i -= n
				continue
			}
			return nd.start(c) + selectBit(w, i)
		}
		n := nd.words[c]
		if !state {
			n = b.size(nd, c) - n
		}
		if i >= n {
			i -= n
			continue
		}
		return b.pickSlot(nd, c, i, state)
	}
}

// pickSlot is pick for slot c of an inner node.
func (b *Bitmap) pickSlot(nd *node, c, i uint64, state bool) uint64 {
	lo := nd.start(c)
	kid := nd.kid[c]
	if !nd.mixed(c) {
		return lo + i
	}
	if nd.smaller(kid) && kid.outer == state {
		if i < kid.base-lo {
			return lo + i
		}
		i -= kid.base - lo
		in := kid.total()
		if !state {
			in = kid.end() - kid.base + 1 - in
		}
		if i >= in {
			return kid.end() + 1 + i - in
		}
	}
	return b.pick(kid, i, state)
}

// selectBit returns the position of the set bit of w with i set bits below it.
func selectBit(w, i uint64) uint64 {
	for range i {
		w &= w - 1
	}
	return lowest(w)
}
