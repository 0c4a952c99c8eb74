package main

import (
	"errors"
	"os/signal"
	"syscall"
	"testing"
)

// An export that finds no room for its end leaves no file, which would pass for a whole one.
func TestCutOffExportGoes(t *testing.T) {
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 16, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	name := t.TempDir() + "/export"
	err := create(name, make([]byte, 1<<20))
	if back := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); back != nil {
		t.Fatal(back)
	}
	if !errors.Is(err, syscall.EFBIG) || exists(name) {
		t.Errorf("%v, and the file is there: %v", err, exists(name))
	}
}
