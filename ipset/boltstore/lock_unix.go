//go:build unix && !solaris && !illumos && !aix

package boltstore

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the lock that bbolt takes, without waiting, and reports whether it got it. That bbolt takes it once more
// through the same file changes nothing.
func lockFile(f *os.File, exclusive bool) (bool, error) {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}

// unlockFile gives the lock back.
func unlockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
