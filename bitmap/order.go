package bitmap

import (
	"fmt"
	"math/bits"
)

// An order summary answers one question in O(levels): where is the lowest
// maximal aligned clear run of 2^k ordinals?
//
// A clear aligned run is maximal if the run of twice its length that contains it is not
// wholly clear. Each node splits the runs inside it in two groups. Runs of at least a
// slot are aligned groups of clear slots. They follow from the word some by six shifts
// and are not stored. Smaller runs lie inside mixed slots: for each order k below the
// shift, one word says which slots hold a maximal run of 2^k. "order" stores these words.
// A slot with its bit in stale must be recomputed before use.
//
// A child may be smaller than its slot. If the rest of the slot is clear, the child
// contributes its own runs and its buddies. The rest is exactly one maximal run of each
// order from the size of the child to half the slot.
//
// A node of shift s has a chain of at least s/6 links. A link covers six orders and takes
// 64 bytes.
//
// For example, a set over [0, 2^14) has a root of four slots, each of 4,096 ordinals.
// Ordinal 5 is set, so slot 0 has a page, and slots 1 to 3 are wholly clear. After each
// call, the summaries are:
//
//	BestFit(0) = 4   The first call builds the summaries. Word 0 of the page has runs of
//	                 orders 0 (ordinal 4), 1 (6-7), 2 (0-3), 3, 4 and 5.
//	                 page: word 0 in orders 0-5, none stale
//	                 root: slot 0 in orders 0-11, none stale
//	                 Orders 6-11 of the page follow from its clear words 1-63, and orders
//	                 12 and 13 of the root from its clear slots 1 and 2-3.
//	Set(4)           page: word 0 in orders 0-5, word 0 stale
//	                 root: slot 0 in orders 0-11, slot 0 stale
//	BestFit(0) = 6   Word 0 has no run of order 0 left, so the call takes half of 6-7.
//	                 page: word 0 in orders 1-5, none stale
//	                 root: slot 0 in orders 1-11, none stale
//	Set(70)          page: word 0 in orders 1-5, word 1 stale
//	                 root: slot 0 in orders 1-11, slot 0 stale
//	BestFit(0) = 71  Word 1 is mixed now. The page lost its run of order 6.
//	                 page: word 0 in orders 1-5, word 1 in orders 0-5, none stale
//	                 root: slot 0 in orders 0-5 and 7-11, none stale
type order struct {
	mask  [fanBits]uint64 // slots with a maximal run of order 6*link+i
	stale uint64          // in the first link: slots to recompute
	next  *order
}

// unreported is node.reported of a page whose orders its parent has not recorded.
const unreported = ^uint16(0)

// BestFit returns the first ordinal of the smallest maximal aligned run of clear ordinals
// that holds 2^k. If several runs are equally small, it returns the lowest. ok is false
// if there is no such run. It panics if k is negative. The set is unchanged.
//
// O(log n) steps, plus a constant number for each word that changed since the last
// call. The first call builds the summaries in one pass over the set.
func (b *Bitmap) BestFit(k int) (lo uint64, ok bool) {
	if k < 0 {
		panic(fmt.Sprintf("bitmap: negative order %d", k))
	}
	if !b.some || k > 64 || b.Full() {
		return 0, false
	}
	if b.Empty() {
		return b.emptyFit(k)
	}
	has := b.refresh(&b.root) & from(uint64(k))
	if has == 0 {
		return 0, false
	}
	return b.root.locate(bits.TrailingZeros64(has)), true
}

// MaxClearOrder returns the order of the largest aligned run of clear ordinals;
// ok is false if no ordinal is clear. It costs what [Bitmap.BestFit] does.
func (b *Bitmap) MaxClearOrder() (k int, ok bool) {
	if !b.some || b.Full() {
		return 0, false
	}
	if b.Empty() {
		if b.last == ^uint64(0) {
			return 64, true
		}
		return bits.Len64(b.last+1) - 1, true
	}
	return bits.Len64(b.refresh(&b.root)) - 1, true
}

// emptyFit is BestFit for an empty set: the maximal runs are the binary digits of n.
func (b *Bitmap) emptyFit(k int) (lo uint64, ok bool) {
	if b.last == ^uint64(0) {
		return 0, true // one run of 2^64
	}
	n := b.last + 1
	has := n & from(uint64(k))
	if has == 0 {
		return 0, false
	}
	return n &^ (has&-has<<1 - 1), true
}

// heads[j] has a bit for each multiple of 2^(j+1), where an aligned group of that many
// bits can start. The array has two more elements than there are orders, which spares the
// bounds check.
var heads = [8]uint64{
	0x5555555555555555, 0x1111111111111111, 0x0101010101010101,
	0x0001000100010001, 0x0000000100000001, 1,
}

// group returns the first slots of the maximal aligned groups of 2^j slots in m,
// for j up to 6.
func group(m uint64, j int) uint64 {
	for i := range j {
		m &= m >> (1 << i) & heads[i%8]
	}
	if j < fanBits {
		twice := m & (m >> (1 << j)) & heads[j%8]
		m &^= twice | twice<<(1<<j)
	}
	return m
}

// digest returns the orders j with a group(m, j) that is not empty, as bits. It is
// unrolled and branch-free because it runs for every mixed word that flipped.
func digest(m uint64) uint64 {
	m1 := m & (m >> 1) & 0x5555555555555555
	m2 := m1 & (m1 >> 2) & 0x1111111111111111
	m3 := m2 & (m2 >> 4) & 0x0101010101010101
	m4 := m3 & (m3 >> 8) & 0x0001000100010001
	m5 := m4 & (m4 >> 16) & 0x0000000100000001
	m6 := m5 & (m5 >> 32)
	return nonzero(m&^(m1|m1<<1)) |
		nonzero(m1&^(m2|m2<<2))<<1 |
		nonzero(m2&^(m3|m3<<4))<<2 |
		nonzero(m3&^(m4|m4<<8))<<3 |
		nonzero(m4&^(m5|m5<<16))<<4 |
		nonzero(m5&^(m6|m6<<32))<<5 |
		m6<<6
}

// refresh updates the order summaries of nd and all nodes below it, and returns the
// orders of nd's maximal runs, as bits. An order of 64 has no bit: only an empty set has
// such a run.
func (b *Bitmap) refresh(nd *node) (has uint64) {
	if nd.order == nil {
		nd.order = &order{stale: ^uint64(0)}
		nd.order.extend(nd.shift)
	}
	stale := nd.order.stale
	nd.order.stale = 0
	if nd.kid == nil {
		nd.order.forget(stale)
		for m := stale & nd.room & nd.some; m != 0; m &= m - 1 {
			step(1)
			c := lowest(m)
			nd.order.put(c, digest(^nd.words[c]))
		}
		return nd.orders()
	}
	for ; stale != 0; stale &= stale - 1 {
		step(1)
		b.refreshSlot(nd, lowest(stale))
	}
	return nd.orders()
}

// extend makes the chain long enough for a node of the given shift. A reused node may
// have a longer chain; the links at its end stay empty.
func (o *order) extend(shift uint8) {
	for ; o != nil && shift > fanBits; o, shift = o.next, shift-fanBits {
		if o.next == nil {
			o.next = &order{}
		}
	}
}

// refreshSlot is refresh for one slot of an inner node.
func (b *Bitmap) refreshSlot(nd *node, c uint64) {
	kid := nd.kid[c]
	if !nd.mixed(c) {
		if kid != nil {
			kid.reported = unreported
		}
		nd.order.forget(1 << c)
		return
	}
	has := b.refresh(kid)
	if kid.kid == nil {
		// The orders of a page fit in reported, and most flips do not change them.
		if uint64(kid.reported) == has {
			return
		}
		kid.reported = uint16(has)
	}
	nd.order.forget(1 << c)
	nd.order.put(c, has|nd.buddies(kid))
}

// orders returns the orders of the node's maximal runs, as bits.
func (nd *node) orders() uint64 {
	has, k := uint64(0), 0
	if free := ^nd.some; free != 0 { // rare in inner nodes
		has = digest(free) << nd.shift
	}
	for o := nd.order; o != nil; o = o.next {
		m := &o.mask
		has |= (nonzero(m[0]) | nonzero(m[1])<<1 | nonzero(m[2])<<2 |
			nonzero(m[3])<<3 | nonzero(m[4])<<4 | nonzero(m[5])<<5) << k
		k += fanBits
	}
	return has
}

// forget removes the slots of mask from every order.
func (o *order) forget(mask uint64) {
	for ; o != nil; o = o.next {
		m := &o.mask
		m[0] &^= mask
		m[1] &^= mask
		m[2] &^= mask
		m[3] &^= mask
		m[4] &^= mask
		m[5] &^= mask
	}
}

// put adds slot c to the orders in has.
func (o *order) put(c, has uint64) {
	for c %= fan; o != nil; o = o.next {
		m := &o.mask
		m[0] |= has & 1 << c
		m[1] |= has >> 1 & 1 << c
		m[2] |= has >> 2 & 1 << c
		m[3] |= has >> 3 & 1 << c
		m[4] |= has >> 4 & 1 << c
		m[5] |= has >> 5 & 1 << c
		has >>= fanBits
	}
}

// at returns the slots that hold a maximal run of order k.
func (o *order) at(k int) uint64 {
	for ; k >= fanBits; k -= fanBits {
		o = o.next
	}
	return o.mask[k]
}

// buddies returns the orders of the maximal runs that make up the rest of kid's slot.
func (nd *node) buddies(kid *node) uint64 {
	if !nd.smaller(kid) || kid.outer {
		return 0
	}
	return from(uint64(kid.shift+fanBits)) &^ from(uint64(nd.shift))
}

// locate returns the lowest maximal run of order k; nd must have such a run and an
// up-to-date summary.
func (nd *node) locate(k int) uint64 {
	step(1)
	if k >= int(nd.shift) {
		return nd.start(lowest(group(^nd.some, k-int(nd.shift))))
	}
	c := lowest(nd.order.at(k))
	if nd.kid == nil {
		return nd.start(c) + lowest(group(^nd.words[c], k))
	}
	kid := nd.kid[c]
	if nd.buddies(kid)>>k&1 != 0 {
		return (kid.base>>k ^ 1) << k
	}
	return kid.locate(k)
}

// checkOrder recomputes the order summary of slots that are not stale.
func (nd *node) checkOrder() error {
	if nd.order == nil {
		return nil
	}
	for c := range uint64(fan) {
		if nd.order.stale>>c&1 != 0 {
			continue
		}
		var got, want uint64
		k := 0
		for o := nd.order; o != nil; o = o.next {
			for i, m := range o.mask {
				got |= m >> c & 1 << (k + i)
			}
			k += fanBits
		}
		switch {
		case !nd.mixed(c):
		case nd.kid == nil:
			want = digest(^nd.words[c])
		default:
			kid := nd.kid[c]
			if kid.order == nil || kid.order.stale != 0 || kid.kid == nil && uint64(kid.reported) != kid.orders() && kid.reported != unreported {
				return fmt.Errorf("slot %d is said to be up to date over a child that is not", c)
			}
			want = kid.orders() | nd.buddies(kid)
		}
		if got != want {
			return fmt.Errorf("slot %d has orders %x, summary says %x", c, want, got)
		}
	}
	return nil
}
