package boltstore

import (
	"errors"
	"fmt"
	"strings"

	bolterrors "go.etcd.io/bbolt/errors"
)

// What can go wrong beside the errors of store.Store, for errors.Is. Every one of them left the file as it was.
var (
	// ErrLocked: another process, or another Store of this one, has the file. See [LockedError].
	ErrLocked = errors.New("boltstore: the file is in use")
	// ErrDamaged: the file is not as it was written. See [DamagedError].
	ErrDamaged = errors.New("boltstore: the file is damaged")
	// ErrForeign: the file is something else than a store of this package.
	ErrForeign = errors.New("boltstore: not a store of this package")
	// ErrVersion: the file was written in a format that this program does not know.
	ErrVersion = errors.New("boltstore: format of another version")
	// ErrNoSpace: the disk, a quota, or Options.MaxSize has no room for the commit.
	ErrNoSpace = errors.New("boltstore: no space left")
	// ErrReadOnly: the store was opened for reading.
	ErrReadOnly = errors.New("boltstore: opened read-only")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("boltstore: closed")
	// ErrFailed: an earlier commit ended in a way that leaves open what the disk holds. Reads go on; close the store
	// and open it again to write.
	ErrFailed = errors.New("boltstore: an earlier write failed, open the file again")
)

// LockedError says who has the file. It matches [ErrLocked].
type LockedError struct {
	Path string
	// PID is the process that has it, 0 if that can't be told: on anything but Linux, or from inside a container.
	PID int
	// Process is its name, if that can be told.
	Process string
	// Cause is why waiting ended: nil if there was none, context.DeadlineExceeded after Options.LockWait, or the
	// context's error.
	Cause error
}

func (e *LockedError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "boltstore: open %s: the file is in use", e.Path)
	switch {
	case e.PID != 0 && e.Process != "":
		fmt.Fprintf(&s, " by process %d (%s)", e.PID, e.Process)
	case e.PID != 0:
		fmt.Fprintf(&s, " by process %d", e.PID)
	default:
		s.WriteString(" by another process")
	}
	s.WriteString("; one process at a time can have it: stop that one, or wait for it with Options.LockWait")
	if e.Cause != nil {
		fmt.Fprintf(&s, ": %v", e.Cause)
	}
	return s.String()
}

// Is reports whether target is ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// Unwrap returns Cause.
func (e *LockedError) Unwrap() error { return e.Cause }

// DamagedError says where a file is not as it was written. It matches [ErrDamaged].
type DamagedError struct {
	Path string
	// Page is the number of the page, -1 if it is not one page's fault.
	Page int64
	What string
}

func (e *DamagedError) Error() string {
	where := ""
	if e.Page >= 0 {
		where = fmt.Sprintf("page %d: ", e.Page)
	}
	return fmt.Sprintf("boltstore: %s is damaged: %s%s; nothing was changed: keep a copy of the file and restore a backup, or save what is readable with boltstore.Salvage",
		e.Path, where, e.What)
}

// Is reports whether target is ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

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
