package boltstore_test

import (
	"path/filepath"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/enginetest"
	"github.com/ipalloc/ipalloc/ipset/prefixes/prefixestest"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// open returns a store on a file of its own.
func open(t *testing.T, opts boltstore.Options) *boltstore.Store {
	t.Helper()
	return reopen(t, filepath.Join(t.TempDir(), "store.db"), opts)
}

// reopen returns the store in a file.
func reopen(t *testing.T, path string, opts boltstore.Options) *boltstore.Store {
	t.Helper()
	s, err := boltstore.Open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The one conformance suite, on a real file.
func TestConformance(t *testing.T) {
	storetest.TestStore(t, func(t *testing.T) store.Store { return open(t, boltstore.Options{}) })
}

// A space of it keeps the same contract, and serves an engine.
func TestInSpace(t *testing.T) {
	in := storetest.InSpace(func(t *testing.T) store.Store { return open(t, boltstore.Options{NoSync: true}) })
	storetest.TestStore(t, in)
	enginetest.Test(t, in)
}

// An engine on it. What syncing adds is time alone, which the rest of these tests spends.
func TestEngine(t *testing.T) {
	enginetest.Test(t, func(t *testing.T) store.Store { return open(t, boltstore.Options{NoSync: true}) })
}

// An allocator of prefixes on it.
func TestPrefixes(t *testing.T) {
	prefixestest.Test(t, func(t *testing.T) store.Store { return open(t, boltstore.Options{NoSync: true}) })
}
