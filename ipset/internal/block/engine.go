package block

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/ipalloc/ipalloc"
)

// LoadRecord loads the address of a held or cooling ordinal from its coded record, "" for none. It returns [ipalloc.ErrCorrupt] for a
// record that contradicts the block, and [ipalloc.ErrVersion] for another version.
func (b *Block) LoadRecord(x uint64, record string) error {
	a, length, err := DecodeAddress(record)
	if err != nil {
		return err
	}
	if st, _ := b.Look(x); a.Cooling != (st == Cooling) || length != b.prefix.Bits() || a.lastSeq() > b.seq {
		return fmt.Errorf("%w: address record says cooling %v, /%d, sequence number %d", ipalloc.ErrCorrupt, a.Cooling, length, a.lastSeq())
	}
	b.Load(x, &a)
	return nil
}

// HasFree reports whether an address can be assigned; O(1).
func (b *Block) HasFree() bool { return !b.free.empty() }

// Peek appends the next k free ordinals in queue order that are in none of the avoided spans, which ascend. Nothing is taken.
func (b *Block) Peek(dst []uint64, k int, avoid []Span) []uint64 {
	return b.free.peek(dst, b.most(k), avoid)
}

// FreeSpans returns the free ordinals in queue order. The caller must not modify the result, which is valid until the block
// changes.
func (b *Block) FreeSpans() []Span { return b.free.spans[b.free.head:] }

// CoolingTimes returns when the first and the last cooling ordinal is free, 0 if none cools.
func (b *Block) CoolingTimes() (first, last int64) {
	if len(b.cool) == 0 {
		return 0, 0
	}
	return b.cool[0].until, b.cool[len(b.cool)-1].until
}

// EachCooling yields the cooling ordinals by the time when each is free again, and that time, 0 if it is not known.
func (b *Block) EachCooling() iter.Seq2[uint64, int64] {
	return func(yield func(uint64, int64) bool) {
		for _, c := range b.cool {
			if !yield(c.x, c.until) {
				return
			}
		}
	}
}

// Count returns how many ordinals of a span, which may reach beyond the block, are held, cooling and reserved at the ends of the block.
// O(1) for the whole block, else O(span).
func (b *Block) Count(s Span) (held, cooling, reserved uint64) {
	if s.Lo == 0 && s.Hi >= b.last {
		return b.used, uint64(len(b.cool)), b.head + b.tail
	}
	for first, p := range b.pages() {
		if s.Hi < first || first+63 < s.Lo {
			continue
		}
		mask := ^uint64(0)
		if first < s.Lo {
			mask <<= s.Lo - first
		}
		if last := first + 63; s.Hi < last {
			mask &= ^uint64(0) >> (last - s.Hi)
		}
		held += uint64(bits.OnesCount64(p.held & mask))
		cooling += uint64(bits.OnesCount64(p.cooling & mask))
	}
	if b.head > s.Lo {
		reserved += min(b.head-1, s.Hi) - s.Lo + 1
	}
	if first := b.last - b.tail + 1; b.tail > 0 && s.Hi >= first {
		reserved += min(s.Hi, b.last) - max(first, s.Lo) + 1
	}
	return held, cooling, reserved
}

// Track makes the block note each address record in c before its first change.
func (b *Block) Track(c *Changes) { b.changes = c }

// Recount corrects the number of leases after addresses were loaded that a repair made up, and reports whether it was wrong.
// All addresses must be loaded.
func (b *Block) Recount() bool {
	n := b.countLeases()
	if n == b.leases {
		return false
	}
	b.leases, b.ended = n, true
	b.Tidy()
	return true
}

func (b *Block) countLeases() (n uint64) {
	for _, a := range b.Each() {
		for h := range a.Holders() {
			if h.Until != 0 && !a.Cooling {
				n++
			}
		}
	}
	return n
}

// Complete returns an error that is [ipalloc.ErrCorrupt] unless all addresses are loaded and the leases among them are as many as
// the block's record says.
func (b *Block) Complete() error {
	if n := b.countLeases(); b.absent > 0 || n != b.leases {
		return fmt.Errorf("%w: %d address records are missing, %d of %d leases are there", ipalloc.ErrCorrupt, b.absent, n, b.leases)
	}
	return nil
}

// Emptied returns a copy of the block with nothing held or cooling. The lists must have all held and cooling ordinals, which
// become the last of its queue.
func (b *Block) Emptied(lists ...[]uint64) *Block {
	c := *b
	c.free = queue{spans: slices.Clone(b.FreeSpans())}
	for _, xs := range lists {
		for _, x := range xs {
			c.free.push(x)
		}
	}
	c.cool, c.dir, c.sparse, c.used, c.leases, c.lease, c.absent = nil, nil, nil, 0, 0, 0, 0
	return &c
}
