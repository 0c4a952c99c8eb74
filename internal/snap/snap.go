// Package snap implements the frame of every snapshot, with a writer and a reader.
//
//	magic      a few bytes that name the kind
//	version    1 byte
//	body       what the package writes
//	checksum   4 bytes, CRC-32C of all before, little-endian
//
// Numbers in the body are varints in their shortest form. Both Writer and Reader keep
// the first error, so a caller checks once, at the end.
package snap

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
)

const sumSize = 4

// checksum asks for the table at each call, which costs nothing after the first: made
// at start-up it would cost 0.1 ms in every program that imports this package.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Writer appends a snapshot to a slice of bytes. Make one with [NewWriter].
type Writer struct {
	b     []byte
	start int
	err   error
}

// NewWriter returns a writer that appends a snapshot of the given kind and version to b.
func NewWriter(b []byte, magic string, version byte) *Writer {
	w := &Writer{b: b, start: len(b)}
	w.b = append(w.b, magic...)
	w.b = append(w.b, version)
	return w
}

// Byte writes one byte.
func (w *Writer) Byte(v byte) { w.b = append(w.b, v) }

// Bool writes one byte, 0 or 1.
func (w *Writer) Bool(v bool) {
	if v {
		w.Byte(1)
	} else {
		w.Byte(0)
	}
}

// Uvarint writes v.
func (w *Writer) Uvarint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

// Varint writes v.
func (w *Writer) Varint(v int64) { w.b = binary.AppendVarint(w.b, v) }

// Count writes the number of elements that follow.
func (w *Writer) Count(n int) { w.Uvarint(uint64(n)) }

// Bytes writes the length of b and b.
func (w *Writer) Bytes(b []byte) {
	w.Count(len(b))
	w.b = append(w.b, b...)
}

// String writes the length of s and s.
func (w *Writer) String(s string) {
	w.Count(len(s))
	w.b = append(w.b, s...)
}

// Marshal writes v as a byte string. An error of v's is returned by Finish.
func (w *Writer) Marshal(v interface{ MarshalBinary() ([]byte, error) }) {
	b, err := v.MarshalBinary()
	if err != nil && w.err == nil {
		w.err = err
	}
	w.Bytes(b)
}

// Addr writes a as its 4 or 16 bytes and their number; 0 for the zero Addr. The zone
// is left out.
func (w *Writer) Addr(a netip.Addr) { w.Bytes(a.WithZone("").AsSlice()) }

// Prefix writes the address of p and its length; only an empty address for the zero
// Prefix.
func (w *Writer) Prefix(p netip.Prefix) {
	if !p.IsValid() {
		w.Addr(netip.Addr{})
		return
	}
	w.Addr(p.Addr())
	w.Byte(byte(p.Bits()))
}

// Time writes the seconds and nanoseconds of t since 1970.
func (w *Writer) Time(t time.Time) {
	w.Varint(t.Unix())
	w.Uvarint(uint64(t.Nanosecond()))
}

// WriteList writes the number of elements in list, then each element with write.
func WriteList[T any](w *Writer, list []T, write func(T)) {
	w.Count(len(list))
	for _, v := range list {
		write(v)
	}
}

// Finish writes the checksum and returns the slice. After an error it returns the
// slice as NewWriter was given it.
func (w *Writer) Finish() ([]byte, error) {
	if w.err != nil {
		return w.b[:w.start], w.err
	}
	return Seal(w.b, w.start), nil
}

// Seal appends the checksum of b[start:]. Tests use it to put a right checksum behind
// hostile bytes.
func Seal(b []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(b, checksum(b[start:]))
}

// Reader reads a snapshot. Make one with [NewReader]. After the first error all
// methods return zero values.
type Reader struct {
	data    []byte
	err     error
	version byte
}

// NewReader checks the frame of data. It accepts versions from 1 to newest. Err
// matches [ipalloc.ErrCorrupt] for damaged bytes or another kind of snapshot, and
// [ipalloc.ErrVersion] for a version that a newer program wrote.
func NewReader(data []byte, magic string, newest byte) *Reader {
	r := &Reader{}
	if len(data) < len(magic)+1+sumSize || string(data[:len(magic)]) != magic {
		r.Fail("not a snapshot of this kind")
		return r
	}
	body := data[:len(data)-sumSize]
	if binary.LittleEndian.Uint32(data[len(body):]) != checksum(body) {
		r.Fail("wrong checksum")
		return r
	}
	r.version = body[len(magic)]
	switch {
	case r.version == 0:
		r.Fail("version 0")
	case r.version > newest:
		r.err = fmt.Errorf("%w: snapshot of version %d, this program reads up to %d", ipalloc.ErrVersion, r.version, newest)
	default:
		r.data = body[len(magic)+1:]
	}
	return r
}

// Version returns the version in the frame.
func (r *Reader) Version() byte { return r.version }

// Fail records what is wrong, unless an earlier error is recorded. Err then matches
// [ipalloc.ErrCorrupt].
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ipalloc.ErrCorrupt, fmt.Sprintf(format, args...))
		r.data = nil
	}
}

// Mismatch records that the snapshot is not of what the caller expects, unless an
// earlier error is recorded. Err then matches [ipalloc.ErrMismatch].
func (r *Reader) Mismatch(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ipalloc.ErrMismatch, fmt.Sprintf(format, args...))
		r.data = nil
	}
}

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Close returns the first error; unread bytes are an error.
func (r *Reader) Close() error {
	if len(r.data) != 0 {
		r.Fail("%d bytes too long", len(r.data))
	}
	return r.err
}

// Len returns how many bytes are left.
func (r *Reader) Len() int { return len(r.data) }

// Take reads n bytes, which share memory with the snapshot; nil if there are fewer.
func (r *Reader) Take(n uint64) []byte {
	if n > uint64(len(r.data)) {
		r.Fail("cut short")
		return nil
	}
	b := r.data[:n:n]
	r.data = r.data[n:]
	return b
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if b := r.Take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

// Bool reads one byte that must be 0 or 1.
func (r *Reader) Bool() bool {
	b := r.Byte()
	if b > 1 {
		r.Fail("%d is not a boolean", b)
	}
	return b == 1
}

// Uvarint reads a number.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.data)
	r.number(n)
	if r.err != nil {
		return 0
	}
	return v
}

// Varint reads a signed number.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.data)
	r.number(n)
	if r.err != nil {
		return 0
	}
	return v
}

// number takes the n bytes of a varint. A last byte of 0 is one that could be left out.
func (r *Reader) number(n int) {
	switch {
	case r.err != nil:
	case n == 0:
		r.Fail("cut short")
	case n < 0:
		r.Fail("a number of more than 64 bits")
	case n > 1 && r.data[n-1] == 0:
		r.Fail("a number not in its shortest form")
	default:
		r.data = r.data[n:]
	}
}

// Upto reads a number that must be at most limit.
func (r *Reader) Upto(limit uint64) uint64 {
	v := r.Uvarint()
	if v > limit {
		r.Fail("%d is more than %d", v, limit)
		return 0
	}
	return v
}

// Count reads the number of elements that follow, each of at least size bytes, so
// that memory made for them is bounded by the input. A size of 0 counts as 1.
func (r *Reader) Count(size int) int {
	n := r.Uvarint()
	if n > uint64(len(r.data)/max(size, 1)) {
		r.Fail("cut short")
		return 0
	}
	return int(n)
}

// Bytes reads a byte string. It shares memory with the snapshot.
func (r *Reader) Bytes() []byte { return r.Take(r.Uvarint()) }

// String reads a string.
func (r *Reader) String() string { return string(r.Bytes()) }

// Unmarshal reads a byte string into v; an error of v's is recorded.
func (r *Reader) Unmarshal(v interface{ UnmarshalBinary([]byte) error }) {
	b := r.Bytes()
	if r.err != nil {
		return
	}
	if err := v.UnmarshalBinary(b); err != nil {
		r.Fail("%v", err)
	}
}

// Addr reads an address; the zero Addr is allowed.
func (r *Reader) Addr() netip.Addr {
	b := r.Bytes()
	a, ok := netip.AddrFromSlice(b)
	if !ok && len(b) != 0 {
		r.Fail("an address of %d bytes", len(b))
	}
	return a
}

// Prefix reads a prefix; the zero Prefix is allowed, one with host bits is not.
func (r *Reader) Prefix() netip.Prefix {
	a := r.Addr()
	if !a.IsValid() {
		return netip.Prefix{}
	}
	bits := int(r.Byte())
	p := netip.PrefixFrom(a, bits)
	if r.err == nil && (!p.IsValid() || p != p.Masked()) {
		r.Fail("%v/%d is not a masked prefix", a, bits)
	}
	if r.err != nil {
		return netip.Prefix{}
	}
	return p
}

// ReadList reads what [WriteList] wrote; each element takes at least size bytes.
func ReadList[T any](r *Reader, size int, read func() T) (list []T) {
	for n := r.Count(size); n > 0 && r.err == nil; n-- {
		list = append(list, read())
	}
	return list
}

// Time reads a time.
func (r *Reader) Time() time.Time {
	second := r.Varint()
	nano := r.Upto(uint64(time.Second) - 1)
	if r.err != nil {
		return time.Time{}
	}
	return time.Unix(second, int64(nano))
}
