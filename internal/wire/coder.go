package wire

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Coder writes values, or reads them into the same places: one function describes both directions of a record. [Write] and [Read]
// return one.
type Coder struct {
	Reader
	B      []byte // what has been written
	Writes bool

	start int    // of the frame in B
	frame []byte // that is read, and its magic and version; nil for a record
}

// Read returns a coder that reads s.
func Read(s string) *Coder { return &Coder{Reader: Reader{S: s}} }

// Write returns a coder that appends to b.
func Write(b []byte) *Coder { return &Coder{B: b, Writes: true} }

// Uint codes a number as a uvarint, Int as a zig-zag varint, Byte in one byte. A number that does not fit its variable, such as an int
// of 32 bits, is refused.
func Uint[T ~int | ~int64 | ~uint64](c *Coder, v *T) {
	if c.Writes {
		c.B = binary.AppendUvarint(c.B, uint64(*v))
	} else if n := c.Uvarint(); uint64(T(n)) == n {
		*v = T(n)
	} else {
		c.Fail("number")
	}
}

func Int[T ~int | ~int64](c *Coder, v *T) {
	if c.Writes {
		c.B = binary.AppendVarint(c.B, int64(*v))
	} else if n := c.Varint(); int64(T(n)) == n {
		*v = T(n)
	} else {
		c.Fail("number")
	}
}

func Byte[T ~int | ~uint8](c *Coder, v *T) {
	if c.Writes {
		c.B = append(c.B, byte(*v))
	} else {
		*v = T(c.Reader.Byte())
	}
}

// String codes a length and as many bytes. A value read is a part of a record, or a copy from a frame.
func String(c *Coder, s *string) {
	if c.Writes {
		c.B = AppendString(c.B, *s)
	} else if *s = c.Bytes(c.Uvarint()); c.frame != nil {
		*s = strings.Clone(*s)
	}
}

// Word codes a number in 8 bytes, the highest first.
func Word(c *Coder, v *uint64) {
	if c.Writes {
		c.B = binary.BigEndian.AppendUint64(c.B, *v)
	} else if b := c.Bytes(8); c.Err == nil {
		*v = binary.BigEndian.Uint64([]byte(b))
	}
}

// Rest codes a string that ends the record.
func Rest(c *Coder, s *string) {
	if c.Writes {
		c.B = append(c.B, *s...)
	} else {
		*s, c.S = c.S, ""
	}
}

// Name codes a string without NUL, and the NUL that ends it in a key.
func Name(c *Coder, s *string) {
	if c.Writes {
		c.B = append(append(c.B, *s...), 0)
		return
	}
	name, rest, ok := strings.Cut(c.S, "\x00")
	if *s, c.S = name, rest; !ok {
		c.Fail("name")
	}
}

// Count codes the number of elements that follow, each of at least size bytes, so that memory made for them is bounded by the input.
func (c *Coder) Count(n *int, size int) {
	if Uint(c, n); !c.Writes && uint64(*n) > uint64(len(c.S)/size) {
		*n = 0
		c.Fail("number of elements")
	}
}

// List codes the number of elements and each of them, which take at least size bytes.
func List[E any](c *Coder, s *[]E, size int, code func(*Coder, *E)) {
	n := len(*s)
	if c.Count(&n, size); !c.Writes {
		if *s = nil; n > 0 {
			*s = make([]E, n)
		}
	}
	for i := range *s {
		code(c, &(*s)[i])
	}
}

// Version codes the version of a form. Any other one fails with [ipalloc.ErrVersion].
func (c *Coder) Version(v byte) {
	if c.Writes {
		c.B = append(c.B, v)
	} else {
		c.Reader.Version(v)
	}
}

// Literal codes bytes that are the same in every record, such as the beginning of a key.
func (c *Coder) Literal(s string) {
	if c.Writes {
		c.B = append(c.B, s...)
	} else if c.Bytes(uint64(len(s))) != s {
		c.Fail("kind")
	}
}

// Flags codes up to 63 flags as one uvarint.
func (c *Coder) Flags(flags ...*bool) {
	var bits uint64
	for i, f := range flags {
		if *f {
			bits |= 1 << i
		}
	}
	if Uint(c, &bits); bits>>len(flags) != 0 {
		c.Fail("flags")
	}
	for i, f := range flags {
		if !c.Writes { // else others may read what is written
			*f = bits>>i&1 != 0
		}
	}
}

// Addrs codes addresses of one family: their length in bits, and their bytes.
func (c *Coder) Addrs(as ...*netip.Addr) {
	bits := as[0].BitLen()
	if Byte(c, &bits); bits != 32 && bits != 128 {
		c.Fail("length of an address")
	}
	for _, a := range as {
		if c.Writes {
			c.B = AppendAddr(c.B, *a)
		} else if b := c.Bytes(uint64(bits / 8)); len(b) == 4 {
			*a = netip.AddrFrom4([4]byte{b[0], b[1], b[2], b[3]})
		} else if *a, _ = netip.AddrFromSlice([]byte(b)); addr.CheckAddr(*a) != nil {
			c.Fail("address")
		}
	}
}

// Family codes '4' or '6'.
func (c *Coder) Family(v6 *bool) {
	f := byte('4')
	if *v6 {
		f = '6'
	}
	if Byte(c, &f); f != '4' && f != '6' {
		c.Fail("family")
	}
	*v6 = f == '6'
}

// Index codes a number that has as many bytes as an address of a family.
func (c *Coder) Index(v6 bool, u *addr.U128) {
	a := u.Addr4()
	if v6 {
		a = u.Addr6()
	}
	c.bytes(v6, &a)
	*u = addr.FromAddr(a)
}

// Addr codes a family and an address.
func (c *Coder) Addr(a *netip.Addr) {
	v6 := a.Is6()
	c.Family(&v6)
	if c.bytes(v6, a); !c.Writes && addr.CheckAddr(*a) != nil {
		c.Fail("address")
	}
}

func (c *Coder) bytes(v6 bool, a *netip.Addr) {
	switch {
	case c.Writes:
		c.B = AppendAddr(c.B, *a)
	case v6:
		*a, _ = netip.AddrFromSlice([]byte(c.Bytes(16)))
	default:
		*a, _ = netip.AddrFromSlice([]byte(c.Bytes(4)))
	}
}

// Prefix codes a family, an address and a length. The bytes sort by address; of two prefixes at the same address, the larger sorts
// first.
func (c *Coder) Prefix(p *netip.Prefix) {
	at, n := p.Addr(), p.Bits()
	c.Addr(&at)
	if Byte(c, &n); !c.Writes {
		if *p = netip.PrefixFrom(at, n); addr.Check(*p) != nil {
			c.Fail("prefix")
		}
	}
}
