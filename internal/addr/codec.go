package addr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
)

// ErrBits is the error of [NewCodec] for an impossible child length.
var ErrBits = errors.New("child prefix length out of range")

// MaxOrder is the largest log2 of the number of children of a codec.
const MaxOrder = 64

// Codec maps ordinals to the equal child prefixes of a pool and back: ordinal i
// is the i-th child from the lowest address. [NewCodec] returns one.
type Codec struct {
	pool   netip.Prefix
	hi, lo uint64 // the pool's address; an IPv4 one in the low 32 bits
	last   uint64 // the highest ordinal
	shift  uint8  // log2 of the addresses in a child
	order  uint8  // log2 of the children in the pool
	child  uint8  // prefix length of a child
	v4     bool
}

// NewCodec returns the codec between ordinals [0, 2^(childBits - pool.Bits()))
// and the children of pool. It fails with the error of [Check] for a bad pool. It fails
// with an error that wraps [ErrBits] unless childBits is from pool.Bits() to 32 or 128
// and at most 64 more than pool.Bits().
func NewCodec(pool netip.Prefix, childBits int) (Codec, error) {
	if err := Check(pool); err != nil {
		return Codec{}, err
	}
	width := pool.Addr().BitLen()
	if most := min(width, pool.Bits()+MaxOrder); childBits < pool.Bits() || childBits > most {
		return Codec{}, fmt.Errorf("%w: /%d, want /%d to /%d", ErrBits, childBits, pool.Bits(), most)
	}
	base := FromAddr(pool.Addr())
	return Codec{
		pool: pool, hi: base.Hi, lo: base.Lo, last: ^uint64(0) >> (MaxOrder - (childBits - pool.Bits())),
		shift: uint8(width - childBits), order: uint8(childBits - pool.Bits()), child: uint8(childBits),
		v4: pool.Addr().Is4(),
	}, nil
}

// Pool returns the pool.
func (c *Codec) Pool() netip.Prefix { return c.pool }

// ChildBits returns the prefix length of a child.
func (c *Codec) ChildBits() int { return int(c.child) }

// Order returns log2 of the number of children, 0 to 64.
func (c *Codec) Order() int { return int(c.order) }

// Last returns the highest ordinal.
func (c *Codec) Last() uint64 { return c.last }

// Prefix returns the child of ordinal i, which must not be above [Codec.Last]. It
// does not allocate.
func (c *Codec) Prefix(i uint64) netip.Prefix {
	if !c.v4 {
		return netip.PrefixFrom(c.addr6(i), int(c.child))
	}
	return netip.PrefixFrom(U128{Lo: c.lo | i<<(c.shift&63)}.Addr4(), int(c.child))
}

// PrefixOf returns the prefix of the given length that starts at the child of
// ordinal i. It does not allocate.
func (c *Codec) PrefixOf(i uint64, bits int) netip.Prefix { return netip.PrefixFrom(c.Addr(i), bits) }

// Addr returns the first address of the child of ordinal i. It does not allocate.
func (c *Codec) Addr(i uint64) netip.Addr {
	if !c.v4 {
		return c.addr6(i)
	}
	return U128{Lo: c.lo | i<<(c.shift&63)}.Addr4()
}

// Cover returns the fewest prefixes that are the children [lo, hi], ascending.
func (c *Codec) Cover(lo, hi uint64) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for {
			// The largest aligned block that starts at lo and ends by hi.
			k := min(bits.TrailingZeros64(lo), int(c.order))
			for k > 0 && ^uint64(0)>>(64-k) > hi-lo {
				k--
			}
			end := lo | ^uint64(0)>>(64-k)
			if !yield(c.PrefixOf(lo, int(c.child)-k)) || end == hi {
				return
			}
			lo = end + 1
		}
	}
}

func (c *Codec) addr6(i uint64) netip.Addr {
	hi, lo := c.hi, c.lo
	if c.shift >= 64 {
		hi |= i << (c.shift - 64)
	} else {
		lo |= i << c.shift
		hi |= i >> (64 - c.shift) // 0 when shift is 0
	}
	return U128{hi, lo}.Addr6()
}

// Check returns nil if p is valid, masked and not 4-in-6, otherwise the reason, as the
// function [Check] does. It accepts a 4-in-6 prefix that overlaps an IPv6 pool, because a
// pool that contains ::ffff:0:0/96 assigns children there and must accept their release.
func (c *Codec) Check(p netip.Prefix) error {
	err := Check(p)
	if err == ErrMapped && !c.v4 && c.pool.Overlaps(p) {
		if err = nil; p != p.Masked() {
			err = ErrUnmasked
		}
	}
	return err
}

// Ordinal returns the ordinal of the child that contains a; ok is false if a is outside
// the pool, of the other family, or has a zone. A 4-in-6 address is in an IPv6 pool that
// contains it, and in no IPv4 pool. It does not allocate.
func (c *Codec) Ordinal(a netip.Addr) (i uint64, ok bool) {
	if a.Is4() {
		if !c.v4 {
			return 0, false
		}
		b := a.As4()
		i = (uint64(binary.BigEndian.Uint32(b[:])) ^ c.lo) >> (c.shift & 63)
		return i, i <= c.last
	}
	if c.v4 || !a.IsValid() || a.Zone() != "" {
		return 0, false
	}
	u := FromAddr(a).Xor(U128{c.hi, c.lo}).Shr(uint(c.shift))
	// The address differs from the pool's only in the bits of the ordinal.
	return u.Lo, u.Hi == 0 && u.Lo <= c.last
}

// Child returns the ordinal of p; ok is false unless p is a child of the pool. It is
// faster than [Codec.Check] and [Codec.Locate]. It does not allocate.
func (c *Codec) Child(p netip.Prefix) (i uint64, ok bool) {
	a := p.Addr()
	if p.Bits() != int(c.child) || a.Is4() != c.v4 {
		return 0, false
	}
	if c.v4 {
		b := a.As4()
		v := uint64(binary.BigEndian.Uint32(b[:])) ^ c.lo
		i = v >> (c.shift & 63)
		return i, i <= c.last && i<<(c.shift&63) == v
	}
	u := FromAddr(a).Xor(U128{c.hi, c.lo})
	v := u.Shr(uint(c.shift))
	return v.Lo, v.Hi == 0 && v.Lo <= c.last && v.Shl(uint(c.shift)) == u
}

// Block returns the range [lo, hi] of the children in p; ok is false unless p is one or
// more whole children of the pool. It is faster than [Codec.Check] and [Codec.Locate].
// It does not allocate.
func (c *Codec) Block(p netip.Prefix) (lo, hi uint64, ok bool) {
	a := p.Addr()
	k := int(c.child) - p.Bits() // log2 of the children in p
	if k < 0 || k > int(c.order) || a.Is4() != c.v4 {
		return 0, 0, false
	}
	span := ^uint64(0) >> (64 - k)
	if c.v4 {
		b := a.As4()
		v := uint64(binary.BigEndian.Uint32(b[:])) ^ c.lo
		lo = v >> (c.shift & 63)
		return lo, lo | span, lo <= c.last && lo&span == 0 && lo<<(c.shift&63) == v
	}
	u := FromAddr(a).Xor(U128{c.hi, c.lo})
	v := u.Shr(uint(c.shift))
	return v.Lo, v.Lo | span, v.Hi == 0 && v.Lo <= c.last && v.Lo&span == 0 && v.Shl(uint(c.shift)) == u
}

// Relation is the relation of a prefix to the pool and its children.
type Relation int

const (
	Foreign Relation = iota // no address in common, or of the other family
	Larger                  // contains the whole pool and more
	Whole                   // one or more whole children
	Part                    // a part of one child
)

// Locate returns the range [lo, hi] of the children that p overlaps and its relation to
// them. p must have passed [Codec.Check]. It does not allocate.
func (c *Codec) Locate(p netip.Prefix) (lo, hi uint64, r Relation) {
	bits := p.Bits()
	if bits < c.pool.Bits() {
		if p.Overlaps(c.pool) { // false for the other family
			return 0, c.last, Larger
		}
		return 0, 0, Foreign
	}
	lo, ok := c.Ordinal(p.Addr())
	if !ok {
		return 0, 0, Foreign
	}
	if bits > int(c.child) {
		return lo, lo, Part
	}
	return lo, lo | ^uint64(0)>>(64-(int(c.child)-bits)), Whole
}
