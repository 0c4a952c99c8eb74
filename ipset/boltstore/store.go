package boltstore

import (
	"context"
	"errors"
	"fmt"
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

// Store is a store.Store in a bbolt file. [Open] returns a Store and [Store.Close] closes it; the zero value is not usable.
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
	coming  version // of the commit that is in flight
	metas   metas   // of the last commit
	high    int64   // how many bytes of the file the last commit needs
	size    int64   // of the file when it was last looked at
	watches history
	bufs    sync.Pool       // of *[]byte, for readMetas
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
// A store that is not closed loses nothing. Close writes the last commit to both meta pages, so the loss of either page loses
// no commit; with Options.NoSync it omits that.
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
			err = s.guard(func() error {
				err := s.db.Update(func(tx *bbolt.Tx) error { return s.same(tx, 0) })
				if err == nil {
					err = s.written(s.coming.id)
				}
				return err
			})
		}
		stuck = errors.As(err, new(*panicError))
	}
	if stuck {
		unlockFile(s.file) // closing does not do that while the file is mapped
		err = errors.Join(err, s.file.Close())
	} else {
		err = errors.Join(err, s.guard(s.db.Close))
	}
	if err != nil {
		return failure("close", s.path, err)
	}
	return nil
}

// A panicError is what bbolt panicked with, or a page of its map that can't be read.
type panicError struct{ what any }

func (e *panicError) Error() string { return fmt.Sprint(e.what) }

// died returns the error of a call in which bbolt panicked.
func (s *Store) died(p *panicError) error {
	if _, err := s.there(); errors.Is(err, ipalloc.ErrReplaced) {
		return err
	}
	what := p.Error()
	if _, fault := p.what.(interface{ Addr() uintptr }); fault {
		what = "a mapped page cannot be read"
	}
	return damaged(s.path, -1, what)
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
	p := (*panicError)(nil)
	if errors.As(err, &p) && !began { // bbolt never releases the locks that it held
		s.mu.Lock()
		s.stuck = true
		s.mu.Unlock()
		err = s.lose(s.died(p))
	}
	switch lost := s.untouched(); {
	case errors.Is(lost, ipalloc.ErrReplaced): // meanwhile: nothing that was read counts
		err = lost
	case p != nil && began:
		err = s.died(p)
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen), errors.Is(err, fs.ErrClosed):
		err = ipalloc.ErrClosed
	}
	return failure(op, s.path, err)
}
