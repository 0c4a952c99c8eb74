package wire

import (
	"encoding"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"time"
	"unsafe"

	"github.com/ipalloc/ipalloc"
)

// A frame is that of every snapshot:
//
//	magic      a few bytes that name the kind
//	version    1 byte
//	body       what a coder writes
//	checksum   4 bytes, CRC-32C of all before, little-endian
const sumSize = 4

// checksum asks for the table at each call, which costs nothing after the first: made at start-up it would cost 0.1 ms in every
// program that imports this package.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Frame returns a coder that appends the body of a frame of the given kind and version to b. [Coder.Finish] ends it.
func Frame(b []byte, magic string, version byte) *Coder {
	return &Coder{B: append(append(b, magic...), version), start: len(b), Writes: true}
}

// Finish ends a frame and returns the slice, or the first error of a value that codes itself.
func (c *Coder) Finish() ([]byte, error) { return Seal(c.B, c.start), c.Err }

// Seal appends the checksum of b[start:]. Tests use it to put a right checksum behind hostile bytes.
func Seal(b []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(b, checksum(b[start:]))
}

// Open checks the frame of data and returns a coder that reads its body. It accepts versions from 1 to newest. Err matches
// [ipalloc.ErrCorrupt] for damaged bytes or another kind of frame, and [ipalloc.ErrVersion] for a version that a newer program wrote.
//
// The data must not change while it is read. No string that is read shares memory with it.
func Open(data []byte, magic string, newest byte) *Coder {
	c := &Coder{}
	if len(data) < len(magic)+1+sumSize || string(data[:len(magic)]) != magic {
		c.Fail("not a snapshot of this kind")
		return c
	}
	body := data[:len(data)-sumSize]
	if binary.LittleEndian.Uint32(data[len(body):]) != checksum(body) {
		c.Fail("wrong checksum")
		return c
	}
	switch version := body[len(magic)]; {
	case version == 0:
		c.Fail("version 0")
	case version > newest:
		c.Err = fmt.Errorf("%w: snapshot of version %d, this program reads up to %d", ipalloc.ErrVersion, version, newest)
	default:
		c.frame = body
		c.S = unsafe.String(unsafe.SliceData(body), len(body))[len(magic)+1:] // a copy would double what a large snapshot takes
	}
	return c
}

// Mismatch records that the snapshot is of another object than the caller expects, unless an earlier error is recorded. Err
// then matches [ipalloc.ErrMismatch].
func (c *Coder) Mismatch(format string, args ...any) {
	if c.Err == nil {
		c.Err, c.S = fmt.Errorf("%w: %s", ipalloc.ErrMismatch, fmt.Sprintf(format, args...)), ""
	}
}

// Blob codes a length and as many bytes of a frame. The values read share memory with the frame.
func Blob(c *Coder, b *[]byte) {
	if c.Writes {
		c.B = append(binary.AppendUvarint(c.B, uint64(len(*b))), *b...)
		return
	}
	n := c.Uvarint()
	at := len(c.frame) - len(c.S)
	if c.Bytes(n); c.Err == nil {
		*b = c.frame[at : at+int(n) : at+int(n)]
	}
}

// Value codes a value that codes itself as a byte string.
func (c *Coder) Value(v interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}) {
	var b []byte
	var err error
	if c.Writes {
		b, err = v.MarshalBinary()
	}
	if Blob(c, &b); !c.Writes && c.Err == nil {
		err = v.UnmarshalBinary(b)
	}
	if err != nil {
		c.Fail("%v", err)
	}
}

// Bool codes one byte, 0 or 1.
func Bool(c *Coder, v *bool) {
	var b byte
	if *v {
		b = 1
	}
	if Byte(c, &b); b > 1 {
		c.Fail("%d is not a boolean", b)
	}
	if !c.Writes {
		*v = b == 1
	}
}

// Upto codes a number that is at most limit.
func Upto[T ~int | ~uint16 | ~uint64](c *Coder, v *T, limit uint64) {
	n := uint64(*v)
	if Uint(c, &n); c.Writes {
		return
	}
	if n > limit {
		c.Fail("%d is more than %d", n, limit)
		n = 0
	}
	*v = T(n)
}

// Time codes the seconds and nanoseconds of a time since 1970.
func Time(c *Coder, t *time.Time) {
	second, nano := t.Unix(), t.Nanosecond()
	Int(c, &second)
	if Upto(c, &nano, uint64(time.Second)-1); !c.Writes {
		if *t = time.Unix(second, int64(nano)); c.Err != nil {
			*t = time.Time{}
		}
	}
}

// AnyAddr codes the number of the bytes of an address and these; 0 is the zero Addr. The zone is left out.
func AnyAddr(c *Coder, a *netip.Addr) {
	if c.Writes {
		c.B = AppendString(c.B, string(a.WithZone("").AsSlice()))
		return
	}
	b := c.Bytes(c.Uvarint())
	var ok bool
	if *a, ok = netip.AddrFromSlice([]byte(b)); !ok && b != "" {
		c.Fail("an address of %d bytes", len(b))
	}
}

// AnyPrefix codes the address of a prefix and its length; only the zero Addr for the zero Prefix. A prefix with host bits is
// refused.
func AnyPrefix(c *Coder, p *netip.Prefix) {
	at, bits := p.Addr(), p.Bits()
	if AnyAddr(c, &at); at.IsValid() {
		Byte(c, &bits)
	}
	if c.Writes {
		return
	}
	if *p = netip.PrefixFrom(at, bits); c.Err == nil && at.IsValid() && (!p.IsValid() || *p != p.Masked()) {
		c.Fail("%v/%d is not a masked prefix", at, bits)
	}
	if c.Err != nil || !at.IsValid() {
		*p = netip.Prefix{}
	}
}
