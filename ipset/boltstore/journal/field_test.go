package journal_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
	"github.com/ipalloc/ipalloc/servicealloc"
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

// A program that drops the error of boltstore.Open passes a nil store.
func TestNilStore(t *testing.T) {
	pool, ctx := netip.MustParsePrefix("10.0.0.0/16"), t.Context()
	_, set := journal.OpenSet(ctx, nil, "x", pool, 24)
	_, addrs := journal.OpenRange(ctx, nil, "x", pool)
	_, ports := journal.OpenPorts(ctx, nil, "x", servicealloc.PortRange{First: 1, Last: 2})
	_, registry := journal.OpenRegistry(ctx, nil, "x", servicealloc.PortRange{First: 1, Last: 2})
	_, names := journal.Names(ctx, nil)
	for call, err := range map[string]error{
		"OpenSet": set, "OpenRange": addrs, "OpenPorts": ports, "OpenRegistry": registry, "Names": names, "Drop": journal.Drop(ctx, nil, "x"),
	} {
		var e *ipalloc.Error
		if !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field != "s" {
			t.Errorf("%s of a nil store: %v, want ErrInvalid with the Field s", call, err)
		}
	}
}
