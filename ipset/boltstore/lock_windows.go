package boltstore

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes a lock without waiting and reports whether it got it. It is beside the one that bbolt takes, which a second
// request through the same file would be refused: far behind the end of any file, where locks of this system do not keep
// anybody from reading.
func lockFile(f *os.File, exclusive bool) (bool, error) {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION):
		return false, nil
	}
	return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
}

// unlockFile leaves it to Close to give the locks back.
func unlockFile(*os.File) error { return errors.ErrUnsupported }
