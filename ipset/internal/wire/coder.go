package wire

import (
	"encoding/binary"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Coder writes values, or reads them into the same places: one function describes both directions of a record. Make one
// with [Write], or with a Reader alone to read.
type Coder struct {
	Reader
	B      []byte // what has been written
	Writes bool
}

// Write returns a coder that appends to b.
func Write(b []byte) *Coder { return &Coder{B: b, Writes: true} }

// Uint codes a number as a uvarint, Int as a zig-zag varint, Byte in one byte.
func Uint[T ~int | ~int64 | ~uint64](c *Coder, v *T) {
	if c.Writes {
		c.B = binary.AppendUvarint(c.B, uint64(*v))
	} else {
		*v = T(c.Uvarint())
	}
}

func Int[T ~int | ~int64](c *Coder, v *T) {
	if c.Writes {
		c.B = binary.AppendVarint(c.B, int64(*v))
	} else {
		*v = T(c.Varint())
	}
}

func Byte[T ~int | ~uint8](c *Coder, v *T) {
	if c.Writes {
		c.B = append(c.B, byte(*v))
	} else {
		*v = T(c.Reader.Byte())
	}
}

// String codes a length and as many bytes.
func String(c *Coder, s *string) {
	if c.Writes {
		c.B = AppendString(c.B, *s)
	} else {
		*s = c.Bytes(c.Uvarint())
	}
}

// List codes the number of elements and each of them; every element takes a byte at least.
func List[E any](c *Coder, s *[]E, code func(*Coder, *E)) {
	n := len(*s)
	if Uint(c, &n); !c.Writes {
		if *s = nil; uint64(n) > uint64(len(c.S)) {
			c.Fail("number of elements")
		} else if n > 0 {
			*s = make([]E, n)
		}
	}
	for i := range *s {
		code(c, &(*s)[i])
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
		*f = bits>>i&1 != 0
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
		} else if *a, _ = netip.AddrFromSlice([]byte(c.Bytes(uint64(bits / 8)))); addr.CheckAddr(*a) != nil {
			c.Fail("address")
		}
	}
}
