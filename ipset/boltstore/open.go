package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/ipalloc/ipalloc/ipset/internal/combine"
)

// lockPoll is how often Open asks for a lock that another process has.
const lockPoll = 50 * time.Millisecond

// Open opens the store in a file, which is made if it does not exist. Its directory must
// exist. A new file appears under its name only when it is a whole store.
//
// Errors, the file unchanged: [ErrLocked] if another process has the file open (see Options.LockWait). [ipalloc.ErrCorrupt] if
// the file was cut off, torn or overwritten. [ErrForeign] if it is not a store of this package. [ipalloc.ErrVersion], and not
// ErrForeign, if a newer program wrote it. [ipalloc.ErrInvalid] for an option. Errors of the system match the errors of package
// os (os.ErrPermission, os.ErrNotExist). For a missing file they also match ipalloc.ErrNotFound.
func Open(ctx context.Context, path string, opts Options) (*Store, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, path, opts, initialMap(opts.InitialMap))
	if errors.Is(err, syscall.ENOMEM) { // a process may be short of address space
		s, err = open(ctx, path, opts, 0)
	}
	return s, err
}

func open(ctx context.Context, path string, opts Options, mapped int) (*Store, error) {
	f, err := acquire(ctx, path, &opts)
	if err != nil {
		return nil, err
	}
	st, err := inspect(f, path, &opts)
	if err != nil {
		f.Close()
		return nil, err
	}
	s := &Store{path: path, opts: opts, file: f, state: st}
	if s.name, err = filepath.Abs(path); err == nil {
		s.info, err = f.Stat()
	}
	if err != nil {
		f.Close()
		return nil, failure("open", path, err)
	}
	if s.queue = combine.New(true, s.batch); opts.ReadOnly {
		s.queue.Stop(failure("commit", path, ErrReadOnly))
	}
	s.watches.oldest = st.rev
	if err := s.attach(mapped); err != nil {
		f.Close()
		return nil, err
	}
	m, size, err := s.readMetas()
	if err != nil {
		return nil, errors.Join(failure("open", path, err), s.db.Close())
	}
	s.remember(m, size)
	if err := s.view(ctx, "open", func(*bbolt.Tx) error { return nil }); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

// acquire opens a file, makes it if that is allowed, and locks it.
func acquire(ctx context.Context, path string, opts *Options) (*os.File, error) {
	began, made := time.Now(), false
	for {
		if err := ctx.Err(); err != nil {
			return nil, failure("open", path, err)
		}
		f, err := openExisting(path, opts)
		if errors.Is(err, fs.ErrNotExist) && !opts.NoCreate && !opts.ReadOnly && !made {
			made = true
			if err := create(path, opts); err != nil {
				return nil, failure("open", path, err)
			}
			continue
		}
		if err != nil {
			return nil, failure("open", path, err)
		}
		ours, err := lockFile(f, !opts.ReadOnly)
		if err == nil && ours && !current(f, path) {
			f.Close() // replaced while we waited, as Compact does
			continue
		}
		if err == nil && ours {
			return f, nil
		}
		if err == nil {
			err = waitForLock(ctx, path, opts, began)
		} else {
			err = failure("open", path, err)
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// openExisting opens a file that must exist and be one.
func openExisting(path string, opts *Options) (*os.File, error) {
	flag := os.O_RDWR
	if opts.ReadOnly {
		flag = os.O_RDONLY
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errNoFile}
	}
	return openFile(path, flag, 0)
}

// current reports whether path still names the open file.
func current(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(have, named)
}

// waitForLock returns nil when it is time to ask for the lock again.
func waitForLock(ctx context.Context, path string, opts *Options, began time.Time) error {
	pid, process := lockHolder(path)
	wait := lockPoll
	if opts.LockWait >= 0 {
		left := opts.LockWait - time.Since(began)
		if left <= 0 {
			if opts.LockWait > 0 {
				return locked(path, pid, process, context.DeadlineExceeded)
			}
			return locked(path, pid, process, nil)
		}
		wait = min(wait, left)
	}
	opts.Logger.DebugContext(ctx, "waiting for a file that is in use", "path", path, "pid", pid, "process", process)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return locked(path, pid, process, ctx.Err())
	}
}

// inspect reads what a file says of itself, and all of it if that is due. The file is locked.
func inspect(f *os.File, path string, opts *Options) (state, error) {
	info, err := f.Stat()
	if err != nil {
		return state{}, failure("open", path, err)
	}
	return inspectImage(f, path, info.Size(), opts)
}

func inspectImage(file io.ReaderAt, path string, size int64, opts *Options) (state, error) {
	im, err := readImage(file, path, size)
	if err != nil {
		return state{}, err
	}
	st, tables, err := im.roots()
	if err != nil {
		return state{}, err
	}
	if im.stale {
		if err := im.acceptStale(st, opts); err != nil {
			return state{}, err
		}
	}
	if opts.due(size, st.boot) || im.stale && opts.Verify != VerifyNever || im.meta.freelist == noFreelist {
		began := time.Now()
		if err := im.verify(); err != nil {
			return state{}, err
		}
		opts.Logger.Debug("verified", "path", path, "bytes", size, "records", st.count, "took", time.Since(began))
		return st, nil
	}
	// bbolt believes branch pages and the list of free pages, whatever they say.
	return st, im.branches(tables)
}

// acceptStale decides about a file one of whose meta pages is damaged. The other one shows a whole state. It is the last one
// unless pages of a later commit are in the file.
func (im *image) acceptStale(st state, opts *Options) error {
	newest := im.newest()
	lost := newest.rev > st.rev
	if lost && !opts.AcceptOlder {
		return im.damaged(-1, fmt.Sprintf("the newer of its two meta pages: the other one shows commit %d, and pages of commit %d were written, "+
			"which may have been acknowledged; Salvage saves them, Options.AcceptOlder does without", st.rev, newest.rev))
	}
	opts.Logger.Warn("one of the two meta pages is damaged, taking the other", "path", im.path, "revision", st.rev, "lost", lost)
	return nil
}

// Sizes that bbolt is given.
const (
	// growBy is how many bytes a file grows by at least; each time costs a sync.
	growBy = 1 << 20
	// largeMap is how much address space is mapped for a file at first. While the file fits, bbolt never has to map it again, which
	// waits until no read is in flight.
	largeMap = 1 << 30
)

// initialMap is size, or largeMap if that is 0, but for systems where the file would grow to that size, or where address space is short.
func initialMap(size int) int {
	if size > 0 {
		return size
	}
	if runtime.GOOS == "windows" || ^uint(0)>>32 == 0 {
		return 0
	}
	return largeMap
}

// attach hands the file to bbolt.
func (s *Store) attach(mapped int) (err error) {
	opts := &bbolt.Options{
		Timeout:         1, // the lock is ours already
		ReadOnly:        s.opts.ReadOnly,
		NoSync:          s.opts.NoSync,
		NoGrowSync:      s.opts.NoSync,
		MaxSize:         int(s.opts.MaxSize),
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: mapped,
		OpenFile:        func(string, int, os.FileMode) (*os.File, error) { return s.file, nil },
	}
	err = s.guard(func() error {
		if s.db, err = bbolt.Open(s.path, s.opts.Mode, opts); err == nil {
			s.page = int64(s.db.Info().PageSize)
		}
		return err
	})
	switch p := (*panicError)(nil); {
	case errors.Is(err, bolterrors.ErrTimeout):
		return locked(s.path, 0, "", nil)
	case errors.As(err, &p):
		return s.died(p)
	case err != nil:
		return failure("open", s.path, err)
	}
	s.db.AllocSize = growBy
	if most := int(s.opts.MaxSize) / 16; most > 0 { // bbolt refuses to grow to where it could not grow by that much more
		s.db.AllocSize = min(growBy, max(most, 16<<10))
	}
	if s.opts.ReadOnly || s.opts.NoSync {
		return nil
	}
	// A process that died may have left pages that are not on the disk yet; from here on what is read is durable.
	if err := s.db.Sync(); err != nil {
		s.db.Close()
		return failure("open", s.path, err)
	}
	return nil
}
