package txn

import (
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
)

func newHints() *Hints { return &Hints{last: occ.NewRecent[alloc.Owner, *[2]netip.Prefix](8)} }

// Hints that are copied are those of every owner and family, and later changes of either side stay its own.
func TestHintsAreCopied(t *testing.T) {
	h, g := alloc.HostOwner("h"), alloc.HostOwner("g")
	four, other, six := netip.MustParsePrefix("10.0.0.0/28"), netip.MustParsePrefix("10.0.1.0/28"), netip.MustParsePrefix("fd00::/122")
	from, to := newHints(), newHints()
	from.Set(h, four)
	from.Set(h, six)
	from.Set(g, other)
	to.CopyFrom(from)
	from.Set(h, other)
	to.Set(g, four)
	for _, tt := range []struct {
		hints  *Hints
		owner  alloc.Owner
		family int
		want   netip.Prefix
	}{{to, h, 4, four}, {to, h, 6, six}, {to, g, 4, four}, {from, h, 4, other}, {from, g, 4, other}} {
		if got := tt.hints.Get(tt.owner, tt.family); got != tt.want {
			t.Errorf("%v, family %d: %v, want %v", tt.owner, tt.family, got, tt.want)
		}
	}
}
