package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"

	"github.com/ipalloc/ipalloc"
)

// A version is what the file shows after a transaction: its number, and the state that it wrote.
type version struct {
	id    int
	state []byte
}

func (v version) is(of version) bool { return v.id == of.id && bytes.Equal(v.state, of.state) }

// metas are the two meta pages, without their heads. A transaction writes the page that has the parity of its number and leaves the other
// one unchanged. A file that Backup wrote can have its newer page at the other parity.
type metas [2][metaSize]byte

// readMetas reads the meta pages and the size of the file; bytes behind its end are zero.
func (s *Store) readMetas() (m metas, size int64, err error) {
	buf, _ := s.bufs.Get().(*[]byte)
	if buf == nil {
		b := make([]byte, s.page+metaSize)
		buf = &b
	}
	defer s.bufs.Put(buf)
	n, err := s.file.ReadAt(*buf, pageHead)
	if err != nil && err != io.EOF {
		return m, 0, err
	}
	clear((*buf)[n:])
	copy(m[0][:], *buf)
	copy(m[1][:], (*buf)[s.page:])
	size, err = s.file.Seek(0, io.SeekEnd) // no other call uses the position
	return m, size, err
}

// remember keeps the meta pages as those of the last commit.
func (s *Store) remember(m metas, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metas, s.size = m, size
	newest := uint64(0)
	for i := range m {
		if meta, err := parseMeta(m[i][:]); err == nil && meta.txid > newest {
			newest, s.high = meta.txid, int64(meta.high)*s.page
		}
	}
}

// untouched returns ipalloc.ErrReplaced, then and ever after, if a meta page is not what the last commit left, or if the file is too short
// for it. A page that a commit in flight may be writing is not compared. One page must be valid: bbolt keeps its locks after a failure to
// find one.
func (s *Store) untouched() error {
	s.mu.Lock()
	before, last, high := s.metas, s.last.id, s.high
	s.mu.Unlock()
	now, size, err := s.readMetas()
	if err != nil {
		return err
	}
	s.mu.Lock()
	coming := s.coming.id
	s.size = size
	s.mu.Unlock()
	valid := false
	for i := range now {
		_, err := parseMeta(now[i][:])
		valid = valid || err == nil
		if coming > last+1 || coming == last+1 && coming%2 == i || now[i] == before[i] {
			continue
		}
		return s.overwritten("meta page %d is not that of transaction %d", i, last)
	}
	if !valid {
		return s.overwritten("it has no meta page")
	}
	if size < high {
		return s.cutOff(size, high)
	}
	return nil
}

// written verifies after a transaction of this store that it wrote its own meta page, and that nothing else wrote the other one or cut the
// file off meanwhile. If older bytes came over the file during the transaction, the other page shows it.
func (s *Store) written(id int) error {
	now, size, err := s.readMetas()
	if err != nil {
		return err
	}
	s.mu.Lock()
	before, least := s.metas, s.size
	s.mu.Unlock()
	mine := id % 2
	switch m, err := parseMeta(now[mine][:]); {
	case err != nil || m.txid != uint64(id) || now[1-mine] != before[1-mine]:
		return s.overwritten("it was written to during transaction %d", id)
	case size < max(least, int64(m.high)*s.page):
		return s.cutOff(size, max(least, int64(m.high)*s.page))
	}
	s.remember(now, size)
	return nil
}

// overwritten has every later call fail, because something else wrote to the file.
func (s *Store) overwritten(format string, args ...any) error {
	return s.lose(fmt.Errorf("%w: the file was overwritten: %s", ipalloc.ErrReplaced, fmt.Sprintf(format, args...)))
}

// cutOff is overwritten for a file that is too short. The error matches ipalloc.ErrCorrupt, too: the file will not open again.
func (s *Store) cutOff(size, want int64) error {
	return s.lose(fmt.Errorf("%w: the file was cut off: it has %d bytes of %d: %w", ipalloc.ErrReplaced, size, want, ipalloc.ErrCorrupt))
}

// same returns ipalloc.ErrReplaced, then and ever after, if a transaction does not find what the last commit left. A reader may find the
// commit in flight as well, and one of those that were made since it asked.
func (s *Store) same(tx *bbolt.Tx, since int) error {
	now := version{id: tx.ID()}
	if tx.Writable() {
		now.id-- // the one before
	}
	if b := tx.Bucket([]byte(stateBucket)); b != nil {
		now.state = b.Get([]byte(stateKey))
	}
	s.mu.Lock()
	if s.last.id == 0 {
		s.last = version{now.id, bytes.Clone(now.state)}
	}
	last, coming := s.last, s.coming
	s.mu.Unlock()
	if now.is(last) || !tx.Writable() && (now.is(coming) || since <= now.id && now.id < last.id) {
		return nil
	}
	return s.overwritten("it does not show transaction %d", last.id)
}

// there returns the last transaction, or ipalloc.ErrReplaced, then and ever after, if the file was moved, removed, cut off or overwritten.
// A name that cannot be looked up for another reason proves nothing.
func (s *Store) there() (last int, err error) {
	s.mu.Lock()
	last, lost := s.last.id, s.lost
	s.mu.Unlock()
	if lost != nil {
		return 0, lost
	}
	now, err := os.Stat(s.name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, s.info) {
		return 0, s.lose(fmt.Errorf("%w: the file was moved or removed", ipalloc.ErrReplaced))
	}
	return last, s.untouched()
}

// lose has every later call fail with err.
func (s *Store) lose(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = err
		s.watches.wake()
	}
	return s.lost
}
