package ipset

import (
	"encoding/binary"
	"fmt"

	"github.com/ipalloc/ipalloc"
)

// reader takes values off the front of a string; after the first failure err is set and everything reads as zero.
// It never allocates: bytes returns a part of the string.
type reader struct {
	s   string
	err error
}

// uvarint reads an unsigned varint in its shortest form.
func (r *reader) uvarint() uint64 {
	var v uint64
	for i := 0; i < len(r.s) && i < binary.MaxVarintLen64; i++ {
		c := r.s[i]
		if i == binary.MaxVarintLen64-1 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if c == 0 && i > 0 {
				break
			}
			r.s = r.s[i+1:]
			return v
		}
	}
	r.fail("varint")
	return 0
}

// varint reads a zig-zag coded signed varint.
func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// bytes reads the next n bytes.
func (r *reader) bytes(n uint64) string {
	if n > uint64(len(r.s)) {
		r.fail("length")
		return ""
	}
	s := r.s[:n]
	r.s = r.s[n:]
	return s
}

// byte reads one byte.
func (r *reader) byte() byte {
	if len(r.s) == 0 {
		r.fail("end of data")
		return 0
	}
	c := r.s[0]
	r.s = r.s[1:]
	return c
}

// fail notes the first failure and reads nothing more.
func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ipalloc.ErrCorrupt, what)
	}
	r.s = ""
}
