package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Errors that a caller may want to tell apart, beside those of package ipalloc. Each left
// the file as it was.
var (
	// ErrLocked means that another process, or another Store of this process, has the file open. It
	// matches ipalloc.ErrInUse. Error.Holder names the process, where the system tells.
	ErrLocked = fmt.Errorf("%w by another process", ipalloc.ErrInUse)
	// ErrForeign means that the file is not a store of this package. It matches
	// ipalloc.ErrMismatch.
	ErrForeign = fmt.Errorf("%w: not a store of this package", ipalloc.ErrMismatch)
	// ErrNoSpace is store.ErrNoSpace: the disk, a quota or Options.MaxSize has no room for the commit.
	ErrNoSpace = store.ErrNoSpace
	// ErrReadOnly is store.ErrReadOnly.
	ErrReadOnly = store.ErrReadOnly
	// ErrFailed is store.ErrFailed.
	ErrFailed = store.ErrFailed
)

// failure returns an *ipalloc.Error about a file. It returns err itself if that is one
// already.
func failure(op, path string, err error) error {
	if e := (*ipalloc.Error)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	out := &ipalloc.Error{Package: "boltstore", Op: op, Text: path, Err: err}
	for of, kind := range kinds {
		if errors.Is(err, of) {
			out.Reason, out.Err = err.Error(), fmt.Errorf("%w: %w", kind, err)
		}
	}
	return out
}

// errNoFile is the error of a path that names a directory or a device.
var errNoFile = errors.New("not a regular file")

// kinds are what errors about files match beside themselves.
var kinds = map[error]error{fs.ErrNotExist: ipalloc.ErrNotFound, fs.ErrExist: ipalloc.ErrExists, errNoFile: ipalloc.ErrMismatch}

// unknown returns the error of a commit that may have been made.
func unknown(path string, cause error) error {
	return &ipalloc.Error{Package: "boltstore", Op: "commit", Text: path, Err: fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, cause)}
}

// damaged returns the error of a file that is not as it was written. page is -1 if no
// single page is at fault.
func damaged(path string, page int64, what string) error {
	where := ""
	if page >= 0 {
		where = fmt.Sprintf("page %d: ", page)
	}
	return &ipalloc.Error{
		Package: "boltstore", Op: "read", Text: path, Err: ipalloc.ErrCorrupt,
		Reason: "damaged: " + where + what + "; nothing was changed: keep a copy of the file and restore a backup, or save what is readable with boltstore.Salvage",
	}
}

// foreign returns the error of a file that is something else.
func foreign(path, what string) error {
	return &ipalloc.Error{Package: "boltstore", Op: "open", Text: path, Reason: "not a store of this package: " + what, Err: ErrForeign}
}

// newer returns the error of a file in a format that this program does not know.
func newer(path, what string) error {
	return &ipalloc.Error{Package: "boltstore", Op: "open", Text: path, Reason: what + ": use the program that wrote it, or a newer one", Err: ipalloc.ErrVersion}
}

// locked returns the error of a file that another process has. cause is why waiting ended.
func locked(path string, pid int, process string, cause error) error {
	e := held("open", path, pid, process, "one process at a time can have the file: stop the other one, or wait for it with Options.LockWait")
	if cause != nil {
		e.Reason += ": " + cause.Error()
		e.Err = fmt.Errorf("%w: %w", ErrLocked, cause)
	}
	return e
}

// held returns the error of a file that a process has; pid is 0 if the system does not tell which.
func held(op, path string, pid int, process, reason string) *ipalloc.Error {
	e := &ipalloc.Error{Package: "boltstore", Op: op, Text: path, Reason: reason, Err: ErrLocked}
	if pid != 0 {
		e.Holder = strings.TrimSpace(fmt.Sprintf("process %d %s", pid, process))
	}
	return e
}

// noSpace reports whether err says that there is no room. bbolt flattens some causes into text.
func noSpace(err error) bool {
	if errors.Is(err, bolterrors.ErrMaxSizeReached) {
		return true
	}
	for _, e := range outOfRoom {
		if errors.Is(err, e) || strings.Contains(err.Error(), e.Error()) {
			return true
		}
	}
	return false
}
