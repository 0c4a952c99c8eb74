package bitmap

import (
	"math"
	"math/bits"
)

// SetRange sets every ordinal in [lo, hi] and returns how many were clear,
// saturating at [math.MaxUint64]. It panics if hi is out of range or lo > hi.
//
// O(log64 n) plus the nodes it discards: a whole slot is two bits, so 2^40 ordinals cost
// as little as 2^6. It allocates at most the nodes at the two edges, none in steady
// state.
func (b *Bitmap) SetRange(lo, hi uint64) uint64 { return b.fill(lo, hi, true) }

// ClearRange clears every ordinal in [lo, hi] and returns how many were set,
// saturating at [math.MaxUint64]. It panics, costs and allocates as
// [Bitmap.SetRange] does.
func (b *Bitmap) ClearRange(lo, hi uint64) uint64 { return b.fill(lo, hi, false) }

func (b *Bitmap) fill(lo, hi uint64, state bool) uint64 {
	b.checkRange(lo, hi)
	if !b.touched {
		if !state {
			return 0
		}
		b.plant()
	}
	if lo>>pageBits == hi>>pageBits && hi-lo < pageSize-1 {
		return b.fillPage(lo, hi, state)
	}
	b.restock()
	whole := b.Empty() == state && b.Full() != state // decides what a difference of 0 means
	var edges edges
	diff := b.fillNode(&b.root, lo, hi, state, &edges)
	if state {
		b.count += diff
	} else {
		b.count -= diff
	}
	for _, page := range edges.page[:edges.n] {
		// A page may have been dropped with a node above it, and the other edge may have
		// made the slot of a page mixed again.
		up, nd := b.parents(page)
		if nd != nil && !nd.mixed(nd.slot(page.base)) && page.spare == 0 {
			b.keep(up, nd, nd.slot(page.base))
		}
	}
	if diff == 0 && whole && b.Full() == state && lo != hi {
		return math.MaxUint64
	}
	return diff
}

// fillPage is fill for a range within one page; it works as a single flip does.
func (b *Bitmap) fillPage(lo, hi uint64, state bool) uint64 {
	page := b.reach(lo, state)
	if page == nil {
		return 0
	}
	room, some := page.room, page.some
	diff := page.fillWords(lo, hi, state)
	if diff == 0 {
		return 0
	}
	page.stale(from(page.slot(lo)) & through(page.slot(hi)))
	up := diff
	if !state {
		up = -diff
	}
	b.account(lo, up)
	if (room == 0) != (page.room == 0) || (some == 0) != (page.some == 0) {
		b.settle(page, lo)
	}
	return diff
}

// edges are the pages at the two ends of a range whose slots ceased to be mixed. fill
// keeps or drops them once the tree is consistent again.
type edges struct {
	page [2]*node
	n    int
}

// parents returns the parent of page and its parent, nil if there is none.
func (b *Bitmap) parents(page *node) (up, nd *node) {
	for nd = &b.root; nd.kid != nil; {
		step(1)
		kid := nd.kid[nd.slot(page.base)]
		if kid == page {
			return up, nd
		}
		if kid == nil || !kid.holds(page.base) {
			break
		}
		up, nd = nd, kid
	}
	return nil, nil
}

// fillNode gives the ordinals of [lo, hi] within nd the given state and returns how many
// changed.
func (b *Bitmap) fillNode(nd *node, lo, hi uint64, state bool, e *edges) (diff uint64) {
	first, last := nd.slot(lo), nd.slot(hi)
	nd.stale(from(first) & through(last))
	if nd.kid == nil {
		return nd.fillWords(lo, hi, state)
	}
	step(1)
	for c := first; c <= last; c++ {
		l, h := max(lo, nd.start(c)), min(hi, nd.start(c)|(1<<nd.shift-1))
		if h-l == 1<<nd.shift-1 {
			diff += b.fillSlot(nd, c, state)
		} else {
			diff += b.fillPart(nd, c, l, h, state, e)
		}
	}
	return diff
}

// fillWords is fillNode for a page.
func (nd *node) fillWords(lo, hi uint64, state bool) (diff uint64) {
	first, last := nd.slot(lo), nd.slot(hi)
	for c := first; c <= last; c++ {
		step(1)
		mask := ^uint64(0)
		if c == first {
			mask &= from(lo % 64)
		}
		if c == last {
			mask &= through(hi % 64)
		}
		old := nd.words[c]
		now := old | mask
		if !state {
			now = old &^ mask
		}
		nd.words[c] = now
		diff += uint64(bits.OnesCount64(old ^ now))
		nd.setState(c, now)
	}
	return diff
}

// setState sets the two bits of slot c of a page from its word.
func (nd *node) setState(c, word uint64) {
	bit := uint64(1) << c
	nd.room |= bit
	nd.some |= bit
	if word == 0 {
		nd.some &^= bit
	}
	if word == ^uint64(0) {
		nd.room &^= bit
	}
}

// fillSlot is fillNode for a whole slot, which lies below n.
func (b *Bitmap) fillSlot(nd *node, c uint64, state bool) (diff uint64) {
	step(1)
	if nd.kid[c] != nil {
		b.drop(nd, c)
	}
	nd.mark(1<<c, state)
	diff, nd.words[c] = nd.words[c], 0
	if state {
		nd.words[c] = 1 << nd.shift
		diff = 1<<nd.shift - diff
	}
	return diff
}

// fillPart is fillNode for a part of slot c of nd.
func (b *Bitmap) fillPart(nd *node, c, lo, hi uint64, state bool, e *edges) (diff uint64) {
	step(1)
	kid := nd.kid[c]
	switch {
	case !nd.mixed(c):
		was := nd.some>>c&1 != 0
		if was == state {
			return 0
		}
		if kid == nil || !kid.holds(lo) || !kid.holds(hi) {
			if kid != nil {
				b.drop(nd, c)
			}
			kid = b.put(nd, c, b.takeNode(coverShift(lo, hi), lo), lo, was)
		}
	case kid.holds(lo) && kid.holds(hi):
	case kid.outer == state && (hi < kid.base || lo > kid.end()):
		return 0
	default:
		kid = b.split(nd, c, lo, hi)
	}
	diff = b.fillNode(kid, lo, hi, state, e)
	if state {
		nd.words[c] += diff
	} else {
		nd.words[c] -= diff
	}
	nd.sync(c)
	switch {
	case nd.mixed(c):
		if kid.spare != 0 {
			b.pool.unspare(kid)
		}
		b.splice(nd, kid)
	case kid.kid != nil:
		b.drop(nd, c)
	default:
		e.page[e.n] = kid
		e.n++
	}
	return diff
}

// CountRange returns how many ordinals of [lo, hi] are set, saturating at
// [math.MaxUint64]. It panics if hi is out of range or lo > hi. O(log64 n).
func (b *Bitmap) CountRange(lo, hi uint64) uint64 {
	b.checkRange(lo, hi)
	if lo == 0 {
		if hi == b.last {
			return b.Count()
		}
		return b.root.below(hi) + b.bit(hi)
	}
	return b.root.below(hi) + b.bit(hi) - b.root.below(lo)
}

func (b *Bitmap) bit(x uint64) uint64 {
	if b.Test(x) {
		return 1
	}
	return 0
}
