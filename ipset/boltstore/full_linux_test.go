package boltstore_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// A file that cannot be written whole when it is made is not there.
func TestNoRoomForANewFile(t *testing.T) {
	if limited := "BOLTSTORE_TEST_NO_ROOM"; os.Getenv(limited) == "" { // in a process of its own: the limit is for what package testing writes, too
		again := exec.Command(os.Args[0], "-test.run=^TestNoRoomForANewFile$")
		again.Env = append(os.Environ(), limited+"=1")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 10, Max: 1 << 10}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err := boltstore.Open(t.Context(), filepath.Join(dir, "store.db"), boltstore.Options{})
	if left, _ := filepath.Glob(dir + "/*"); !errors.Is(err, syscall.EFBIG) || len(left) != 0 {
		t.Errorf("%v, and there are %v", err, left)
	}
}
