//go:build unix

package plugin

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockFile takes the lock of a file that only its owner can open. If create is true, it
// makes the file.
func lockFile(path string, shared, create bool, wait time.Duration) (*os.File, error) {
	how, flag := syscall.LOCK_EX, syscall.O_RDONLY|syscall.O_NOFOLLOW
	if shared {
		how = syscall.LOCK_SH
	}
	if create {
		flag |= syscall.O_CREAT
	}
	for {
		f, err := open(path, flag)
		if err != nil {
			return nil, err
		}
		err = flock(f, how|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = waitForLock(f, how, wait)
		}
		if err == nil && !removed(f) {
			return f, nil
		}
		if !errors.Is(err, errBusy) { // else the goroutine that still waits closes the file
			f.Close()
		}
		if err != nil {
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
	}
}

// removed reports whether a file has no name anymore: its lock excludes nobody then.
func removed(f *os.File) bool {
	var st syscall.Stat_t
	return syscall.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
}

// openRead opens a file or a directory.
func openRead(path string) (*os.File, error) { return open(path, syscall.O_RDONLY) }

// open opens a path without the runtime's poller, which a call of a millisecond would notice.
func open(path string, flag int) (*os.File, error) {
	for {
		fd, err := syscall.Open(path, flag|syscall.O_CLOEXEC, 0o600)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case !errors.Is(err, syscall.EINTR):
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// waitForLock blocks until the lock is taken, or for as long as wait. A wait in the kernel
// cannot be ended: after errBusy, which mostly ends the process, the waiting goroutine
// closes the file when it has the lock.
func waitForLock(f *os.File, how int, wait time.Duration) error {
	done, tooLate := make(chan error), make(chan struct{})
	go func() {
		err := flock(f, how)
		select {
		case done <- err:
		case <-tooLate:
			f.Close()
		}
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		close(tooLate)
		return errBusy
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
