package boltstore

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
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

// giveName gives a file another name, unless that is taken. Where the file system allows, it
// takes one step: the file loses the old one.
func giveName(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err == nil || err == unix.EEXIST {
		return err
	}
	return os.Link(from, to)
}
