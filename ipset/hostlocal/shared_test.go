package hostlocal

import (
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/ipset"
)

// TestStoreSharedWithIPSet verifies that each of the two packages leaves the records of
// the other alone and reports none of them.
func TestStoreSharedWithIPSet(t *testing.T) {
	w := newWorld(t, subnets("10.1.2.0/24"))
	if _, err := w.Add(ctx, Attachment{"c1", "eth0"}); err != nil {
		t.Fatal(err)
	}
	e, err := ipset.New(w.store, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.AddPool(ctx, ipset.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.1.2.0/24"), BlockBits: 26}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Assign(ctx, ipset.HostOwner("node"), "pod"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r, err := e.Check(ctx, nil); err != nil || len(r.Problems) > 0 || r.Allocations != 1 {
			t.Errorf("ipset's check: %+v, %v", r, err)
		}
		if err := w.Check(ctx); err != nil {
			t.Error(err)
		}
		if freed, err := w.GC(ctx, nil); err != nil || len(freed) > 1 {
			t.Errorf("GC: %v, %v", freed, err)
		}
	}
}
