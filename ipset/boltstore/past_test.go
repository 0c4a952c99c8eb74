package boltstore

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// What ends a process, and what does not.
func TestPast(t *testing.T) {
	storetest.TestPast(t, func(t *testing.T) storetest.Past {
		s := openT(t, Options{NoSync: true})
		old, err := os.ReadFile(s.Path())
		if err != nil {
			t.Fatal(err)
		}
		check := func(f func() error) func(*testing.T) {
			return func(t *testing.T) {
				if err := f(); err != nil {
					t.Fatal(err)
				}
			}
		}
		open := func(*testing.T) store.Store { return s }
		return storetest.Past{
			Open: open, Many: open,
			Same: map[string]func(*testing.T){
				"backup": check(func() error { _, err := s.Backup(t.Context(), io.Discard); return err }),
				"linked": check(func() error { return os.Link(s.Path(), s.Path()+".name") }),
			},
			Other: map[string]func(*testing.T){
				"moved":   check(func() error { return os.Rename(s.Path(), s.Path()+".old") }),
				"emptied": check(func() error { return os.Truncate(s.Path(), 0) }),
				"removed": check(func() error { return os.Remove(s.Path()) }),
				"restored": check(func() error {
					return errors.Join(os.WriteFile(s.Path()+".old", old, 0o600), os.Rename(s.Path()+".old", s.Path()))
				}),
				"overwritten": check(func() error {
					f, err := os.OpenFile(s.Path(), os.O_WRONLY, 0)
					if err != nil {
						return err
					}
					_, err = f.Write(old)
					return errors.Join(err, f.Close())
				}),
			},
		}
	})
}
