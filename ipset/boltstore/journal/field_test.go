package journal_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
)

// The argument that cidrset.New refuses is named by the error of OpenSet, too.
func TestOpenNamesTheField(t *testing.T) {
	s, err := boltstore.Open(t.Context(), filepath.Join(t.TempDir(), "file"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = journal.OpenSet(t.Context(), s, "set", netip.MustParsePrefix("10.0.0.0/16"), 8)
	var e *ipalloc.Error
	if !errors.As(err, &e) || e.Field == "" || e.Name != "set" || !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("OpenSet fails with %#v: %v", e, err)
	}
}
