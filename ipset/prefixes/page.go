package prefixes

import (
	"math/bits"

	"github.com/ipalloc/ipalloc/internal/wire"
)

// A pool's space is a tree of pages. The page at depth d spans a prefix that is 6d bits
// longer than the pool's, and has 64 slots of 6 more bits. A slot is free, taken (a
// prefix held from the pool covers it, alone or with its neighbours), or divided: a page
// one level deeper describes it. A page that is wholly free has no record, so records
// exist only around held prefixes.

// pageBits is log2 of the slots of a page.
const pageBits = 6

// maxRelative is the largest difference between a pool's length and a length that it
// allocates.
const maxRelative = 128

// maxDepth is the number of levels of pages that such a pool has.
const maxDepth = (maxRelative-1)/pageBits + 1

// page is the content of one page. The methods that change it return another page and do
// not modify below, because a failed transaction keeps the old page.
type page struct {
	taken, divided uint64 // slots; no slot is both
	first          uint64 // of the taken slots the first one of each held prefix
	// lengths is the set of lengths of the maximal free prefixes in the pages under
	// divided slots. For each length, in order, below has a mask of the slots with such a
	// prefix.
	lengths sizes
	below   []uint64
}

// sizes is a set of prefix lengths relative to the pool's, 1 to 128, the first in bit 0.
// They are the lengths of the maximal free prefixes in a part of the pool. A free prefix
// is maximal if the prefix of twice its size around it is not free. A pool whose first
// page is empty has length 0.
type sizes [2]uint64

func (s sizes) with(n int) sizes { n--; s[n>>6] |= 1 << (n & 63); return s }

func (s sizes) has(n int) bool { n--; return s[n>>6]>>(n&63)&1 == 1 }

func (s sizes) or(o sizes) sizes { return sizes{s[0] | o[0], s[1] | o[1]} }

func (s sizes) len() int { return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) }

// rank returns how many of the lengths are below n.
func (s sizes) rank(n int) int {
	if n--; n < 64 {
		return bits.OnesCount64(s[0] & (1<<n - 1))
	}
	return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]&(1<<(n-64)-1))
}

// pop removes and returns the smallest length.
func (s *sizes) pop() int {
	if s[0] != 0 {
		n := bits.TrailingZeros64(s[0])
		s[0] &= s[0] - 1
		return n + 1
	}
	n := 64 + bits.TrailingZeros64(s[1])
	s[1] &= s[1] - 1
	return n + 1
}

// fit returns the longest length that is not above n: the smallest free prefix with room
// for length n. It returns 0 if there is none.
func (s sizes) fit(n int) int {
	hi, lo := s[1], s[0]
	if n < 128 {
		hi &= 1<<max(n-64, 0) - 1
	}
	if hi != 0 {
		return 128 - bits.LeadingZeros64(hi)
	}
	if n < 64 {
		lo &= 1<<n - 1
	}
	return 64 - bits.LeadingZeros64(lo)
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

// sizes returns the lengths of the maximal free prefixes in a page of depth d. An empty
// page of depth 0 has none.
func (p page) sizes(d int) sizes {
	s := p.lengths
	for k, run := range p.runs() {
		if run != 0 && (d > 0 || k < pageBits) {
			s = s.with(pageBits*(d+1) - k)
		}
	}
	return s
}

// under returns the free lengths under a divided slot.
func (p page) under(slot int) (s sizes) {
	lengths := p.lengths
	for _, slots := range p.below {
		if n := lengths.pop(); slots>>slot&1 == 1 {
			s = s.with(n)
		}
	}
	return s
}

// withRoom returns the first slot that has a free prefix of that length below it, -1 if
// there is none.
func (p page) withRoom(n int) int {
	if !p.lengths.has(n) {
		return -1
	}
	return bits.TrailingZeros64(p.below[p.lengths.rank(n)])
}

// divide makes a slot divided, with the given free lengths under it.
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
	if p.under(slot) == s {
		return p
	}
	all, was := p.lengths.or(s), p.below
	below, lengths := make([]uint64, 0, all.len()), sizes{}
	for all != (sizes{}) {
		n, slots := all.pop(), uint64(0)
		if p.lengths.has(n) {
			slots, was = was[0]&^(1<<slot), was[1:]
		}
		if s.has(n) {
			slots |= 1 << slot
		}
		if slots != 0 {
			below, lengths = append(below, slots), lengths.with(n)
		}
	}
	p.below, p.lengths = below, lengths
	return p
}

// hold marks the 2^order slots from slot on as one held prefix, and reports whether all
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

// drop is the inverse of hold. It returns false if these slots are not one held prefix.
func (p *page) drop(slot, order int) bool {
	if p.first>>slot&1 == 0 || p.order(slot) != order {
		return false
	}
	p.taken &^= run(slot, order)
	p.first &^= 1 << slot
	return true
}

// order returns log2 of the number of slots of the held prefix that begins at slot. It
// returns -1 if no prefix with that number of slots can begin there.
func (p page) order(slot int) int {
	n := min(bits.TrailingZeros64(^(p.taken >> slot)), 1+bits.TrailingZeros64(p.first>>slot>>1))
	n = min(n, 1<<pageBits-slot)
	if n == 0 || n&(n-1) != 0 || slot&(n-1) != 0 {
		return -1
	}
	return bits.TrailingZeros(uint(n))
}

// sound reports whether the taken slots form held prefixes.
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

// within reports whether the page has nothing smaller than an address or larger than a
// page can hold.
func (p page) within(id pageID) bool {
	pool := id.of()
	k := pool.Bits() + pageBits*(id.depth()+1) - pool.Addr().BitLen() // log2 of the slots of an address
	if p.taken == ^uint64(0) && p.first == 1 {
		return id.depth() == 0 // a part that is held as a whole is a slot of the page above
	}
	return k <= 0 || p.divided == 0 && p.first&^aligned[k] == 0 && p.taken&aligned[k]*run(0, k) == p.taken
}

// empty reports whether the page is wholly free.
func (p page) empty() bool { return p.taken|p.divided == 0 }

// run returns the mask of 2^order slots from slot on.
func run(slot, order int) uint64 {
	if order == pageBits {
		return ^uint64(0)
	}
	return (1<<(1<<order) - 1) << slot
}

// code encodes or decodes a page: its slots, the free lengths under divided slots, and
// the changes of the slots from one length to the next. A path to a single prefix has one
// divided slot for all lengths.
func (p *page) code(c *wire.Coder) {
	c.Version(recordVersion)
	wire.Word(c, &p.taken)
	wire.Word(c, &p.first)
	wire.Word(c, &p.divided)
	p.lengths.code(c)
	if !c.Writes {
		p.below = make([]uint64, p.lengths.len())
	}
	turns := p.turns()
	turns.code(c)
	last, lengths := p.divided, p.lengths
	for i := range p.below {
		if n := lengths.pop(); turns.has(n) {
			differ := p.below[i] ^ last
			wire.Uint(c, &differ)
			last ^= differ
		}
		p.below[i] = last
	}
	if !c.Writes && (p.turns() != turns || !p.rooms()) {
		c.Fail("slots of a length")
	}
}

func (s *sizes) code(c *wire.Coder) {
	wire.Uint(c, &s[0])
	wire.Uint(c, &s[1])
}

// turns returns the lengths whose slots differ from the slots of the length before.
func (p *page) turns() (turns sizes) {
	last, lengths := p.divided, p.lengths
	for _, slots := range p.below {
		if n := lengths.pop(); slots != last {
			turns, last = turns.with(n), slots
		}
	}
	return turns
}

// rooms reports whether each length has slots, and all of them are divided.
func (p *page) rooms() bool {
	for _, slots := range p.below {
		if slots == 0 || slots&^p.divided != 0 {
			return false
		}
	}
	return true
}

func (p page) value() string {
	c := wire.Write(nil)
	p.code(c)
	return string(c.B)
}

// decodePage returns the page in a record's value.
func decodePage(value string, id pageID) (p page, err error) {
	c := wire.Coder{Reader: wire.Reader{S: value}}
	p.code(&c)
	if !p.sound() || p.empty() || !p.within(id) {
		c.Fail("slots")
	}
	if lengths := p.lengths; lengths != (sizes{}) && lengths.pop() <= pageBits*(id.depth()+1) {
		c.Fail("lengths")
	}
	if c.End() != nil {
		return page{}, unreadable(id.of(), "a page", c.Err)
	}
	return p, nil
}
