package boltstore_test

import (
	"errors"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// A file that cannot be written whole when it is made is not there.
func TestNoRoomForANewFile(t *testing.T) {
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 10, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err := boltstore.Open(t.Context(), filepath.Join(dir, "store.db"), boltstore.Options{})
	if back := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); back != nil {
		t.Fatal(back)
	}
	if left, _ := filepath.Glob(dir + "/*"); !errors.Is(err, syscall.EFBIG) || len(left) != 0 {
		t.Errorf("%v, and there are %v", err, left)
	}
}
