package cidrset

import (
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/internal/wire"
)

// The body of a snapshot, version 1, in the frame of package wire:
//
//	prefix     the pool
//	byte       prefix length of a child
//	uvarint    cursor
//	bytes      the busy children, in the binary form of package bitmap
//	uvarint    number of cooling runs, oldest first, each:
//	             uvarint lo, uvarint hi - lo, time until
//
// Options are not part of it: the program passes them to Restore.
const (
	snapshotMagic   = "cs"
	snapshotVersion = 1

	// runSize is the smallest number of bytes that a cooling run takes.
	runSize = 4
)

// MarshalBinary returns a snapshot of the set: pool, child length, cursor, taken and
// cooling children, with a version and a checksum. The snapshot takes at most one bit for
// each child plus a few bytes; it takes only these few bytes if the set is empty or full.
// Each run of children that began to cool at the same moment adds about twenty bytes. The
// error is always nil. MarshalBinary holds the set's lock.
func (s *Set) MarshalBinary() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := wire.Frame(nil, snapshotMagic, snapshotVersion)
	s.code(w)
	return w.Finish()
}

// Restore returns the set whose snapshot is data, with the given options. pool and
// childBits must be equal to the set's; the policy may differ. Without [Cooldown],
// children that were cooling become free.
//
// Restore accepts any bytes. It either fails with an [*ipalloc.Error] or returns a set
// that passes [Set.Check]. The error matches [ipalloc.ErrCorrupt] if data is damaged, and
// [ipalloc.ErrVersion] if a newer version wrote it. It matches [ipalloc.ErrMismatch] if
// the snapshot has another pool or child length, and [ipalloc.ErrInvalid] for arguments
// that [New] refuses.
func Restore(pool netip.Prefix, childBits int, data []byte, opts ...Option) (*Set, error) {
	s, err := newSet("restore", pool, childBits, opts)
	if err != nil {
		return nil, err
	}
	r := wire.Open(data, snapshotMagic, snapshotVersion)
	s.code(r)
	if err := r.End(); err != nil {
		return nil, s.fail("restore", netip.Prefix{}, err, "")
	}
	return s, nil
}

// code encodes the body, or decodes it into a new set.
func (s *Set) code(c *wire.Coder) {
	pool, childBits := s.Pool(), s.ChildBits()
	wire.AnyPrefix(c, &pool)
	if wire.Byte(c, &childBits); c.Err == nil && (pool != s.Pool() || childBits != s.ChildBits()) {
		c.Mismatch("a snapshot of %v in /%d, not in /%d", pool, childBits, s.ChildBits())
	}
	last := s.codec.Last()
	wire.Upto(c, &s.cursor, last)
	c.Value(&s.busy)
	if n, ok := s.busy.Last(); !ok || n != last {
		c.Fail("a bitmap of another size")
	}
	if !c.Writes && s.cooling != nil {
		s.cooling.taken, s.cooling.hot = s.busy.Clone(), s.busy.Clone()
		s.taken = s.cooling.taken
	}
	n, next := 0, int32(0)
	if c.Writes && s.cooling != nil {
		n, next = len(s.cooling.at), s.cooling.runs[0].next
	}
	for c.Count(&n, runSize); n > 0; n-- {
		var r run
		if c.Writes {
			r = s.cooling.runs[next]
			next = r.next
		}
		more := r.hi - r.lo
		wire.Upto(c, &r.lo, last)
		wire.Upto(c, &more, last-r.lo)
		if wire.Time(c, &r.until); !c.Writes {
			s.cool(c, r.lo, r.lo+more, r.until)
		}
	}
}

// cool adds a cooling run read from a snapshot.
func (s *Set) cool(r *wire.Coder, lo, hi uint64, until time.Time) {
	switch c := s.cooling; {
	case r.Err != nil:
	case !wholly(s.taken, lo, hi):
		r.Fail("a cooling child is free, or cools twice")
	case c == nil:
		s.busy.ClearRange(lo, hi)
	case c.runs[0].prev != 0 && until.Before(c.runs[c.runs[0].prev].until):
		r.Fail("cooling children out of order")
	default:
		c.taken.ClearRange(lo, hi)
		if i := c.insert(0, lo, hi, until); c.edge == 0 {
			c.edge = i
		}
	}
}
