package ipset

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
)

// A snapshot of a memory store:
//
//	"ipset store 1\n"      14 bytes
//	revision, records      uvarint each
//	per record             uvarint len(key), uvarint len(value), uvarint revision, key, value; keys ascend
//	CRC-32C of the above   4 bytes, big endian
const snapshotMagic = "ipset store 1\n"

// castagnoli is made when it is first needed: programs that live for milliseconds import this package.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// AppendBinary appends a snapshot of the whole store to b. It holds the lock while it copies. It returns no error.
func (m *Memory) AppendBinary(b []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	start := len(b)
	b = append(b, snapshotMagic...)
	b = binary.AppendUvarint(b, m.rev)
	b = binary.AppendUvarint(b, uint64(m.table.n))
	for _, chunk := range m.table.chunks {
		for i := range chunk {
			r := &chunk[i]
			b = binary.AppendUvarint(b, uint64(len(r.Key)))
			b = binary.AppendUvarint(b, uint64(len(r.Value)))
			b = binary.AppendUvarint(b, r.Rev)
			b = append(b, r.Key...)
			b = append(b, r.Value...)
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli())), nil
}

// MarshalBinary returns a snapshot of the whole store. It returns no error.
func (m *Memory) MarshalBinary() ([]byte, error) { return m.AppendBinary(nil) }

// RestoreMemory returns a store with the records, revisions included, of a snapshot.
//
// It returns [ErrSnapshot] for anything that AppendBinary did not write. Keys and values are parts of one copy of data,
// which keeps loading free of small allocations and the copy alive until the last of them is overwritten.
func RestoreMemory(data []byte) (*Memory, error) {
	bad := func(what string) (*Memory, error) { return nil, fmt.Errorf("%w: %s", ErrSnapshot, what) }
	if len(data) < len(snapshotMagic)+4 || string(data[:len(snapshotMagic)]) != snapshotMagic {
		return bad("no header")
	}
	end := len(data) - 4
	if crc32.Checksum(data[:end], castagnoli()) != binary.BigEndian.Uint32(data[end:]) {
		return bad("checksum")
	}
	in := &reader{s: string(data[len(snapshotMagic):end])}
	m := &Memory{rev: in.uvarint()}
	n := in.uvarint()
	if n > uint64(len(in.s)) {
		return bad("count")
	}
	last := ""
	for ; n > 0 && in.err == nil; n-- {
		k, v, rev := in.uvarint(), in.uvarint(), in.uvarint()
		r := Record{Key: in.bytes(k), Value: in.bytes(v), Rev: rev}
		if in.err != nil || r.Key <= last || rev == 0 || rev > m.rev {
			return bad("record")
		}
		last = r.Key
		m.table.appendLast(r)
	}
	if in.err != nil || in.s != "" {
		return bad("length")
	}
	m.oldest = m.rev
	return m, nil
}

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
		r.err = fmt.Errorf("%w: %s", ErrRecord, what)
	}
	r.s = ""
}
