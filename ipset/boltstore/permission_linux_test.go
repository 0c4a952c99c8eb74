package boltstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// unprivileged calls f as somebody who has no right to what root may do: the thread alone changes who it is towards the file
// system.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never given back: the thread ends with the goroutine
		if os.Geteuid() == 0 {
			if err := syscall.Setfsuid(65534); err != nil {
				t.Error(err)
				return
			}
		}
		f()
	}()
	<-done
}

// Who may not read, write or make a file is told so, and of a file that may only be read that it can be read.
func TestNoPermission(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	put(t, reopen(t, path, boltstore.Options{}), "a", "1")
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o555); err != nil {
		t.Fatal(err)
	}
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	try := func(path string, mode os.FileMode, opts boltstore.Options) (err error) {
		t.Helper()
		if path != "" {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		} else {
			path = filepath.Join(closed, "store.db")
		}
		copied := filepath.Join(dir, "copy")
		if data, err := os.ReadFile(path); err == nil {
			os.Remove(copied)
			if err := os.WriteFile(copied, data, mode); err != nil {
				t.Fatal(err)
			}
			path = copied
		}
		unprivileged(t, func() {
			var s *boltstore.Store
			if s, err = boltstore.Open(t.Context(), path, opts); err == nil {
				err = s.Close()
			}
		})
		return err
	}
	if err := try(path, 0o000, boltstore.Options{ReadOnly: true}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("may not read: %v", err)
	}
	if err := try(path, 0o444, boltstore.Options{}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("may not write: %v", err)
	}
	if err := try(path, 0o444, boltstore.Options{ReadOnly: true}); err != nil {
		t.Errorf("may read: %v", err)
	}
	if err := try("", 0, boltstore.Options{}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("may not make: %v", err)
	}
}
