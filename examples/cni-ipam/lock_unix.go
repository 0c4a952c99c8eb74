//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// takeLock opens a file, which is made if it does not exist, and takes the lock that host-local takes. The kernel
// serves those who wait in order.
func takeLock(path string, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o750)
	if err != nil {
		return nil, err
	}
	err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = waitForLock(f, wait)
	}
	if err != nil {
		if !errors.Is(err, errBusy) { // else who still waits has the file
			f.Close()
		}
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return f, nil
}

// waitForLock blocks until the lock is ours, or for as long as wait. A wait in the kernel can't be ended: after errBusy, which
// mostly ends the process, whoever waits closes the file when he has the lock.
func waitForLock(f *os.File, wait time.Duration) error {
	done, tooLate := make(chan error), make(chan struct{})
	go func() {
		err := flock(f, syscall.LOCK_EX)
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
