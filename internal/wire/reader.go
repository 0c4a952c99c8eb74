// Package wire encodes and decodes the parts of records and of snapshots: numbers, strings and addresses.
package wire

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
)

// Reader takes values off the front of a string; after the first failure Err is set and everything reads as zero.
// It never allocates: Bytes returns a part of the string.
type Reader struct {
	S   string // what is left
	Err error
}

// Uvarint reads an unsigned varint in its shortest form.
func (r *Reader) Uvarint() uint64 {
	if s := r.S; s != "" && s[0] < 0x80 {
		r.S = s[1:]
		return uint64(s[0])
	}
	return r.long()
}

// long reads a varint of several bytes, which few numbers take.
func (r *Reader) long() uint64 {
	var v uint64
	for i := 0; i < len(r.S) && i < binary.MaxVarintLen64; i++ {
		c := r.S[i]
		if i == binary.MaxVarintLen64-1 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if c == 0 && i > 0 {
				break
			}
			r.S = r.S[i+1:]
			return v
		}
	}
	r.Fail("varint")
	return 0
}

// Varint reads a zig-zag coded signed varint.
func (r *Reader) Varint() int64 {
	u := r.Uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// Bytes reads the next n bytes.
func (r *Reader) Bytes(n uint64) (s string) {
	if n > uint64(len(r.S)) {
		r.Fail("length")
		n = 0
	}
	s, r.S = r.S[:n], r.S[n:]
	return s
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if s := r.S; s != "" {
		r.S = s[1:]
		return s[0]
	}
	r.Fail("end of data")
	return 0
}

// Version reads the version of a form. Any other one fails with [ipalloc.ErrVersion].
func (r *Reader) Version(v byte) {
	if got := r.Byte(); got != v && r.Err == nil {
		r.Err, r.S = fmt.Errorf("%w: version %d, and this program reads version %d", ipalloc.ErrVersion, got, v), ""
	}
}

// Fail notes the first failure and reads nothing more.
func (r *Reader) Fail(format string, args ...any) {
	if r.Err == nil {
		r.Err = fmt.Errorf("%w: %s", ipalloc.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	r.S = ""
}

// End returns the first failure; bytes that are left are one.
func (r *Reader) End() error {
	if r.S != "" {
		r.Fail("length")
	}
	return r.Err
}

// AppendString appends the length and the bytes of a string.
func AppendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// AppendAddr appends the 4 or 16 bytes of an address.
func AppendAddr(dst []byte, a netip.Addr) []byte {
	if a.Is4() {
		b := a.As4()
		return append(dst, b[:]...)
	}
	b := a.As16()
	return append(dst, b[:]...)
}
