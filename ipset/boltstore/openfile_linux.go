package boltstore

import (
	"errors"
	"os"
	"syscall"
)

// openFile is os.OpenFile without the attempt to register the file with the runtime's
// poller, which starts the poller and fails for a regular file.
func openFile(path string, flag int, mode os.FileMode) (*os.File, error) {
	for {
		fd, err := syscall.Open(path, flag|syscall.O_CLOEXEC|syscall.O_LARGEFILE, uint32(mode.Perm()))
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case !errors.Is(err, syscall.EINTR):
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}
