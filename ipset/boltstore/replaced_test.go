package boltstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// write writes over a file as `cat data >path` does once it has opened it, or over the beginning of what is there.
func write(path string, data []byte, flag int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|flag, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// ahead returns a file that began as old does and had other commits, up to a transaction.
func ahead(t *testing.T, old []byte, last int) []byte {
	path := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), path, Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for s.last.id < last {
		if _, err := s.Commit(t.Context(), []store.Op{put("b", "other", store.AnyRevision)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A file that is moved, removed, replaced or overwritten under its owner, by whatever: every call fails with ipalloc.ErrReplaced from the
// next one on, none of them hangs, and what has the name now stays as it is.
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
	for name, change := range map[string]func(s *Store, old []byte) error{
		"moved":   func(s *Store, _ []byte) error { return os.Rename(s.path, s.path+".old") },
		"removed": func(s *Store, _ []byte) error { return os.Remove(s.path) },
		"replaced": func(s *Store, old []byte) error {
			return errors.Join(os.WriteFile(s.path+".old", old, 0o600), os.Rename(s.path+".old", s.path))
		},
		"overwritten": func(s *Store, old []byte) error { return write(s.path, old, 0) },
		"copied over": func(s *Store, old []byte) error { return write(s.path, old, os.O_TRUNC) },
		"the same number of commits": func(s *Store, old []byte) error {
			return write(s.path, ahead(t, old, s.last.id), os.O_TRUNC)
		},
		"one more":                 func(s *Store, old []byte) error { return write(s.path, ahead(t, old, s.last.id+1), os.O_TRUNC) },
		"more":                     func(s *Store, old []byte) error { return write(s.path, ahead(t, old, s.last.id+5), os.O_TRUNC) },
		"zeroed":                   func(s *Store, old []byte) error { return write(s.path, make([]byte, len(old)), 0) },
		"emptied":                  func(s *Store, _ []byte) error { return write(s.path, nil, os.O_TRUNC) },
		"cut":                      func(s *Store, old []byte) error { return write(s.path, old[:s.page], os.O_TRUNC) },
		"cut after its meta pages": func(s *Store, old []byte) error { return os.Truncate(s.path, 2*s.page) },
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
				ended := make(chan error, 1)
				go func() {
					var err error
					for _, err = range s.Watch(context.Background(), s.watches.oldest+uint64(2*commits), "") {
					}
					ended <- err
				}()
				if err := change(s, old); err != nil {
					t.Fatal(err)
				}
				changed, _ := os.ReadFile(s.path) // of no file if that has gone
				if err := call(s); !errors.Is(err, ipalloc.ErrReplaced) {
					t.Errorf("%s, first %s after %d commits: %v", name, first, commits, err)
				}
				select {
				case err := <-ended:
					if !errors.Is(err, ipalloc.ErrReplaced) {
						t.Errorf("%s: watch: %v", name, err)
					}
				case <-time.After(time.Minute):
					t.Fatalf("%s: the watch goes on", name)
				}
				for then, call := range calls {
					if err := call(s); !errors.Is(err, ipalloc.ErrReplaced) {
						t.Errorf("%s, then %s: %v", name, then, err)
					}
				}
				_ = s.Close()
				if f, err := os.Open(s.path); err == nil {
					if ours, err := lockFile(f, true); err != nil || !ours {
						t.Errorf("%s: Close keeps the lock: %v", name, err)
					}
					f.Close()
				}
				if now, _ := os.ReadFile(s.path); string(now) != string(changed) {
					t.Errorf("%s: a call or Close wrote to the file", name)
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
