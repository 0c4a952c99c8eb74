package boltstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestEmptyImage: the file of a new store is what this package and bbolt take for one,
// whole and with every page in use or free, whatever the size of a page.
func TestEmptyImage(t *testing.T) {
	for _, pageSize := range []int{minPage, 4096, 16384, 65536} {
		path := filepath.Join(t.TempDir(), "new.db")
		want := state{rev: 0, boot: "boot"}
		if err := os.WriteFile(path, emptyImage(pageSize, want), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), path, Options{Verify: VerifyAlways})
		if err != nil {
			t.Fatalf("page size %d: %v", pageSize, err)
		}
		if s.state != want {
			t.Errorf("page size %d: state %+v", pageSize, s.state)
		}
		if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "a", Value: "1"}}); err != nil {
			t.Fatal(err)
		}
		if err := s.db.View(func(tx *bbolt.Tx) error {
			for err := range tx.Check() {
				t.Errorf("page size %d: %v", pageSize, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(t.Context(), path, Options{Verify: VerifyAlways, NoSync: true, InitialMap: 1}); err != nil {
			t.Fatal(err)
		}
		big := strings.Repeat("x", 1<<20) // outgrows the map
		if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "b", Value: big}}); err != nil {
			t.Fatal(err)
		}
		// Abandon gives the file back, to this process as well, and ends the store.
		if err := s.Abandon(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), nil, "b"); !errors.Is(err, ipalloc.ErrClosed) {
			t.Error(err)
		}
		again, err := Open(t.Context(), path, Options{Verify: VerifyAlways})
		if err != nil {
			t.Fatal(err)
		}
		if recs, err := again.Get(t.Context(), nil, "a", "b"); err != nil || recs[0].Value != "1" || recs[1].Value != big {
			t.Error(err)
		}
		if err := errors.Join(s.Close(), again.Close(), again.Abandon()); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(t.Context(), filepath.Join(t.TempDir(), "x"), Options{InitialMap: -1}); err == nil {
		t.Error("a map of -1 bytes")
	}
}

// TestBoot verifies that the boot that the caller names is recorded, and decides whether
// VerifyRestart reads the file.
func TestBoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for _, boot := range []string{"a", "a", "b", ""} {
		s, err := Open(t.Context(), path, Options{Boot: boot})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "k", Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
		if boot == "" {
			boot = bootID()
		}
		if s.state.boot != boot {
			t.Errorf("recorded %q, want %q", s.state.boot, boot)
		}
		for _, now := range []string{boot, "another"} {
			o := Options{Verify: VerifyRestart, Boot: now}
			if o.due(1, s.state.boot) != (now != boot) {
				t.Errorf("at %q after %q: due %t", now, boot, now == boot)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(t.Context(), path, Options{Boot: strings.Repeat("x", maxBoot+1)}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
}
