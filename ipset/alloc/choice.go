package alloc

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/internal/choose"
)

// Choice selects among the free addresses of an assignment. The zero value leaves the
// choice to the order of the pools. A call has at most one choice. Choices are
// comparable.
type Choice choose.Choice

// Prefer prefers an address that a client requests, as in option 50 of DHCP. It is
// assigned if automatic assignment could choose it, so ranges, reservations, selectors
// and limits apply. Otherwise another address is assigned. It takes precedence over the
// last addresses of a Sticky handle. The zero Addr is no preference.
func Prefer(a netip.Addr) Choice { return at(choose.Prefer, a) }

// From selects the next free addresses at or after a, for a server that assigns in
// sequence. In the family of a, it takes the lowest addresses that automatic assignment
// may choose and that are not below a, in blocks of any owner. Pools of one priority are
// searched in address order. The addresses that a Sticky handle held last take
// precedence. The zero Addr is no choice.
//
// Cost: three round trips, and one more for each 64 blocks with room that are skipped.
func From(a netip.Addr) Choice { return at(choose.From, a) }

// at returns a choice with an address, the zero Choice for the zero Addr.
func at(k choose.Kind, a netip.Addr) Choice {
	if a == (netip.Addr{}) {
		return Choice{}
	}
	return Choice(choose.Of(k, a))
}

// Contiguous selects consecutive addresses. All addresses of a family are in one block,
// in a row, or the call assigns none. The block is the owner's own, or the owner claims
// it or takes it over; nothing is borrowed. It takes the lowest run that fits, in any
// Order of the pool. Contiguous excludes Partial and Sticky. Repeating a Request fails if
// some of its addresses have been released.
//
// Cost: O(spans log spans) of the free queue for each block examined.
func Contiguous() Choice { return Choice(choose.Of(choose.Contiguous, netip.Addr{})) }

// Aligned is Contiguous with addresses that make up a prefix, such as a /29 in a block of
// /26. Their number is a power of two, and the first is a multiple of it.
func Aligned() Choice { return Choice(choose.Of(choose.Aligned, netip.Addr{})) }

// String returns "prefer 10.0.0.9", "from 10.0.0.9", "contiguous" or "aligned", and "" for the zero Choice.
func (c Choice) String() string {
	d := choose.Choice(c)
	s := [...]string{"", "prefer ", "from ", "contiguous", "aligned"}[d.Kind()]
	if k := d.Kind(); k == choose.Prefer || k == choose.From {
		s += d.At().String()
	}
	return s
}
