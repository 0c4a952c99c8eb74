//go:build unix

package plugin

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// lockDir takes the lock of this plugin, which is on the network's directory: it makes no
// file.
func lockDir(path string, shared bool, wait time.Duration) (*os.File, error) {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	return take(path, syscall.O_RDONLY|syscall.O_DIRECTORY, how, wait)
}

// lockFile takes the lock of host-local, whose file is made if it does not exist.
func lockFile(path string, wait time.Duration) (*os.File, error) {
	return take(path, syscall.O_RDONLY|syscall.O_CREAT, syscall.LOCK_EX, wait)
}

// relock gives a lock back and takes it again when those who were waiting for it have had
// it: the kernel lets a newcomer in before a waiter that has yet to wake up.
func relock(f *os.File, wait time.Duration) error {
	for began := time.Now(); time.Since(began) < wait; {
		if err := flock(f, syscall.LOCK_UN); err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond)
		if err := waitForLock(f, syscall.LOCK_EX, wait); err != nil {
			return err
		}
		if awaited, known := awaited(f); !awaited && (known || time.Since(began) > 50*time.Millisecond) {
			return nil
		}
	}
	return errBusy
}

// awaited reports whether another process waits for the lock of a file, and whether the
// system says.
func awaited(f *os.File) (awaited, known bool) {
	var st syscall.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err != nil || syscall.Fstat(int(f.Fd()), &st) != nil {
		return false, false
	}
	inode := fmt.Sprintf(":%d ", st.Ino)
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, "-> FLOCK") && strings.Contains(line, inode) {
			return true, true
		}
	}
	return false, true
}

// openDir opens a directory.
func openDir(path string) (*os.File, error) {
	return open(path, syscall.O_RDONLY|syscall.O_DIRECTORY)
}

// open opens a path without the runtime's poller, which a call of a millisecond would notice.
func open(path string, flag int) (*os.File, error) {
	for {
		fd, err := syscall.Open(path, flag|syscall.O_CLOEXEC, 0o750)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case !errors.Is(err, syscall.EINTR):
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// take opens a path and takes its lock.
func take(path string, flag, how int, wait time.Duration) (*os.File, error) {
	f, err := open(path, flag)
	if err != nil {
		return nil, err
	}
	err = flock(f, how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = waitForLock(f, how, wait)
	}
	if err != nil {
		if !errors.Is(err, errBusy) { // else the goroutine that still waits closes the file
			f.Close()
		}
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return f, nil
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
