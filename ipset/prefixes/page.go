package prefixes

import (
	"encoding/binary"
	"math/bits"
)

// A pool's space is a tree of pages. The page at depth d spans a prefix 6d bits longer
// than the pool's and has 64 slots of 6 bits more. A slot is free, taken (a prefix held
// from the pool covers it, alone or with its neighbours), or divided: a page one level
// deeper describes it. A wholly free page has no record, so records exist only around
// what is held.

// pageBits is log2 of the slots of a page.
const pageBits = 6

// maxRelative is the largest difference between a pool's length and one of those that it
// hands out, because a set of lengths has 128 bits.
const maxRelative = 127

// maxDepth is the number of levels of pages that such a pool has.
const maxDepth = maxRelative/pageBits + 1

// page is one page's content. The methods that change it return another page and leave
// below intact, because a transaction that fails keeps the former one.
type page struct {
	taken, divided uint64 // slots; no slot is both
	first          uint64 // of the taken slots the first one of each held prefix
	room           uint64 // the divided slots under which something is free
	// below has one summary for each slot with room, in slot order: the free prefixes of
	// the pages under it. Best fit leaves few such slots.
	below []sizes
}

// sizes is a set of prefix lengths relative to the pool's, 0 to 127: those of the
// maximal free prefixes in a part of the pool. A free prefix is maximal if the one of
// which it is a half is not free.
type sizes [2]uint64

func (s sizes) with(n int) sizes { s[n>>6] |= 1 << (n & 63); return s }

func (s sizes) has(n int) bool { return s[n>>6]>>(n&63)&1 == 1 }

func (s sizes) or(o sizes) sizes { return sizes{s[0] | o[0], s[1] | o[1]} }

// fit returns the longest of the lengths that is not above n: the smallest free prefix
// that one of length n fits into. It returns -1 if there is none.
func (s sizes) fit(n int) int {
	hi, lo := s[1], s[0]
	if n < 127 {
		hi &= 1<<max(n-63, 0) - 1
	}
	if hi != 0 {
		return 127 - bits.LeadingZeros64(hi)
	}
	if n < 63 {
		lo &= 1<<(n+1) - 1
	}
	return 63 - bits.LeadingZeros64(lo)
}

// aligned[k] has the first slot of each run of 2^k slots that starts at a multiple of 2^k.
var aligned = [pageBits + 1]uint64{
	^uint64(0), 0x5555555555555555, 0x1111111111111111, 0x0101010101010101, 0x0001000100010001, 1<<32 | 1, 1,
}

// runs returns the first slots of the maximal free runs of 2^k slots, for each k.
func (p page) runs() (maximal [pageBits + 1]uint64) {
	free := ^(p.taken | p.divided) // runs of 2^k slots that are free, by first slot
	for k := range pageBits {
		both := free & (free >> (1 << k)) & aligned[k+1]
		maximal[k] = free &^ (both | both<<(1<<k))
		free = both
	}
	maximal[pageBits] = free
	return maximal
}

// sizes returns the lengths of the maximal free prefixes in a page of depth d.
func (p page) sizes(d int) sizes {
	var s sizes
	for k, run := range p.runs() {
		if run != 0 {
			s = s.with(pageBits*(d+1) - k)
		}
	}
	for _, below := range p.below {
		s = s.or(below)
	}
	return s
}

// under returns what is free under a divided slot.
func (p page) under(slot int) sizes {
	if p.room>>slot&1 == 0 {
		return sizes{}
	}
	return p.below[bits.OnesCount64(p.room&(1<<slot-1))]
}

// withRoom returns the first slot under which a prefix of a length is free as a whole, -1
// if there is none.
func (p page) withRoom(n int) int {
	room := p.room
	for _, s := range p.below {
		if s.has(n) {
			return bits.TrailingZeros64(room)
		}
		room &= room - 1
	}
	return -1
}

// divide makes a slot divided, with what is free under it.
func (p page) divide(slot int, s sizes) page {
	p.divided |= 1 << slot
	return p.setRoom(slot, s)
}

// unite makes a divided slot free.
func (p page) unite(slot int) page {
	p.divided &^= 1 << slot
	return p.setRoom(slot, sizes{})
}

func (p page) setRoom(slot int, s sizes) page {
	i, had, has := bits.OnesCount64(p.room&(1<<slot-1)), p.room>>slot&1 == 1, s != sizes{}
	if !had && !has || had && p.below[i] == s {
		return p
	}
	below := append(make([]sizes, 0, len(p.below)+1), p.below[:i]...)
	if p.room &^= 1 << slot; has {
		p.room |= 1 << slot
		below = append(below, s)
	}
	if had {
		i++
	}
	p.below = append(below, p.below[i:]...)
	return p
}

// hold marks the 2^order slots from a slot on as one held prefix, and reports whether all
// of them were free.
func (p *page) hold(slot, order int) bool {
	mask := run(slot, order)
	if (p.taken|p.divided)&mask != 0 {
		return false
	}
	p.taken |= mask
	p.first |= 1 << slot
	return true
}

// drop is the inverse of hold. It reports false if these slots are not one held prefix.
func (p *page) drop(slot, order int) bool {
	if p.first>>slot&1 == 0 || p.order(slot) != order {
		return false
	}
	p.taken &^= run(slot, order)
	p.first &^= 1 << slot
	return true
}

// order returns log2 of the number of slots of the held prefix whose first slot is given,
// or -1 if no prefix has that number of slots there.
func (p page) order(slot int) int {
	n := min(bits.TrailingZeros64(^(p.taken >> slot)), 1+bits.TrailingZeros64(p.first>>slot>>1))
	n = min(n, 1<<pageBits-slot)
	if n == 0 || n&(n-1) != 0 || slot&(n-1) != 0 || n == 1<<pageBits {
		return -1
	}
	return bits.TrailingZeros(uint(n))
}

// sound reports whether the taken slots are held prefixes.
func (p page) sound() bool {
	covered := uint64(0)
	for first := p.first; first != 0; first &= first - 1 {
		slot := bits.TrailingZeros64(first)
		order := p.order(slot)
		if order < 0 {
			return false
		}
		covered |= run(slot, order)
	}
	return covered == p.taken && p.taken&p.divided == 0
}

// within reports whether nothing in the page is smaller than an address.
func (p page) within(id pageID) bool {
	pool := id.of()
	k := pool.Bits() + pageBits*(id.depth()+1) - pool.Addr().BitLen() // log2 of the slots of an address
	return k <= 0 || p.divided == 0 && p.first&^aligned[k] == 0 && p.taken&aligned[k]*run(0, k) == p.taken
}

// empty reports whether the page is wholly free.
func (p page) empty() bool { return p.taken|p.divided == 0 }

// run returns the mask of 2^order slots from a slot on.
func run(slot, order int) uint64 {
	if order == pageBits {
		return ^uint64(0)
	}
	return (1<<(1<<order) - 1) << slot
}

// The first byte of a page's record: with one number for each slot with room, or, where a
// length is above 63 bits, with two.
const (
	pageNarrow = 1
	pageWide   = 2
)

// append appends the record's value of a page of depth d.
//
//	1 or 2, taken, first, divided, room (8 bytes each); for each slot with room its lengths
//	up to 63 as an uvarint, and with 2 those from 64 on too, shifted by those above this
//	depth
func (p page) append(b []byte, d int) []byte {
	at, shift := len(b), pageBits*(d+1)
	b = append(b, pageNarrow)
	for _, slots := range [...]uint64{p.taken, p.first, p.divided, p.room} {
		b = binary.BigEndian.AppendUint64(b, slots)
	}
	high := uint64(0)
	for _, s := range p.below {
		high |= s.shiftRight(shift)[1]
	}
	if high != 0 {
		b[at] = pageWide
	}
	for _, s := range p.below {
		s = s.shiftRight(shift)
		if s[0] < 0x80 {
			b = append(b, byte(s[0]))
		} else {
			b = binary.AppendUvarint(b, s[0])
		}
		if high != 0 {
			b = binary.AppendUvarint(b, s[1])
		}
	}
	return b
}

func (s sizes) shiftRight(n int) sizes {
	if n >= 64 {
		return sizes{s[1] >> (n - 64), 0}
	}
	return sizes{s[0]>>n | s[1]<<(64-n), s[1] >> n}
}

func (s sizes) shiftLeft(n int) sizes {
	if n >= 64 {
		return sizes{0, s[0] << (n - 64)}
	}
	return sizes{s[0] << n, s[1]<<n | s[0]>>(64-n)}
}

// decodePage is the inverse of append.
func decodePage(value string, id pageID) (page, error) {
	bad := corrupt(id.of(), "a page of the free space is damaged")
	if err := checkVersion(id.of(), value, pageWide); err != nil {
		return page{}, err
	}
	b := []byte(value)
	if len(b) < 33 {
		return page{}, bad
	}
	p := page{taken: binary.BigEndian.Uint64(b[1:]), first: binary.BigEndian.Uint64(b[9:]), divided: binary.BigEndian.Uint64(b[17:]), room: binary.BigEndian.Uint64(b[25:])}
	b = b[33:]
	if !p.sound() || p.empty() || p.room&^p.divided != 0 || !p.within(id) {
		return page{}, bad
	}
	shift, high := pageBits*(id.depth()+1), uint64(0)
	for range bits.OnesCount64(p.room) {
		var s sizes
		for i := range int(value[0]) {
			v, n := binary.Uvarint(b)
			if n <= 0 || n > 1 && b[n-1] == 0 {
				return page{}, bad
			}
			s[i], b = v, b[n:]
		}
		if s == (sizes{}) || s.shiftLeft(shift).shiftRight(shift) != s {
			return page{}, bad
		}
		high |= s[1]
		p.below = append(p.below, s.shiftLeft(shift))
	}
	if (high != 0) != (value[0] == pageWide) {
		return page{}, bad
	}
	if len(b) > 0 {
		return page{}, bad
	}
	return p, nil
}
