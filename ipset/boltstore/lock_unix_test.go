//go:build unix && !solaris && !illumos && !aix

package boltstore

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// An error of the system other than that the file is locked comes back at once.
func TestLockFails(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if ours, err := lockFile(f, true); ours || !errors.Is(err, syscall.EBADF) {
		t.Errorf("%v, %v", ours, err)
	}
}
