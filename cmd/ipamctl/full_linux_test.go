package main

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An export that finds no room for its end leaves no file, which would pass for a whole one.
func TestNoRoom(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 12, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	name := t.TempDir() + "/export"
	err := create(name, func(w io.Writer) error {
		_, err := w.Write(make([]byte, 1<<20))
		return err
	})
	status, _, stderr := call(t, env, "pool", "list")
	if back := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); back != nil {
		t.Fatal(back)
	}
	if !errors.Is(err, syscall.EFBIG) || exists(name) {
		t.Errorf("%v, and the file is there: %v", err, exists(name))
	}
	// Reading a bbolt file needs room, too, and the message names where.
	if status != exitUnavailable || !strings.Contains(stderr, "into "+filepath.Clean(os.TempDir())+", to read it: "+syscall.EFBIG.Error()) {
		t.Errorf("status %d: %s", status, stderr)
	}
}
