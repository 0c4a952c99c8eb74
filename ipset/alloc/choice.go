package alloc

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/internal/choose"
)

// Choice says which of the free addresses an assignment takes. The zero value leaves it to the order of the pools. Choices
// exclude each other, so a call has one. Choices are comparable.
type Choice choose.Choice

// Prefer asks for an address that a client would like, as in option 50 of DHCP. It is assigned if automatic assignment could
// choose it, so ranges, reservations, selectors and limits apply; otherwise another address is
// assigned. It takes precedence over the last addresses of a Sticky handle. The zero Addr is no preference.
func Prefer(a netip.Addr) Choice { return at(choose.Prefer, a) }

// From asks for the next free addresses at or after an address, for a server that assigns in sequence. It takes the lowest of the
// address's family that automatic assignment may choose, from blocks of any owner, and none below. Pools of one priority are
// searched in address order. The last addresses of a Sticky handle come first. The zero Addr
// is no choice.
//
// Cost: three round trips, and one more for each 64 blocks with room that are passed over.
func From(a netip.Addr) Choice { return at(choose.From, a) }

// at returns a choice that names an address, the zero Choice for the zero Addr.
func at(k choose.Kind, a netip.Addr) Choice {
	if a == (netip.Addr{}) {
		return Choice{}
	}
	return Choice(choose.Of(k, a))
}

// Contiguous asks for consecutive addresses: those of a family come from one block, in a row, all or none. The block is one of
// the owner's, or one that the owner claims or takes over; nothing is borrowed. In any Order of the pool the lowest run that
// fits is taken. Contiguous excludes Partial and Sticky. Repeating a Request fails if some of its addresses
// have been released.
//
// Cost: O(spans log spans) of the free queue for each block examined.
func Contiguous() Choice { return Choice(choose.Of(choose.Contiguous, netip.Addr{})) }

// Aligned is Contiguous with addresses that make up a prefix, such as a /29 of a block of /26: their number is a power of two,
// and the first is a multiple of it.
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
