package boltstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// Restore refuses the name of a file that a running engine has, there or removed under it, by whatever way the name leads there, and
// says whom to stop. When that engine has ended it makes the file.
func TestRestoreBesideAnEngine(t *testing.T) {
	s := open(t, boltstore.Options{NoSync: true})
	put(t, s, "a", "1")
	var copied bytes.Buffer
	if _, err := s.Backup(t.Context(), &copied); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(s.Path())
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	base := filepath.Base(s.Path())
	for _, removed := range []bool{false, true} {
		if removed {
			if err := os.Remove(s.Path()); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{s.Path(), base, filepath.Join(link, base)} {
			err := boltstore.Restore(t.Context(), bytes.NewReader(copied.Bytes()), name)
			var e *ipalloc.Error
			if !errors.Is(err, boltstore.ErrLocked) || !errors.As(err, &e) || !strings.Contains(e.Reason, "stop every engine") || e.Holder == "" {
				t.Errorf("removed %v, %s: %v", removed, name, err)
			}
		}
		if left, _ := filepath.Glob(s.Path() + ".*"); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	if err := boltstore.Restore(t.Context(), bytes.NewReader(copied.Bytes()), filepath.Join(dir, "beside")); err != nil {
		t.Error(err)
	}
	_ = s.Close()
	if err := boltstore.Restore(t.Context(), bytes.NewReader(copied.Bytes()), s.Path()); err != nil {
		t.Error(err)
	}
}

// The holder of each of three files is found, wherever the kernel lists its lock, and a file that was closed beside them has none.
func TestHolder(t *testing.T) {
	var all []*boltstore.Store
	for range 3 {
		all = append(all, open(t, boltstore.Options{NoSync: true}))
	}
	for _, s := range all {
		_, err := boltstore.Open(t.Context(), s.Path(), boltstore.Options{})
		var e *ipalloc.Error
		if !errors.As(err, &e) || !strings.HasPrefix(e.Holder, fmt.Sprintf("process %d ", os.Getpid())) {
			t.Errorf("%v, want process %d", err, os.Getpid())
		}
	}
	closed := open(t, boltstore.Options{NoSync: true})
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := boltstore.Restore(t.Context(), strings.NewReader(""), closed.Path()); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a file that no process has: %v", err)
	}
}
