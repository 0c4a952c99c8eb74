package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// during calls f once, while a commit of s is in flight: its changes are made in memory, and none of its pages is written.
func during(s *Store, ops []store.Op, f func()) (err error) {
	real, once := bootID, f
	defer func() { bootID = real }()
	bootID = func() string {
		if f := once; f != nil {
			once = nil
			f()
		}
		return real()
	}
	_, err = s.Commit(context.Background(), ops)
	return err
}

// Older bytes over the file during a commit: the commit is not acknowledged, and it and every later call fail with ipalloc.ErrReplaced. The
// older bytes are a copy of the file 1 to 8 commits ago, or a file that had other commits since.
func TestOverwrittenInACommit(t *testing.T) {
	for commits := 1; commits <= 8; commits++ {
		for name, change := range map[string]func(s *Store, old []byte) error{
			"overwritten": func(s *Store, old []byte) error { return write(s.path, old, 0) },
			"copied over": func(s *Store, old []byte) error { return write(s.path, old, os.O_TRUNC) },
			"meta pages":  func(s *Store, old []byte) error { return write(s.path, old[:2*s.page], 0) },
			"cut":         func(s *Store, _ []byte) error { return os.Truncate(s.path, 2*s.page) },
			"first page":  func(s *Store, old []byte) error { return write(s.path, old[:s.page], 0) },
			"another past": func(s *Store, old []byte) error {
				return write(s.path, ahead(t, old, s.last.id-1), 0)
			},
		} {
			s := openT(t, Options{NoSync: true})
			for i := range 40 {
				if _, err := s.Commit(t.Context(), []store.Op{put(fmt.Sprint("before", i), "1", 0)}); err != nil {
					t.Fatal(err)
				}
			}
			old, err := os.ReadFile(s.path)
			if err != nil {
				t.Fatal(err)
			}
			for i := range commits {
				if _, err := s.Commit(t.Context(), []store.Op{put(fmt.Sprint("after", i), "1", 0)}); err != nil {
					t.Fatal(err)
				}
			}
			if name == "first page" && s.last.id%2 == 1 {
				continue // the commit writes that page itself
			}
			what := fmt.Sprintf("%s after %d commits", name, commits)
			err = during(s, []store.Op{put("during", "1", 0)}, func() {
				if err := change(s, old); err != nil {
					t.Error(err)
				}
			})
			if commits == 1 && name == "another past" {
				continue // it is the same past
			}
			if !errors.Is(err, ipalloc.ErrReplaced) {
				t.Errorf("%s: the commit: %v", what, err)
			}
			if _, err := s.Get(t.Context(), nil, "after0"); !errors.Is(err, ipalloc.ErrReplaced) {
				t.Errorf("%s: get: %v", what, err)
			}
			if _, err := s.Commit(t.Context(), []store.Op{put("later", "1", 0)}); !errors.Is(err, ipalloc.ErrReplaced) {
				t.Errorf("%s: the next commit: %v", what, err)
			}
			_ = s.Close()
			f, err := os.Open(s.path)
			if err != nil {
				t.Fatal(err)
			}
			if ours, err := lockFile(f, true); err != nil || !ours {
				t.Errorf("%s: Close keeps the lock: %v", what, err)
			}
			f.Close()
		}
	}
}

// Older bytes over the file while a list or a backup runs: it returns ipalloc.ErrReplaced and no records.
func TestOverwrittenInAList(t *testing.T) {
	for name, change := range map[string]func(s *Store, old []byte) error{
		"overwritten": func(s *Store, old []byte) error { return write(s.path, old, 0) },
		"meta pages":  func(s *Store, old []byte) error { return write(s.path, old[:2*s.page], 0) },
		"cut":         func(s *Store, _ []byte) error { return os.Truncate(s.path, 2*s.page) },
	} {
		for what, read := range map[string]func(s *Store, between func()) error{
			"list": func(s *Store, between func()) error {
				recs, _, err := s.List(stepping{t.Context(), between}, store.Range{})
				if err != nil && len(recs) > 0 {
					t.Errorf("%d records and %v", len(recs), err)
				}
				return err
			},
			"backup": func(s *Store, between func()) error {
				_, err := s.Backup(stepping{t.Context(), between}, io.Discard)
				return err
			},
		} {
			s := openT(t, Options{NoSync: true})
			var ops []store.Op
			for i := range 3 * checkEvery {
				ops = append(ops, put(fmt.Sprintf("k%06d", i), "1", 0))
			}
			if _, err := s.Commit(t.Context(), ops); err != nil {
				t.Fatal(err)
			}
			old, err := os.ReadFile(s.path)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if _, err := s.Commit(t.Context(), []store.Op{put("k000000", fmt.Sprint(i), store.AnyRevision)}); err != nil {
					t.Fatal(err)
				}
			}
			n := 0
			err = read(s, func() {
				if n++; n == 3 {
					if err := change(s, old); err != nil {
						t.Error(err)
					}
				}
			})
			if n < 3 || !errors.Is(err, ipalloc.ErrReplaced) {
				t.Errorf("%s in a %s, at look %d of its context: %v", name, what, n, err)
			}
			_ = s.Close()
		}
	}
}

// stepping is a context that calls f whenever a call looks at it.
type stepping struct {
	context.Context
	f func()
}

func (s stepping) Err() error { s.f(); return s.Context.Err() }
