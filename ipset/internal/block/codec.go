package block

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// The coded block, version 1: everything but its addresses, which have records of their own. Its prefix is in its key.
// Numbers are uvarints, signed ones zig-zag; a string is its length and its bytes.
//
//	1                      version
//	flags                  the kind of the owner, and what follows, see below
//	owner                  string, for one with a kind
//	head, tail             with flagReserved
//	claimed                signed, nanoseconds since 1970
//	since - claimed        signed
//	sequence number
//	lease - claimed        signed, with flagLeases: no lease ends before
//	leases                 with flagLeases: how many there are
//	former owners          string, with flagFormer: their codes, each ended by NUL
//	queue                  the number of spans of free ordinals, and the spans as codeSpan says
//	cooling                with flagCooling: the number of cooling ordinals, and each
//	first - claimed        signed, with flagCooling: when the first cooling ordinal is free
//	last - claimed         signed, for several cooling ordinals: when the last one is
//
// An ordinal that is neither reserved nor in the queue nor cooling is held.
const (
	blockVersion = 1

	flagKind     = 3
	flagReserved = 1 << 2
	flagLeases   = 1 << 3
	flagFormer   = 1 << 4
	flagCooling  = 1 << 5
)

// flags returns the flags of the block.
func (b *Block) flags() byte {
	flags := byte(b.owner.Kind)
	if b.head|b.tail != 0 {
		flags |= flagReserved
	}
	if b.lease != 0 {
		flags |= flagLeases
	}
	if b.former != "" {
		flags |= flagFormer
	}
	if len(b.cool) > 0 {
		flags |= flagCooling
	}
	return flags
}

// code codes the block. To read, the block must have been reset.
func (b *Block) code(c *wire.Coder) {
	c.Version(blockVersion)
	flags := b.flags()
	if wire.Byte(c, &flags); !c.Writes {
		b.owner.Kind = alloc.OwnerKind(flags & flagKind)
	}
	if b.owner.Kind != alloc.Nobody {
		wire.String(c, &b.owner.Name)
	}
	if flags&flagReserved != 0 {
		wire.Uint(c, &b.head)
		wire.Uint(c, &b.tail)
	}
	wire.Int(c, &b.claimed)
	b.codeTime(c, &b.since)
	wire.Uint(c, &b.seq)
	if flags&flagLeases != 0 {
		b.codeTime(c, &b.lease)
		wire.Uint(c, &b.leases)
	}
	if flags&flagFormer != 0 {
		wire.String(c, &b.former)
	}
	b.codeQueue(c)
	if flags&flagCooling != 0 {
		b.codeCooling(c)
	}
	switch {
	case c.Writes || c.Err != nil:
	case b.flags() != flags:
		c.Fail("flags")
	case b.owner.Kind != alloc.Nobody && b.owner.Check() != nil:
		c.Fail("owner")
	case b.head > b.last || b.tail > b.last-b.head:
		c.Fail("reserved ends")
	}
}

// codeTime codes a time as its distance from when the owner got the block.
func (b *Block) codeTime(c *wire.Coder, at *int64) {
	d := *at - b.claimed
	if wire.Int(c, &d); !c.Writes {
		*at = b.claimed + d
	}
}

func (b *Block) codeQueue(c *wire.Coder) {
	spans := b.free.spans[b.free.head:]
	n := len(spans)
	if c.Count(&n, 1); !c.Writes {
		spans = slices.Grow(spans, n)[:n]
		b.free.spans = spans
	}
	from, shift := uint64(0), bits.LeadingZeros64(b.last)
	for i := range spans {
		s := &spans[i]
		if c.Writes {
			d := int64((s.Lo-from)<<shift) >> shift
			codeSpan(c, uint64(d<<1^d>>63), s.Hi-s.Lo)
		} else {
			gap, more := codeSpan(c, 0, 0)
			s.Lo = (from + (gap>>1 ^ -(gap & 1))) & b.last
			if s.Hi = s.Lo + more; gap > b.last || s.Hi < s.Lo || s.Hi > b.last || i > 0 && spans[i-1].adjoins(s.Lo) {
				c.Fail("queue")
			}
		}
		from = s.Hi + 1
	}
}

// codeSpan codes a span that begins as far from the end of the one before, modulo the size of the block and zig-zag coded, as its first byte
// says in six bits: of a block of 64 that is all. The two lowest bits of the byte announce the rest of the distance and the length less 1.
func codeSpan(c *wire.Coder, gap, more uint64) (uint64, uint64) {
	const long, far = 1, 2
	low, rest := gap&63<<2, gap>>6
	if rest != 0 {
		low |= far
	}
	if more != 0 {
		low |= long
	}
	head := byte(low)
	if wire.Byte(c, &head); head&far != 0 {
		if wire.Uint(c, &rest); rest == 0 || rest>>58 != 0 {
			c.Fail("queue")
		}
	}
	if head&long != 0 {
		if wire.Uint(c, &more); more == 0 {
			c.Fail("queue")
		}
	}
	return rest<<6 | uint64(head>>2), more
}

func (b *Block) codeCooling(c *wire.Coder) {
	n := len(b.cool)
	if c.Count(&n, 1); !c.Writes {
		b.cool = slices.Grow(b.cool, n)[:n]
		clear(b.cool)
	}
	for i := range b.cool {
		wire.Uint(c, &b.cool[i].x)
	}
	if n == 0 {
		return
	}
	first, last := &b.cool[0].until, &b.cool[n-1].until
	b.codeTime(c, first)
	if n > 1 {
		b.codeTime(c, last)
	}
	if !c.Writes && (*first <= 0 || *last < *first) {
		c.Fail("cooling times")
	}
}

// Append appends the coded block to dst.
func (b *Block) Append(dst []byte) []byte {
	c := wire.Write(dst)
	b.code(c)
	return c.B
}

// Decode reads the record that [Block.Append] writes, for the block of a prefix. None of its addresses is loaded.
//
// It returns [ipalloc.ErrVersion] for another version and [ipalloc.ErrCorrupt] for anything else. A returned block is
// consistent.
func Decode(p netip.Prefix, s string) (*Block, error) {
	b := new(Block)
	if err := b.Decode(p, s); err != nil {
		return nil, err
	}
	return b, nil
}

// Decode is the function Decode into a block whose memory is used again. After an error the block is of no use but for that.
func (b *Block) Decode(p netip.Prefix, s string) error {
	if err := b.reset(p, 0, 0); err != nil {
		return fmt.Errorf("%w: %w", ipalloc.ErrCorrupt, err)
	}
	c := wire.Read(s)
	if b.code(c); c.Err == nil {
		b.fill(c)
	}
	if c.Err == nil && (b.leases > b.used*alloc.MaxHolders || !b.formerly()) {
		c.Fail("leases or former owners")
	}
	return c.End()
}

// fill finds the held ordinals, which are neither free nor cooling.
func (b *Block) fill(c *wire.Coder) {
	if b.last < 64 {
		b.fillWord(c)
		return
	}
	spans := slices.Clone(b.free.spans)
	for _, y := range b.cool {
		spans = append(spans, Span{y.x, y.x})
	}
	slices.SortFunc(spans, func(x, y Span) int { return cmp.Compare(x.Lo, y.Lo) })
	next, end := b.head, false
	hold := func(lo, hi uint64) {
		if hi-lo >= maxHeld-b.used {
			c.Fail("too many held ordinals")
			return
		}
		b.used += hi - lo + 1
		for x := lo; ; {
			p, to := b.page(x, true), min(hi, x|63)
			p.held |= ^uint64(0) >> (63 - (to - x)) << (x & 63)
			if to == hi {
				return
			}
			x = to + 1
		}
	}
	for _, s := range spans {
		if end || s.Lo < next || s.Hi > b.last-b.tail {
			c.Fail("ordinal in two states")
			return
		}
		if s.Lo > next {
			hold(next, s.Lo-1)
		}
		if c.Err != nil {
			return
		}
		next, end = s.Hi+1, s.Hi == b.last-b.tail
	}
	if !end {
		hold(next, b.last-b.tail)
	}
	for _, y := range b.cool {
		b.page(y.x, true).cooling |= 1 << (y.x & 63)
	}
	b.absent = b.used + uint64(len(b.cool))
}

// fillWord is fill for a block of up to 64 addresses.
func (b *Block) fillWord(c *wire.Coder) {
	all := ^uint64(0) >> (63 - (b.last - b.tail - b.head)) << b.head
	left, cool := all, uint64(0)
	take := func(mask uint64) {
		if left&mask != mask {
			c.Fail("ordinal in two states")
		}
		left &^= mask
	}
	for _, s := range b.free.spans {
		take(^uint64(0) >> (63 - (s.Hi - s.Lo)) << s.Lo)
	}
	for _, y := range b.cool {
		if y.x > b.last {
			c.Fail("ordinal")
			return
		}
		take(1 << y.x)
		cool |= 1 << y.x
	}
	if left|cool != 0 {
		p := b.page(0, true)
		p.held, p.cooling = left, cool
	}
	b.used = uint64(bits.OnesCount64(left))
	b.absent = b.used + uint64(len(b.cool))
}

// formerly reports whether the list of former owners can be.
func (b *Block) formerly() bool {
	if b.former == "" {
		return true
	}
	seen := make(map[string]bool)
	for code := range strings.SplitSeq(strings.TrimSuffix(b.former, "\x00"), "\x00") {
		o, err := OwnerOf(code)
		if err != nil || o.Kind == alloc.Nobody || o == b.owner || seen[code] {
			return false
		}
		seen[code] = true
	}
	return b.used > 0 && strings.HasSuffix(b.former, "\x00")
}
