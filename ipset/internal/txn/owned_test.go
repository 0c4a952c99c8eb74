package txn

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A key that names no owner is none of which anything is kept.
func TestOwnerOfNoName(t *testing.T) {
	c := occ.NewCache(1, record.ParseOwnerKey, readOwner)
	for _, key := range []string{record.KindOwner, record.OwnerKey(alloc.Owner{}), record.KindOwner + "x\x00"} {
		if cell, err := c.See(store.Record{Key: key}); cell != nil || !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%q: %v, %v", key, cell, err)
		}
	}
}

// Once it is written, the record of an owner of many blocks keeps no changes apart from its number.
func TestOwnerSettles(t *testing.T) {
	p := netip.MustParsePrefix("10.0.0.0/28")
	oe := &OwnerEntry{occ.NewVar(store.Record{}, record.Owned{N: record.MaxListed + 1}.With(p))}
	oe.Settle()
	if got := oe.Get(); got.N != record.MaxListed+2 || got.Listed() || len(got.All(nil)) != 0 {
		t.Errorf("%+v", got)
	}
}
