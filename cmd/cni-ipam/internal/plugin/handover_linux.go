package plugin

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// exchange puts the directory at temp in the place of the file at path and the other way
// round, in one step. It returns false if the file system cannot.
func exchange(path, temp string) bool {
	return unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, temp, unix.RENAME_EXCHANGE) == nil
}

// syncAll writes to the disk what was changed on the file system of a directory: once, however many files that are.
func syncAll(dir string) error {
	d, err := openRead(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(d.Fd())))
}

// mayWrite returns an error if names in a directory cannot be made.
func mayWrite(dir string) error {
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return &os.PathError{Op: "write", Path: dir, Err: err}
	}
	return nil
}

// unopened reports whether no other process has the file open, which is the condition on
// which the kernel grants a write lease. It returns false for known if the file system has
// no leases.
func unopened(f *os.File) (unopened, known bool) {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		return true, err == nil
	}
	return false, errors.Is(err, unix.EAGAIN)
}
