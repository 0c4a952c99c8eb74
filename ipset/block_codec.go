package ipset

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
)

// The coded block, version 1. Numbers are uvarints, signed ones zig-zag; a string is its length and its bytes.
//
//	1                      version
//	flags                  what follows, see below
//	prefix length          one byte
//	base address           4 or 16 bytes
//	owner                  string, with flagHost or flagVirtual
//	head, tail             with flagReserved
//	claimed                signed, nanoseconds since 1970
//	since - claimed        signed
//	sequence number
//	lease - claimed        signed, with flagLeases: no lease ends before
//	runs of held ordinals  their number, then for each
//	  gap, length - 1      from the end of the run before
//	  per ordinal          holder; block's sequence number minus the ordinal's; with flagLeases: 0 or 1 + until - claimed
//	cooling ordinals       with flagCooling: their number, then in queue order
//	  per ordinal          ordinal, holder, sequence number as above, until - claimed (signed)
//	spans of the queue     their number, then in queue order
//	  start                signed, from the end of the span before
//	  length - 1
//
// A holder is 0 or 1 followed by a new one (with flagHosts its host; handle, active and, for 1, alternate attributes), or
// 2 + the number of one that came before. A host is 0 for the block's owner, 1 followed by a new one (the string of its code),
// or 2 + the number of one that came before. An address with a handle of its own so takes about four bytes beside the handle,
// one more in a block in which any is held for another than the owner.
const (
	blockVersion = 1

	flagV6       = 1 << 0
	flagHost     = 1 << 1
	flagVirtual  = 1 << 2
	flagReserved = 1 << 3
	flagLeases   = 1 << 4
	flagCooling  = 1 << 5
	flagHosts    = 1 << 6
	flagsKnown   = 1<<7 - 1
)

// AppendBinary appends the coded block to dst. It returns no error.
func (b *Block) AppendBinary(dst []byte) ([]byte, error) { return b.encode(dst), nil }

// MarshalBinary returns the coded block. It returns no error.
func (b *Block) MarshalBinary() ([]byte, error) { return b.encode(nil), nil }

func (b *Block) encode(dst []byte) []byte { return b.encodeWith(dst, &holderEncoder{}) }

// encodeWith is encode with an encoder that may have been used before.
func (b *Block) encodeWith(dst []byte, e *holderEncoder) []byte {
	flags := byte(0)
	if b.prefix.Addr().Is6() {
		flags |= flagV6
	}
	switch b.owner.Kind {
	case Host:
		flags |= flagHost
	case Virtual:
		flags |= flagVirtual
	}
	if b.head|b.tail != 0 {
		flags |= flagReserved
	}
	if b.lease != 0 {
		flags |= flagLeases
	}
	if len(b.cool) > 0 {
		flags |= flagCooling
	}
	if b.holders.hosts() {
		flags |= flagHosts
	}
	dst = append(dst, blockVersion, flags, byte(b.prefix.Bits()))
	dst = appendAddr(dst, b.prefix.Addr())
	if b.owner.Kind != Nobody {
		dst = appendString(dst, b.owner.Name)
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
	}
	e.begin(b.holders.list, flags&flagHosts != 0)
	dst = b.encodeSlots(dst, flags, e)
	return b.encodeQueue(dst)
}

// encodeSlots writes the held and the cooling ordinals.
func (b *Block) encodeSlots(dst []byte, flags byte, e *holderEncoder) []byte {
	dst = binary.AppendUvarint(dst, b.heldRuns())
	next, length := uint64(0), uint64(0) // the ordinal after the last held one; what is left of the run
	for first, p := range b.pages() {
		for w := p.held; w != 0; w &= w - 1 {
			i := uint64(bits.TrailingZeros64(w))
			x, s := first+i, &p.slot[i]
			if length == 0 {
				length = b.heldFrom(x)
				dst = binary.AppendUvarint(dst, x-next)
				dst = binary.AppendUvarint(dst, length-1)
			}
			length--
			next = x + 1
			dst = e.append(dst, s.holder)
			dst = binary.AppendUvarint(dst, b.seq-s.seq)
			switch {
			case flags&flagLeases == 0:
			case s.until == 0:
				dst = append(dst, 0)
			default:
				dst = binary.AppendUvarint(dst, 1+uint64(s.until-b.claimed))
			}
		}
	}
	if flags&flagCooling == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(b.cool)))
	for _, x := range b.cool {
		_, s := b.look(x)
		dst = binary.AppendUvarint(dst, x)
		dst = e.append(dst, s.holder)
		dst = binary.AppendUvarint(dst, b.seq-s.seq)
		dst = binary.AppendVarint(dst, s.until-b.claimed)
	}
	return dst
}

// heldFrom returns how many ordinals from x on are held without a gap.
func (b *Block) heldFrom(x uint64) uint64 {
	n := uint64(0)
	for {
		p := b.page(x, false)
		if p == nil {
			return n
		}
		run := trailingOnes(p.held >> (x & 63))
		n += run
		if x += run; run == 0 || x&63 != 0 || x == 0 {
			return n
		}
	}
}

// heldRuns returns the number of maximal runs of held ordinals.
func (b *Block) heldRuns() uint64 {
	n, next, carry := uint64(0), uint64(0), uint64(0) // carry: the ordinal before next is held
	for first, p := range b.pages() {
		if first != next {
			carry = 0
		}
		n += uint64(bits.OnesCount64(p.held &^ (p.held<<1 | carry)))
		next, carry = first+64, p.held>>63
	}
	return n
}

func (b *Block) encodeQueue(dst []byte) []byte {
	spans := b.free.spans[b.free.head:]
	dst = binary.AppendUvarint(dst, uint64(len(spans)))
	next := uint64(0)
	for _, s := range spans {
		dst = binary.AppendVarint(dst, int64(s.lo-next))
		dst = binary.AppendUvarint(dst, s.hi-s.lo)
		next = s.hi + 1
	}
	return dst
}

// holderEncoder writes a holder in full where it first occurs, and its number after that.
type holderEncoder struct {
	list   []holder
	number []int32 // 1 + the order of first occurrence, 0 before it
	count  int32

	withHosts bool
	hosts     []string // in the order of first occurrence; there are few
}

// begin makes the encoder ready for a block's holders. Its memory is used again.
func (e *holderEncoder) begin(list []holder, withHosts bool) {
	e.list, e.count, e.withHosts, e.hosts = list, 0, withHosts, e.hosts[:0]
	if cap(e.number) < len(list) {
		e.number = make([]int32, len(list), max(64, len(list)))
		return
	}
	e.number = e.number[:len(list)]
	clear(e.number)
}

func (e *holderEncoder) append(dst []byte, h int32) []byte {
	if n := e.number[h]; n > 0 {
		return binary.AppendUvarint(dst, uint64(n)+1)
	}
	e.count++
	e.number[h] = e.count
	id := &e.list[h].identity
	if id.alternate == "" {
		dst = append(dst, 0)
	} else {
		dst = append(dst, 1)
	}
	if e.withHosts {
		dst = e.appendHost(dst, id.host)
	}
	dst = appendString(dst, id.handle)
	dst = appendString(dst, id.active)
	if id.alternate != "" {
		dst = appendString(dst, id.alternate)
	}
	return dst
}

func (e *holderEncoder) appendHost(dst []byte, host string) []byte {
	if host == "" {
		return append(dst, 0)
	}
	if i := slices.Index(e.hosts, host); i >= 0 {
		return binary.AppendUvarint(dst, uint64(i)+2)
	}
	e.hosts = append(e.hosts, host)
	return appendString(append(dst, 1), host)
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendAddr(dst []byte, a netip.Addr) []byte {
	if a.Is4() {
		b := a.As4()
		return append(dst, b[:]...)
	}
	b := a.As16()
	return append(dst, b[:]...)
}

// DecodeBlock returns the block that data is the code of.
//
// It returns an error that is [ipalloc.ErrCorrupt] for anything else; what it accepts passes [Block.Check]. Memory
// is proportional to the number of addresses held. The block refers to data's bytes for handles and attributes.
func DecodeBlock(data string) (*Block, error) {
	r := &reader{s: data}
	if v := r.byte(); v != blockVersion {
		return nil, fmt.Errorf("%w: block of version %d", ipalloc.ErrCorrupt, v)
	}
	flags, length := r.byte(), int(r.byte())
	size := uint64(4)
	if flags&flagV6 != 0 {
		size = 16
	}
	raw := r.bytes(size)
	if r.err != nil || flags&^byte(flagsKnown) != 0 || flags&flagHost != 0 && flags&flagVirtual != 0 {
		return nil, fmt.Errorf("%w: block header", ipalloc.ErrCorrupt)
	}
	base, _ := netip.AddrFromSlice([]byte(raw))
	var o BlockOptions
	if flags&(flagHost|flagVirtual) != 0 {
		o.Owner = Owner{Host, r.bytes(r.uvarint())}
		if flags&flagVirtual != 0 {
			o.Owner.Kind = Virtual
		}
		if o.Owner.check() != nil {
			r.fail("owner")
		}
	}
	if flags&flagReserved != 0 {
		o.Head, o.Tail = r.uvarint(), r.uvarint()
	}
	b, err := NewBlock(netip.PrefixFrom(base, length), o)
	if err != nil || r.err != nil || base.Is4In6() {
		return nil, fmt.Errorf("%w: block header", ipalloc.ErrCorrupt)
	}
	b.claimed = r.varint()
	b.since = b.claimed + r.varint()
	b.seq = r.uvarint()
	if flags&flagLeases != 0 {
		b.lease = b.claimed + r.varint()
	}
	b.free = queue{}
	b.decodeSlots(r, flags)
	b.decodeQueue(r)
	switch {
	case r.err != nil:
		return nil, r.err
	case r.s != "":
		return nil, fmt.Errorf("%w: block is followed by %d bytes", ipalloc.ErrCorrupt, len(r.s))
	}
	if err := b.checkDecoded(); err != nil {
		return nil, fmt.Errorf("%w: %v", ipalloc.ErrCorrupt, err)
	}
	return b, nil
}

func (b *Block) decodeSlots(r *reader, flags byte) {
	known := holderDecoder{withHosts: flags&flagHosts != 0}
	next := uint64(0)
	for runs := r.uvarint(); runs > 0 && r.err == nil; runs-- {
		x := next + r.uvarint()
		n := r.uvarint()
		if x < next || n > uint64(len(r.s)) {
			r.fail("run")
		}
		for ; r.err == nil; n-- {
			h := b.decodeHolder(r, &known)
			seq, until := b.seq-r.uvarint(), int64(0)
			if flags&flagLeases != 0 {
				if u := r.uvarint(); u != 0 {
					until = b.claimed + int64(u-1)
				}
			}
			b.restore(r, x, slot{seq, until, h}, false)
			if x++; n == 0 {
				break
			}
		}
		next = x
	}
	if flags&flagCooling == 0 {
		return
	}
	n := r.uvarint()
	if n == 0 || n > uint64(len(r.s)) {
		r.fail("cooling ordinals")
	}
	for ; n > 0 && r.err == nil; n-- {
		x := r.uvarint()
		h := b.decodeHolder(r, &known)
		seq := b.seq - r.uvarint()
		b.restore(r, x, slot{seq, b.claimed + r.varint(), h}, true)
	}
}

// restore puts a decoded slot where it was, unless the ordinal is not free for it.
func (b *Block) restore(r *reader, x uint64, s slot, cooling bool) {
	if r.err != nil {
		return
	}
	if st, _ := b.look(x); x > b.last || st != stateFree || s.seq > b.seq {
		r.fail("ordinal")
		return
	}
	p, h := b.page(x, true), &b.holders.list[s.holder]
	p.slot[x&63] = s
	h.refs++
	if cooling {
		p.cooling |= 1 << (x & 63)
		b.cool = append(b.cool, x)
		return
	}
	p.held |= 1 << (x & 63)
	h.held++
	b.countHost(h.host, 1)
	b.used++
}

// holderDecoder is what has been decoded of holders.
type holderDecoder struct {
	list      []int32
	withHosts bool
	hosts     []string
}

func (b *Block) decodeHolder(r *reader, known *holderDecoder) int32 {
	n := r.uvarint()
	if n >= 2 {
		if n-2 >= uint64(len(known.list)) {
			r.fail("holder")
			return 0
		}
		return known.list[n-2]
	}
	id := identity{}
	if known.withHosts {
		id.host = known.host(r)
	}
	id.handle, id.active = r.bytes(r.uvarint()), r.bytes(r.uvarint())
	if n == 1 {
		id.alternate = r.bytes(r.uvarint())
	}
	if r.err != nil {
		return 0
	}
	h := b.holders.intern(id)
	if int(h) != len(known.list) || len(id.handle) > maxName || strings.IndexByte(id.handle, 0) >= 0 || !(Attributes{id.active}).valid() || !(Attributes{id.alternate}).valid() {
		r.fail("holder")
		return 0
	}
	known.list = append(known.list, h)
	return h
}

func (known *holderDecoder) host(r *reader) string {
	switch n := r.uvarint(); {
	case n == 0:
		return ""
	case n > 1 && n-2 < uint64(len(known.hosts)):
		return known.hosts[n-2]
	case n > 1:
		r.fail("host")
		return ""
	}
	host := r.bytes(r.uvarint())
	if _, err := ownerOf(host); err != nil || host == "" || slices.Contains(known.hosts, host) {
		r.fail("host")
	}
	known.hosts = append(known.hosts, host)
	return host
}

func (b *Block) decodeQueue(r *reader) {
	n := r.uvarint()
	if n > uint64(len(r.s)) {
		r.fail("queue")
		return
	}
	b.free.spans = make([]span, 0, n)
	next := uint64(0)
	for ; n > 0 && r.err == nil; n-- {
		lo := next + uint64(r.varint())
		hi := lo + r.uvarint()
		if hi < lo || hi > b.last {
			r.fail("queue")
		}
		b.free.spans = append(b.free.spans, span{lo, hi})
		next = hi + 1
	}
}
