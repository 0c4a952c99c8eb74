package txn

import (
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Once it is written, the record of an owner keeps no changes apart from its blocks.
func TestOwnerSettles(t *testing.T) {
	p := netip.MustParsePrefix("10.0.0.0/28")
	oe := &OwnerEntry{occ.NewVar(store.Record{}, record.Owned{}.With(p))}
	oe.Settle()
	if got := oe.Get(); got.N != 1 || len(got.Blocks) != 1 || len(got.All(nil)) != 0 {
		t.Errorf("%+v", got)
	}
}
