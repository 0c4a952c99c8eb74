package cidrset

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/snap"
)

// The body of a snapshot, version 1, in the frame of package snap:
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

	// runSize is the fewest bytes that a cooling run takes.
	runSize = 4
)

// MarshalBinary returns a snapshot of the set: pool, child length, cursor, taken and
// cooling children, with a version and a checksum. Its size is at most one bit for each
// child plus a little (a few bytes if the set is empty or full), plus about twenty
// bytes for each run of children that began to cool at the same moment. The error is
// always nil. It holds the set's lock.
func (s *Set) MarshalBinary() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := snap.NewWriter(nil, snapshotMagic, snapshotVersion)
	w.Prefix(s.Pool())
	w.Byte(byte(s.ChildBits()))
	w.Uvarint(s.cursor)
	w.Marshal(&s.busy)
	if s.cooling == nil {
		w.Count(0)
		return w.Finish()
	}
	w.Count(len(s.cooling.at))
	for i := s.cooling.runs[0].next; i != 0; i = s.cooling.runs[i].next {
		r := s.cooling.runs[i]
		w.Uvarint(r.lo)
		w.Uvarint(r.hi - r.lo)
		w.Time(r.until)
	}
	return w.Finish()
}

// Restore returns the set whose snapshot is data, with the given options. pool and childBits must be
// those of the set; the policy may differ. Without [Cooldown], children that were cooling are free.
//
// It accepts any bytes, and either fails with an [*ipalloc.Error] or returns a set
// that passes [Set.Check]. The error matches [ipalloc.ErrCorrupt] if data is damaged;
// [ipalloc.ErrMismatch] if it is the snapshot of a set of another pool or child length,
// [ipalloc.ErrVersion] for one of a newer version; [ipalloc.ErrInvalid] for arguments that [New] refuses.
func Restore(pool netip.Prefix, childBits int, data []byte, opts ...Option) (*Set, error) {
	s, err := newSet("restore", pool, childBits, opts)
	if err != nil {
		return nil, err
	}
	r := snap.NewReader(data, snapshotMagic, snapshotVersion)
	s.read(r)
	if err := r.Close(); err != nil {
		return nil, s.fail("restore", netip.Prefix{}, err, "")
	}
	return s, nil
}

func (s *Set) read(r *snap.Reader) {
	pool, childBits := r.Prefix(), int(r.Byte())
	if r.Err() == nil && (pool != s.Pool() || childBits != s.ChildBits()) {
		r.Mismatch("a snapshot of %v in /%d, not in /%d", pool, childBits, s.ChildBits())
	}
	last := s.codec.Last()
	s.cursor = r.Upto(last)
	r.Unmarshal(&s.busy)
	if n, ok := s.busy.Last(); !ok || n != last {
		r.Fail("a bitmap of another size")
	}
	if s.cooling != nil {
		s.cooling.taken, s.cooling.hot = s.busy.Clone(), s.busy.Clone()
		s.taken = s.cooling.taken
	}
	for n := r.Count(runSize); n > 0; n-- {
		s.readRun(r)
	}
}

// readRun reads one cooling run.
func (s *Set) readRun(r *snap.Reader) {
	lo := r.Upto(s.codec.Last())
	hi := lo + r.Upto(s.codec.Last()-lo)
	until := r.Time()
	switch c := s.cooling; {
	case r.Err() != nil:
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
