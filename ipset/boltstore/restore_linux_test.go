package boltstore_test

import (
	"bytes"
	"errors"
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
