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

// Store is a store.Store in a bbolt file. Make one with [Open] and end it with [Store.Close]; the zero value is not usable.
// All methods are safe for concurrent use.
type Store struct {
	path string
	opts Options
	file *os.File
	info os.FileInfo // of file
	name string      // the absolute path, whatever becomes of the working directory
	db   *bbolt.DB

	queue *combine.Queue[request] // commits that wait

	mu      sync.Mutex
	closed  bool
	dirty   bool  // commits were made that one of the two meta pages does not show
	failed  error // why no more commits are made
	lost    error // the file is another one
	made    int   // the transaction of the last commit
	stuck   bool  // bbolt died with its locks held and must not be closed
	state   state // of the last commit
	watches history
	tables  map[string]bool // by name, those that are open
}

// limits of one commit.
var limits = store.Limits{Key: bbolt.MaxKeySize, Value: 64 << 20, Bytes: 256 << 20}

// Limits implements store.Store: 32 KiB for a key, 64 MiB for a value, 256 MiB for a commit, any number of records.
func (s *Store) Limits() store.Limits { return limits }

// Path returns the path that the store was opened with.
func (s *Store) Path() string { return s.path }

// Close waits for the commit that is under way and for readers, and gives the file back. Commits that have not begun, and
// everything called later, fail with ipalloc.ErrClosed. Closing a store that is closed does nothing.
//
// A store that is not closed loses nothing. Close only has both of the pages that a file begins with show the last commit, so that
// the loss of one of them takes nothing with it; with Options.NoSync it leaves that out.
func (s *Store) Close() error {
	if s.end() {
		return nil
	}
	return s.closeFile()
}

// Abandon is Close for a process that is about to end. It gives the lock of the file back
// and leaves unmapping the file to the end of the process, which is cheaper. Where the
// system has no lock of its own to give back, or a commit is left to write, it is Close.
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
	s.mu.Unlock()
	var err error
	if dirty && !stuck {
		// An empty commit writes the state into the other meta page as well.
		err = s.guard(func() error { return s.db.Update(func(tx *bbolt.Tx) error { return s.same(s.follows(tx)) }) })
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

// same returns ipalloc.ErrReplaced, then and ever after, if the file does not show the last commit, was moved or was removed. That
// its name cannot be looked up for another reason proves nothing.
func (s *Store) same(shows bool) error {
	now, err := os.Stat(s.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lost != nil:
		return s.lost
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(now, s.info):
		s.lost = fmt.Errorf("%w: the file was moved or removed", ipalloc.ErrReplaced)
	case !shows:
		s.lost = fmt.Errorf("%w: the file was overwritten: it does not show transaction %d", ipalloc.ErrReplaced, s.made)
	default:
		return nil
	}
	s.watches.wake()
	return s.lost
}

// follows reports whether a transaction that writes follows the last commit.
func (s *Store) follows(tx *bbolt.Tx) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return tx.ID() == s.made+1
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
	closed, made := s.closed, s.made
	s.mu.Unlock()
	if closed {
		return failure(op, s.path, ipalloc.ErrClosed)
	}
	err := s.guard(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			if err := s.same(tx.ID() >= made); err != nil {
				return err
			}
			return f(tx)
		})
	})
	switch p := (*panicError)(nil); {
	case errors.As(err, &p):
		return p.damaged(s.path)
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		err = ipalloc.ErrClosed
	}
	return failure(op, s.path, err)
}
