package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/combine"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Store is a store.Store in a bbolt file. Make one with [Open] and end it with [Store.Close]; the zero value is not usable.
// All methods are safe for concurrent use.
type Store struct {
	path string
	opts Options
	file *os.File
	info os.FileInfo // of file
	name string      // the absolute path, whatever becomes of the working directory
	db   *bbolt.DB
	page int64 // its size, in bytes

	queue *combine.Queue // commits that wait

	mu      sync.Mutex
	closed  bool
	dirty   bool  // commits were made that one of the two meta pages does not show
	failed  error // why no more commits are made
	lost    error // the file is another one
	stuck   bool  // bbolt died with its locks held and must not be closed
	state   state // of the last commit
	last    version
	coming  version // of the commit that is under way
	watches history
	tables  map[string]bool // by name, those that are open
}

// limits of one commit.
var limits = store.Limits{Key: bbolt.MaxKeySize, Value: 64 << 20, Bytes: 256 << 20}

// Limits implements store.Store: 32 KiB for a key, 64 MiB for a value, 256 MiB for a commit, any number of records.
func (s *Store) Limits() store.Limits { return limits }

// Path returns the path that the store was opened with.
func (s *Store) Path() string { return s.path }

// Close waits for the commit in flight and for readers, and closes the file. Commits that have not begun, and all later calls,
// fail with ipalloc.ErrClosed. Closing a store that is closed does nothing.
//
// A store that is not closed loses nothing. Close only makes both meta pages show the last commit, so that the loss of one of
// them loses no commit; with Options.NoSync it omits that.
func (s *Store) Close() error {
	if s.end() {
		return nil
	}
	return s.closeFile()
}

// Abandon is Close for a process that is about to end. It releases the lock of the file
// and leaves unmapping the file to the end of the process, which is cheaper. Where the
// system has no such lock, or if a commit is left to write, Abandon is Close.
func (s *Store) Abandon() error {
	if s.end() {
		return nil
	}
	if s.stuck || s.dirty && !s.opts.NoSync || unlockFile(s.file) != nil {
		return s.closeFile()
	}
	return nil
}

// end has every further call fail, and waits for the commit that is under way. It reports
// whether the store was closed already.
func (s *Store) end() (closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return true
	}
	s.closed = true
	s.queue.Stop(failure("commit", s.path, ipalloc.ErrClosed))
	s.watches.wake()
	s.mu.Unlock()
	s.queue.Wait()
	s.mu.Lock()
	return false
}

// closeFile gives the file back.
func (s *Store) closeFile() error {
	s.mu.Lock()
	dirty, stuck := s.dirty && s.failed == nil && !s.opts.NoSync, s.stuck
	if dirty {
		s.coming = version{s.last.id + 1, s.last.state}
	}
	s.mu.Unlock()
	var err error
	if dirty && !stuck {
		// An empty commit writes the state into the other meta page as well.
		if _, err = s.there(); err == nil {
			err = s.guard(func() error { return s.db.Update(func(tx *bbolt.Tx) error { return s.same(tx, 0) }) })
		}
		stuck = errors.As(err, new(*panicError))
	}
	if stuck {
		err = errors.Join(err, s.file.Close())
	} else {
		err = errors.Join(err, s.guard(s.db.Close))
	}
	if err != nil {
		return failure("close", s.path, err)
	}
	return nil
}

// A version is what the file shows after a transaction: its number, and the state that it wrote.
type version struct {
	id    int
	state []byte
}

func (v version) is(of version) bool { return v.id == of.id && bytes.Equal(v.state, of.state) }

// same returns ipalloc.ErrReplaced, then and ever after, if a transaction does not find what the last commit left. A reader may find the
// commit that is under way as well, and one of those that were made since it asked.
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
	return s.lose(fmt.Errorf("%w: the file was overwritten: it does not show transaction %d", ipalloc.ErrReplaced, last.id))
}

// there returns the last transaction, or ipalloc.ErrReplaced, then and ever after, if the file was moved or removed, or has no meta page:
// bbolt would not give back its locks after an attempt to read it. That the name cannot be looked up for another reason proves nothing.
func (s *Store) there() (last int, err error) {
	now, err := os.Stat(s.name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, s.info) {
		return 0, s.lose(fmt.Errorf("%w: the file was moved or removed", ipalloc.ErrReplaced))
	}
	for id, valid := int64(1), false; id >= 0 && !valid; id-- { // if the second page is there, the first is, too
		var b [pageHead + metaSize]byte
		_, err := s.file.ReadAt(b[:], id*s.page)
		if err != nil && err != io.EOF {
			return 0, err
		}
		_, other := parseMeta(b[pageHead:])
		if valid = other == nil; !valid && (id == 0 || err == io.EOF) {
			return 0, s.lose(fmt.Errorf("%w: the file was overwritten: it has no meta page", ipalloc.ErrReplaced))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.id, s.lost
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

// A panicError is what bbolt panicked with, or a page of its map that can't be read.
type panicError struct{ what any }

func (e *panicError) Error() string { return fmt.Sprint(e.what) }

func (e *panicError) damaged(path string) error {
	return damaged(path, -1, e.Error())
}

// guard calls f and returns a *panicError if bbolt panics, or if a page of its map can't be read: the file was damaged or
// cut off since it was opened.
func (s *Store) guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{what: p}
		}
	}()
	return f()
}

// view calls f with one view of the file, for a method named op.
func (s *Store) view(ctx context.Context, op string, f func(*bbolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return failure(op, s.path, err)
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return failure(op, s.path, ipalloc.ErrClosed)
	}
	began := false
	err := s.guard(func() error {
		since, err := s.there()
		if err != nil {
			return err
		}
		return s.db.View(func(tx *bbolt.Tx) error {
			began = true
			if err := s.same(tx, since); err != nil {
				return err
			}
			return f(tx)
		})
	})
	switch p := (*panicError)(nil); {
	case errors.As(err, &p) && !began: // bbolt never releases the locks that it held
		s.mu.Lock()
		s.stuck = true
		s.mu.Unlock()
		return s.lose(p.damaged(s.path))
	case errors.As(err, &p):
		return p.damaged(s.path)
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen), errors.Is(err, fs.ErrClosed):
		err = ipalloc.ErrClosed
	}
	return failure(op, s.path, err)
}
