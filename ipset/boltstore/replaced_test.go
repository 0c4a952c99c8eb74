package boltstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A file that is moved, removed, replaced or overwritten under its owner: every call fails with ipalloc.ErrReplaced from the next one
// on, and what has the name now stays as it is.
func TestReplaced(t *testing.T) {
	calls := map[string]func(*Store) error{
		"get":  func(s *Store) error { _, err := s.Get(t.Context(), nil, "a"); return err },
		"list": func(s *Store) error { _, _, err := s.List(t.Context(), store.Range{}); return err },
		"commit": func(s *Store) error {
			_, err := s.Commit(t.Context(), []store.Op{put("x", "", store.AnyRevision)})
			return err
		},
		"guard":  func(s *Store) error { _, err := s.Commit(t.Context(), []store.Op{{Key: "none"}}); return err },
		"backup": func(s *Store) error { return s.Compact(t.Context(), filepath.Join(t.TempDir(), "copy")) },
	}
	for name, change := range map[string]func(path string, old []byte) error{
		"moved":   func(path string, _ []byte) error { return os.Rename(path, path+".old") },
		"removed": func(path string, _ []byte) error { return os.Remove(path) },
		"replaced": func(path string, old []byte) error {
			return errors.Join(os.WriteFile(path+".old", old, 0o600), os.Rename(path+".old", path))
		},
		"overwritten": func(path string, old []byte) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.Write(old)
			return errors.Join(err, f.Close())
		},
	} {
		for first, call := range calls {
			for _, commits := range []int{0, 1} {
				s := openT(t, Options{})
				if _, err := s.Commit(t.Context(), []store.Op{put("a", "1", 0)}); err != nil {
					t.Fatal(err)
				}
				old, err := os.ReadFile(s.Path())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Commit(t.Context(), []store.Op{put("b", "1", 0)}); err != nil {
					t.Fatal(err)
				}
				if commits == 0 { // since it was opened
					path := s.Path()
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					if s, err = Open(t.Context(), path, Options{}); err != nil {
						t.Fatal(err)
					}
				}
				ended := make(chan error)
				go func() {
					var err error
					for _, err = range s.Watch(context.Background(), s.watches.oldest+uint64(2*commits), "") {
					}
					ended <- err
				}()
				if err := change(s.Path(), old); err != nil {
					t.Fatal(err)
				}
				if err := call(s); !errors.Is(err, ipalloc.ErrReplaced) {
					t.Errorf("%s, first %s after %d commits: %v", name, first, commits, err)
				}
				if err := <-ended; !errors.Is(err, ipalloc.ErrReplaced) {
					t.Errorf("%s: watch: %v", name, err)
				}
				for then, call := range calls {
					if err := call(s); !errors.Is(err, ipalloc.ErrReplaced) {
						t.Errorf("%s, then %s: %v", name, then, err)
					}
				}
				_ = s.Close()
				if now, err := os.ReadFile(s.Path()); err == nil && string(now[:len(old)]) != string(old) {
					t.Errorf("%s: Close wrote to the file", name)
				}
			}
		}
	}
}

// Another working directory, a directory that may not be looked into any more, and other names of the file are no replacement.
func TestNotReplaced(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := Open(t.Context(), "store.db", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := errors.Join(os.Link("store.db", "other.db"), os.Chmod("store.db", 0o400)); err != nil {
		t.Fatal(err)
	}
	for _, op := range []store.Op{put("a", "", 0), {Kind: store.Delete, Key: "nothing", Expect: store.AnyRevision}, {Key: "none"}} {
		t.Chdir(t.TempDir())
		if _, err := s.Commit(t.Context(), []store.Op{op}); err != nil {
			t.Error(err)
		}
		if _, err := s.Get(t.Context(), nil, "a"); err != nil {
			t.Error(err)
		}
	}
}
