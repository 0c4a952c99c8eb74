package ipset

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// Update refuses what is no plain address, and one that nobody holds.
func TestUpdateOfNoAddress(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	for _, tt := range []struct {
		at   netip.Addr
		want error
	}{
		{netip.Addr{}, ipalloc.ErrInvalid},
		{ip("::ffff:10.0.0.1"), ipalloc.ErrInvalid},
		{ip("fe80::1%eth0"), ipalloc.ErrInvalid},
		{ip("10.0.0.1"), ipalloc.ErrNotHeld},
		{ip("10.1.0.1"), ipalloc.ErrNotHeld},
	} {
		if err := w.Update(bg, alloc.UpdateArgs{Address: tt.at, Active: &alloc.Attributes{}}); !errors.Is(err, tt.want) {
			t.Errorf("%v: %v, want %v", tt.at, err, tt.want)
		}
	}
}
