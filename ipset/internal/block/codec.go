package block

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
)

// The coded block, version 1: everything but its addresses, which have records of their own. Its prefix is in its key.
// Numbers are uvarints, signed ones zig-zag; a string is its length and its bytes.
//
//	1                      version
//	flags                  what follows, see below
//	owner                  string, with flagHost or flagVirtual
//	head, tail             with flagReserved
//	claimed                signed, nanoseconds since 1970
//	since - claimed        signed
//	sequence number
//	lease - claimed        signed, with flagLeases: no lease ends before
//	leases                 with flagLeases: how many there are
//	former owners          string, with flagFormer: their codes, each ended by NUL
//	first - claimed        signed, with flagCooling: when the first cooling ordinal is free
//	last - claimed         signed, with flagCooling: when the last one is
//	queue                  see below
//
// An ordinal that is neither reserved nor in the queue nor cooling is held. With flagPacked the queue is the number of free
// ordinals, with flagCooling that of cooling ones, and all of them in order, each in as many bits as the highest ordinal
// takes: at most 48 bytes for 64 addresses. Otherwise it is the number of spans of free ordinals and, for each, its start
// (signed, from the end of the span before) and its length - 1; with flagCooling the number of cooling ordinals and each.
const (
	blockVersion = 1

	flagHost     = 1 << 0
	flagVirtual  = 1 << 1
	flagReserved = 1 << 2
	flagLeases   = 1 << 3
	flagFormer   = 1 << 4
	flagCooling  = 1 << 5
	flagPacked   = 1 << 6
	flagsKnown   = 1<<7 - 1
)

// Append appends the coded block to dst.
func (b *Block) Append(dst []byte) []byte {
	flags := byte(0)
	free, packed := b.packs()
	for i, set := range [...]bool{b.owner.Kind == alloc.Host, b.owner.Kind == alloc.Virtual, b.head|b.tail != 0, b.lease != 0, b.former != "", len(b.cool) > 0, packed} {
		if set {
			flags |= 1 << i
		}
	}
	dst = append(dst, blockVersion, flags)
	if b.owner.Kind != alloc.Nobody {
		dst = wire.AppendString(dst, b.owner.Name)
	}
	if flags&flagReserved != 0 {
		dst = binary.AppendUvarint(dst, b.head)
		dst = binary.AppendUvarint(dst, b.tail)
	}
	dst = binary.AppendVarint(dst, b.claimed)
	dst = binary.AppendVarint(dst, b.since-b.claimed)
	dst = binary.AppendUvarint(dst, b.seq)
	if flags&flagLeases != 0 {
		dst = binary.AppendVarint(dst, b.lease-b.claimed)
		dst = binary.AppendUvarint(dst, b.leases)
	}
	if flags&flagFormer != 0 {
		dst = wire.AppendString(dst, b.former)
	}
	if flags&flagCooling != 0 {
		dst = binary.AppendVarint(dst, b.cool[0].until-b.claimed)
		dst = binary.AppendVarint(dst, b.cool[len(b.cool)-1].until-b.claimed)
	}
	if packed {
		return b.appendPacked(dst, free)
	}
	return b.appendSpans(dst)
}

// packs returns the number of free ordinals, and whether the queue takes less space as a list of ordinals than as spans. A
// span takes two numbers.
func (b *Block) packs() (free uint64, packed bool) {
	if b.last >= dirMax {
		return 0, false
	}
	spans := b.free.spans[b.free.head:]
	for _, s := range spans {
		free += s.Hi - s.Lo + 1
	}
	width, bytes := uint64(bits.Len64(b.last)), uint64(1)
	if b.last > 63 {
		bytes = 2
	}
	return free, (free+uint64(len(b.cool)))*width < 8*bytes*uint64(2*len(spans)+len(b.cool))
}

// packer writes numbers of a few bits each, the lowest bits first.
type packer struct {
	dst   []byte
	acc   uint64
	have  uint
	width uint
}

func (p *packer) add(x uint64) {
	p.acc |= x << p.have
	for p.have += p.width; p.have >= 8; p.have -= 8 {
		p.dst = append(p.dst, byte(p.acc))
		p.acc >>= 8
	}
}

func (b *Block) appendPacked(dst []byte, free uint64) []byte {
	dst = binary.AppendUvarint(dst, free)
	if len(b.cool) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(b.cool)))
	}
	p := packer{dst: dst, width: uint(bits.Len64(b.last))}
	for _, s := range b.free.spans[b.free.head:] {
		for x := s.Lo; x <= s.Hi; x++ {
			p.add(x)
		}
	}
	for _, c := range b.cool {
		p.add(c.x)
	}
	if p.have > 0 {
		p.dst = append(p.dst, byte(p.acc))
	}
	return p.dst
}

func (b *Block) appendSpans(dst []byte) []byte {
	spans := b.free.spans[b.free.head:]
	dst = binary.AppendUvarint(dst, uint64(len(spans)))
	next := uint64(0)
	for _, s := range spans {
		dst = binary.AppendVarint(dst, int64(s.Lo-next))
		dst = binary.AppendUvarint(dst, s.Hi-s.Lo)
		next = s.Hi + 1
	}
	if len(b.cool) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(b.cool)))
		for _, c := range b.cool {
			dst = binary.AppendUvarint(dst, c.x)
		}
	}
	return dst
}

// Decode reads what [Block.Append] writes for the block of a prefix. None of its addresses is loaded.
//
// It returns [ipalloc.ErrVersion] for another version and [ipalloc.ErrCorrupt] for anything else: what it returns is consistent.
func Decode(p netip.Prefix, s string) (*Block, error) {
	b := new(Block)
	if err := b.Decode(p, s); err != nil {
		return nil, err
	}
	return b, nil
}

// Decode is the function Decode into a block whose memory is used again. After an error the block is of no use but for that.
func (b *Block) Decode(p netip.Prefix, s string) error {
	r := wire.Reader{S: s}
	r.Version(blockVersion)
	flags := r.Byte()
	if flags&^flagsKnown != 0 || flags&flagHost != 0 && flags&flagVirtual != 0 {
		r.Fail("flags")
	}
	var owner alloc.Owner
	if flags&(flagHost|flagVirtual) != 0 {
		if owner.Kind = alloc.Host; flags&flagVirtual != 0 {
			owner.Kind = alloc.Virtual
		}
		owner.Name = r.Bytes(r.Uvarint())
		if r.Err == nil && owner.Check() != nil {
			r.Fail("owner")
		}
	}
	head, tail := uint64(0), uint64(0)
	if flags&flagReserved != 0 {
		if head, tail = r.Uvarint(), r.Uvarint(); head|tail == 0 {
			r.Fail("reserved ends")
		}
	}
	if b.reset(p, head, tail) != nil {
		r.Fail("reserved ends")
	}
	if r.Err != nil {
		return fmt.Errorf("%w: block header", r.Err)
	}
	b.owner = owner
	b.claimed = r.Varint()
	b.since = b.claimed + r.Varint()
	b.seq = r.Uvarint()
	if flags&flagLeases != 0 {
		b.lease, b.leases = b.claimed+r.Varint(), r.Uvarint()
		if b.lease == 0 {
			r.Fail("lease")
		}
	}
	if flags&flagFormer != 0 {
		b.former = r.Bytes(r.Uvarint())
	}
	if b.decodeQueue(&r, flags); r.Err == nil {
		b.fill(&r)
	}
	switch {
	case r.Err != nil:
		return r.Err
	case r.S != "":
		return fmt.Errorf("%w: block is followed by %d bytes", ipalloc.ErrCorrupt, len(r.S))
	case b.leases > b.used*alloc.MaxHolders || !b.formerly():
		return fmt.Errorf("%w: leases or former owners of a block", ipalloc.ErrCorrupt)
	}
	return nil
}

// decodeQueue reads the free and the cooling ordinals.
func (b *Block) decodeQueue(r *wire.Reader, flags byte) {
	first, last := int64(0), int64(0)
	if flags&flagCooling != 0 {
		first = b.claimed + r.Varint()
		last = b.claimed + r.Varint()
		if first <= 0 || last <= 0 {
			r.Fail("cooling times")
		}
	}
	if flags&flagPacked != 0 {
		b.decodePacked(r, flags)
	} else {
		b.decodeSpans(r, flags)
	}
	if len(b.cool) > 0 {
		b.cool[0].until = first
		if b.cool[len(b.cool)-1].until = last; last < first || len(b.cool) == 1 && first != last {
			r.Fail("cooling times")
		}
	}
	if _, packed := b.packs(); r.Err == nil && (packed != (flags&flagPacked != 0) || (len(b.cool) > 0) != (flags&flagCooling != 0)) {
		r.Fail("form of the queue")
	}
}

func (b *Block) decodePacked(r *wire.Reader, flags byte) {
	free, cool := r.Uvarint(), uint64(0)
	if flags&flagCooling != 0 {
		cool = r.Uvarint()
	}
	if width := uint64(bits.Len64(b.last)); r.Err != nil || free > b.last+1 || cool > b.last+1 || b.last >= dirMax {
		r.Fail("queue")
	} else {
		data := r.Bytes(((free+cool)*width + 7) / 8)
		if r.Err != nil {
			return
		}
		at := uint64(0)
		next := func() (x uint64) {
			for i := range width {
				x |= uint64(data[at>>3]>>(at&7)&1) << i
				at++
			}
			return x
		}
		for range free {
			b.free.push(next())
		}
		for range cool {
			b.cool = append(b.cool, cooling{x: next()})
		}
		if at&7 != 0 && data[at>>3]>>(at&7) != 0 {
			r.Fail("padding")
		}
	}
}

func (b *Block) decodeSpans(r *wire.Reader, flags byte) {
	n := r.Uvarint()
	if n > uint64(len(r.S)) {
		r.Fail("queue")
		return
	}
	b.free.spans = slices.Grow(b.free.spans, int(n))
	next := uint64(0)
	for i := uint64(0); i < n && r.Err == nil; i++ {
		lo := next + uint64(r.Varint())
		hi := lo + r.Uvarint()
		if hi < lo || hi > b.last || i > 0 && b.free.spans[i-1].adjoins(lo) {
			r.Fail("queue")
		}
		b.free.spans = append(b.free.spans, Span{lo, hi})
		next = hi + 1
	}
	if flags&flagCooling == 0 {
		return
	}
	n = r.Uvarint()
	if n > uint64(len(r.S)) {
		r.Fail("cooling ordinals")
		return
	}
	for ; n > 0 && r.Err == nil; n-- {
		b.cool = append(b.cool, cooling{x: r.Uvarint()})
	}
}

// fill finds the held ordinals: those between the free and the cooling ones.
func (b *Block) fill(r *wire.Reader) {
	if b.last < 64 {
		b.fillWord(r)
		return
	}
	spans := slices.Clone(b.free.spans)
	for _, c := range b.cool {
		spans = append(spans, Span{c.x, c.x})
	}
	slices.SortFunc(spans, func(x, y Span) int { return cmp.Compare(x.Lo, y.Lo) })
	next, end := b.head, false
	hold := func(lo, hi uint64) {
		if hi-lo >= maxHeld-b.used {
			r.Fail("too many held ordinals")
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
			r.Fail("ordinal in two states")
			return
		}
		if s.Lo > next {
			hold(next, s.Lo-1)
		}
		if r.Err != nil {
			return
		}
		next, end = s.Hi+1, s.Hi == b.last-b.tail
	}
	if !end {
		hold(next, b.last-b.tail)
	}
	for _, c := range b.cool {
		b.page(c.x, true).cooling |= 1 << (c.x & 63)
	}
	b.absent = b.used + uint64(len(b.cool))
}

// fillWord is fill for a block of up to 64 addresses.
func (b *Block) fillWord(r *wire.Reader) {
	all := ^uint64(0) >> (63 - (b.last - b.tail - b.head)) << b.head
	left, cool := all, uint64(0)
	take := func(mask uint64) {
		if left&mask != mask {
			r.Fail("ordinal in two states")
		}
		left &^= mask
	}
	for _, s := range b.free.spans {
		take(^uint64(0) >> (63 - (s.Hi - s.Lo)) << s.Lo)
	}
	for _, c := range b.cool {
		if c.x > b.last {
			r.Fail("ordinal")
			return
		}
		take(1 << c.x)
		cool |= 1 << c.x
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
