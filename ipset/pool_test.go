package ipset

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A name that is no UTF-8 is refused: JSON, in which the catalog is kept, would write two of them alike, and no engine could
// read the catalog any more.
func TestPoolNameUTF8(t *testing.T) {
	e, err := New(store.NewMemory(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for i, name := range []string{"a", "b", "π"} {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24)
		if err := e.AddPool(ctx, Pool{Name: name, Prefix: p}); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"add":   e.AddPool(ctx, Pool{Name: "\xff", Prefix: netip.MustParsePrefix("10.1.0.0/24")}),
		"merge": e.Operator().MergePools(ctx, "\xff", "a", "b"),
	} {
		if got := new(ipalloc.Error); !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &got) || got.Field != "pool" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if pools, err := e.Pools(ctx); err != nil || len(pools) != 3 {
		t.Errorf("%d pools, %v", len(pools), err)
	}
}
