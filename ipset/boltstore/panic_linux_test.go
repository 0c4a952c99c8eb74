package boltstore

import (
	"errors"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A panic while a transaction is committed leaves open whether the meta page was written: the outcome is unknown.
func TestPanicInACommit(t *testing.T) {
	s := openT(t, Options{NoSync: true})
	if _, err := s.Commit(t.Context(), []store.Op{put("a", "1", 0)}); err != nil {
		t.Fatal(err)
	}
	real := bootID
	bootID = func() string { panic("page 7 already freed") }
	_, err := s.Commit(t.Context(), []store.Op{put("a", "2", 1)})
	bootID = real
	if !errors.Is(err, ipalloc.ErrUnknownOutcome) || !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("%v", err)
	}
	if _, err := s.Commit(t.Context(), []store.Op{put("a", "2", 1)}); !errors.Is(err, ErrFailed) {
		t.Errorf("after that: %v", err)
	}
}
