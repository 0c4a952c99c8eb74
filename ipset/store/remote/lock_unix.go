//go:build unix && !solaris && !illumos && !aix

package remote

import (
	"errors"
	"os"
	"syscall"
)

// refused is the error of a connection to a socket whose process has ended.
const refused = syscall.ECONNREFUSED

// lock locks a file, which it makes if it does not exist, until unlock is called or the process ends.
func lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrPermission) {
		return nil, inUse(path, err)
	}
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(inUse(path, err), f.Close())
	}
	return f.Close, nil
}
