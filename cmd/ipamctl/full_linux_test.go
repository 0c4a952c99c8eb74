package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An export that finds no room for its end leaves no file, which would pass for a whole one.
func TestNoRoom(t *testing.T) {
	if limited := "IPAMCTL_TEST_NO_ROOM"; os.Getenv(limited) == "" { // in a process of its own: the limit is for what package testing writes, too
		again := exec.Command(os.Args[0], "-test.run=^TestNoRoom$")
		again.Env = append(os.Environ(), limited+"=1")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 12, Max: 1 << 12}); err != nil {
		t.Fatal(err)
	}
	name := t.TempDir() + "/export"
	err := create(name, func(w io.Writer) error {
		_, err := w.Write(make([]byte, 1<<20))
		return err
	})
	status, _, stderr := call(t, env, "pool", "list")
	if !errors.Is(err, syscall.EFBIG) || exists(name) {
		t.Errorf("%v, and the file is there: %v", err, exists(name))
	}
	// Reading a bbolt file needs room, too, and the message names where.
	if status != exitUnavailable || !strings.Contains(stderr, "into "+filepath.Clean(os.TempDir())+", to read it: "+syscall.EFBIG.Error()) {
		t.Errorf("status %d: %s", status, stderr)
	}
}
