package cidrset

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"time"
)

// The snapshot, version 1:
//
//	2 bytes    "cs"
//	byte       version, 1
//	byte       length of the pool, then the pool as netip.Prefix.MarshalBinary has it
//	byte       prefix length of a child
//	uvarint    cursor
//	uvarint    length of the bitmap, then the busy children as bitmap.MarshalBinary has them
//	uvarint    number of cooling runs, oldest first, each:
//	             uvarint lo, uvarint hi - lo, varint seconds and uvarint nanoseconds of until
//	4 bytes    CRC-32C of all before, little-endian
//
// Options are not part of it: they are the program's, and are given to Restore.
const (
	snapshotMagic   = "cs"
	snapshotVersion = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MarshalBinary returns a snapshot of the set; see [Set.AppendBinary].
func (s *Set) MarshalBinary() ([]byte, error) { return s.AppendBinary(nil) }

// AppendBinary appends a snapshot of the set to b: pool, child length, cursor,
// taken and cooling children, versioned and checksummed. It is at most one bit for
// each child and a little, a few bytes for a set that is empty or full, and some
// twenty bytes more for each run of children that began to cool at one moment. Safe
// for concurrent use; the set is locked meanwhile.
func (s *Set) AppendBinary(b []byte) ([]byte, error) {
	pool, err := s.Pool().MarshalBinary()
	if err != nil {
		return b, s.fail("snapshot", netip.Prefix{}, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	busy, err := s.busy.MarshalBinary()
	if err != nil {
		return b, s.fail("snapshot", netip.Prefix{}, err)
	}
	start := len(b)
	b = append(b, snapshotMagic...)
	b = append(b, snapshotVersion, byte(len(pool)))
	b = append(b, pool...)
	b = append(b, byte(s.ChildBits()))
	b = binary.AppendUvarint(b, s.cursor)
	b = binary.AppendUvarint(b, uint64(len(busy)))
	b = append(b, busy...)
	b = s.cooling.append(b)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), nil
}

func (c *cooling) append(b []byte) []byte {
	if c == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(c.at)))
	for i := c.head; i != none; i = c.runs[i].next {
		r := c.runs[i]
		b = binary.AppendUvarint(b, r.lo)
		b = binary.AppendUvarint(b, r.hi-r.lo)
		b = binary.AppendVarint(b, r.until.Unix())
		b = binary.AppendUvarint(b, uint64(r.until.Nanosecond()))
	}
	return b
}

// Restore returns the set that data is a snapshot of, with the given options. The
// policy may be another than before. Without [Cooldown], children that were
// cooling are free.
//
// Whatever the bytes, it returns an [*Error] that matches [ErrSnapshot] or a set
// that passes [Set.Check]; options fail as in [New].
func Restore(data []byte, opts ...Option) (*Set, error) {
	s, err := restore(data, opts)
	if err != nil {
		return nil, &Error{Op: "restore", Err: err}
	}
	return s, nil
}

func restore(data []byte, opts []Option) (*Set, error) {
	r := reader{data: data}
	if err := r.open(); err != nil {
		return nil, err
	}
	var pool netip.Prefix
	if err := pool.UnmarshalBinary(r.bytes(uint64(r.byte()))); err != nil || r.bad {
		return nil, fmt.Errorf("%w: no pool", ErrSnapshot)
	}
	s, err := newSet(pool, int(r.byte()), nil)
	if err != nil || r.bad {
		return nil, fmt.Errorf("%w: bad pool or child length", ErrSnapshot)
	}
	if err := s.apply(opts); err != nil {
		return nil, err
	}
	last := s.codec.Last()
	s.cursor = r.uvarint()
	if err := s.busy.UnmarshalBinary(r.bytes(r.uvarint())); err != nil || r.bad {
		return nil, fmt.Errorf("%w: bad bitmap", ErrSnapshot)
	}
	if n, ok := s.busy.Last(); !ok || n != last || s.cursor > last {
		return nil, fmt.Errorf("%w: sizes disagree", ErrSnapshot)
	}
	for n := r.uvarint(); n > 0; n-- {
		if err := s.restoreRun(&r); err != nil {
			return nil, err
		}
	}
	if r.bad || len(r.data) != 0 {
		return nil, fmt.Errorf("%w: cut short or too long", ErrSnapshot)
	}
	return s, nil
}

// restoreRun reads one cooling run.
func (s *Set) restoreRun(r *reader) error {
	lo, size := r.uvarint(), r.uvarint()
	second, nano := r.varint(), r.uvarint()
	last := s.codec.Last()
	if r.bad || lo > last || size > last-lo {
		return fmt.Errorf("%w: cooling children beyond the pool", ErrSnapshot)
	}
	if nano >= uint64(time.Second) {
		return fmt.Errorf("%w: %d nanoseconds", ErrSnapshot, nano)
	}
	hi := lo + size
	if !wholly(&s.busy, lo, hi) {
		return fmt.Errorf("%w: a cooling child is free", ErrSnapshot)
	}
	c, until := s.cooling, time.Unix(second, int64(nano))
	if c == nil {
		s.busy.ClearRange(lo, hi)
		return nil
	}
	if c.set.CountRange(lo, hi) != 0 {
		return fmt.Errorf("%w: a child cools twice", ErrSnapshot)
	}
	if c.tail != none && until.Before(c.runs[c.tail].until) {
		return fmt.Errorf("%w: cooling children out of order", ErrSnapshot)
	}
	c.insert(c.tail, none, lo, hi, until)
	c.set.SetRange(lo, hi)
	return nil
}

// reader reads a snapshot; bad is set once it is cut short.
type reader struct {
	data []byte
	bad  bool
}

// open checks the frame and leaves the body.
func (r *reader) open() error {
	if len(r.data) < len(snapshotMagic)+1+4 || string(r.data[:2]) != snapshotMagic {
		return fmt.Errorf("%w: not one of a cidrset", ErrSnapshot)
	}
	body := r.data[:len(r.data)-4]
	if binary.LittleEndian.Uint32(r.data[len(body):]) != crc32.Checksum(body, castagnoli) {
		return fmt.Errorf("%w: wrong checksum", ErrSnapshot)
	}
	if body[2] != snapshotVersion {
		return fmt.Errorf("%w: version %d, want %d", ErrSnapshot, body[2], snapshotVersion)
	}
	r.data = body[3:]
	return nil
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.data)) {
		r.bad, r.data = true, nil
		return nil
	}
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.data)
	r.bytes(uint64(max(n, 0)))
	r.bad = r.bad || n <= 0
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.data)
	r.bytes(uint64(max(n, 0)))
	r.bad = r.bad || n <= 0
	return v
}
