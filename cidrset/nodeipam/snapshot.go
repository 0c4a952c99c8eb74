package nodeipam

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// The snapshot, version 1:
//
//	2 bytes    "ni"
//	byte       version, 1
//	uvarint    number of slots, each:
//	             byte     prefix length of a child
//	             byte     4 or 6
//	             uvarint  number of pools, each: prefix, byte 1 if it drains, uvarint cursor
//	uvarint    number of reservations, each: prefix
//	uvarint    number of owners, by name, each:
//	             uvarint  length of the name, then the name
//	             byte     1 if it is terminating
//	             uvarint  number of prefixes, each: prefix
//	4 bytes    CRC-32C of all before, little-endian
//
// A prefix is the length of its binary form as a byte, then that form, which is
// the one of netip.Prefix. What is taken is not part of it: it follows.
const (
	snapshotMagic   = "ni"
	snapshotVersion = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MarshalBinary returns a snapshot of the allocator; see [Allocator.AppendBinary].
func (a *Allocator) MarshalBinary() ([]byte, error) { return a.AppendBinary(nil) }

// AppendBinary appends a snapshot of the allocator to b: slots, pools, cursors,
// reservations, owners and what they hold, versioned and checksummed. Equal states
// give equal bytes. O(n log n) in what is held. Safe for concurrent use; the
// allocator is locked meanwhile.
func (a *Allocator) AppendBinary(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, snapshotMagic...)
	b = append(b, snapshotVersion)
	a.mu.Lock()
	b = binary.AppendUvarint(b, uint64(len(a.slots)))
	for _, s := range a.slots {
		family := byte(6)
		if s.v4 {
			family = 4
		}
		b = append(b, byte(s.bits), family)
		b = binary.AppendUvarint(b, uint64(len(s.pools)))
		for _, pl := range s.pools {
			b = appendPrefix(b, pl.codec.Pool())
			b = append(b, flag(pl.draining))
			b = binary.AppendUvarint(b, pl.cursor)
		}
	}
	b = binary.AppendUvarint(b, uint64(a.reserved.count))
	a.reserved.all(func(p netip.Prefix, _ int32) bool {
		b = appendPrefix(b, p)
		return true
	})
	owners := a.sortedOwners()
	b = binary.AppendUvarint(b, uint64(len(owners)))
	for _, o := range owners {
		b = binary.AppendUvarint(b, uint64(len(o.name)))
		b = append(b, o.name...)
		b = append(b, flag(o.terminating))
		b = binary.AppendUvarint(b, uint64(len(o.prefixes)))
		for _, p := range o.prefixes {
			b = appendPrefix(b, p)
		}
	}
	a.mu.Unlock()
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), nil
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

func appendPrefix(b []byte, p netip.Prefix) []byte {
	at := len(b)
	b, _ = p.AppendBinary(append(b, 0)) // never fails
	b[at] = byte(len(b) - at - 1)
	return b
}

// Restore returns the allocator that data is a snapshot of, with the given options.
//
// Whatever the bytes, it returns an [*Error] that matches [ErrSnapshot] or an
// allocator that passes [Allocator.Check]; options fail as in [New].
func Restore(data []byte, opts ...Option) (*Allocator, error) {
	a := &Allocator{numbers: map[string]int32{}, others: map[netip.Prefix][]int32{}}
	for _, opt := range opts {
		err := fmt.Errorf("%w: nil", ErrBadOption)
		if opt != nil {
			err = opt(a)
		}
		if err != nil {
			return nil, &Error{Op: "restore", Slot: -1, Err: err}
		}
	}
	if err := a.restore(data); err != nil {
		return nil, &Error{Op: "restore", Slot: -1, Err: fmt.Errorf("%w: %w", ErrSnapshot, err)}
	}
	return a, nil
}

func (a *Allocator) restore(data []byte) error {
	r := reader{data: data}
	if err := r.open(); err != nil {
		return err
	}
	for n := r.count(); n > 0; n-- {
		if err := a.restoreSlot(&r); err != nil {
			return err
		}
	}
	if len(a.slots) == 0 {
		return ErrNoSlot
	}
	for n := r.count(); n > 0; n-- {
		p := r.prefix()
		if err := addr.Check(p); err != nil {
			return err
		}
		if !a.reserve(p) {
			return fmt.Errorf("reservation %v is there twice", p)
		}
	}
	last := ""
	for n := r.count(); n > 0; n-- {
		name, err := a.restoreOwner(&r)
		if err != nil {
			return err
		}
		if name <= last && a.held > 1 {
			return fmt.Errorf("owner %q is out of order", name)
		}
		last = name
	}
	if r.bad || len(r.data) != 0 {
		return fmt.Errorf("cut short or too long")
	}
	return nil
}

func (a *Allocator) restoreSlot(r *reader) error {
	s := &slot{bits: int(r.byte())}
	family := r.byte()
	if family != 4 && family != 6 {
		return ErrFamily
	}
	s.v4 = family == 4
	a.slots = append(a.slots, s)
	for n := r.count(); n > 0; n-- {
		if err := a.addPool(len(a.slots)-1, r.prefix()); err != nil {
			return err
		}
		pl := s.pools[len(s.pools)-1]
		pl.draining = r.byte() == 1
		if pl.cursor = r.uvarint(); pl.cursor > pl.codec.Last() {
			return fmt.Errorf("cursor beyond pool %v", pl.codec.Pool())
		}
	}
	return nil
}

func (a *Allocator) restoreOwner(r *reader) (string, error) {
	name := string(r.bytes(r.uvarint()))
	terminating := r.byte() == 1
	n := r.count()
	if _, known := a.numbers[name]; known || n == 0 {
		return name, fmt.Errorf("owner %q is there twice or holds nothing", name)
	}
	o, number := a.newOwner(name)
	a.setTerminating(o, terminating)
	for ; n > 0; n-- {
		p := r.prefix()
		if err := addr.Check(p); err != nil {
			return name, err
		}
		for _, q := range o.prefixes {
			if p == q {
				return name, fmt.Errorf("owner %q holds %v twice", name, p)
			}
		}
		o.prefixes = append(o.prefixes, p)
		a.claim(p, number)
	}
	return name, nil
}

// reader reads a snapshot; bad is set once it is cut short.
type reader struct {
	data []byte
	bad  bool
}

// open checks the frame and leaves the body.
func (r *reader) open() error {
	if len(r.data) < len(snapshotMagic)+1+4 || string(r.data[:2]) != snapshotMagic {
		return fmt.Errorf("not one of nodeipam")
	}
	body := r.data[:len(r.data)-4]
	if binary.LittleEndian.Uint32(r.data[len(body):]) != crc32.Checksum(body, castagnoli) {
		return fmt.Errorf("wrong checksum")
	}
	if body[2] != snapshotVersion {
		return fmt.Errorf("version %d, want %d", body[2], snapshotVersion)
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

// count reads a number of things, each of which takes a byte at least.
func (r *reader) count() uint64 {
	n := r.uvarint()
	if n > uint64(len(r.data)) {
		r.bad, r.data = true, nil
		return 0
	}
	return n
}

// prefix reads a prefix, invalid if there is none.
func (r *reader) prefix() (p netip.Prefix) {
	if p.UnmarshalBinary(r.bytes(uint64(r.byte()))) != nil {
		return netip.Prefix{}
	}
	return p
}
