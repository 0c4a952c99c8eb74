package alloc

import (
	"net/netip"
	"time"
)

// Remembered is something that the store keeps because a caller asked for it, and that is no holding: the answer to a request key, the last
// addresses of a sticky handle, or an address that cools. Nothing else outlives a holding.
type Remembered struct {
	Kind RememberedKind
	// Name is the request key, or the sticky handle, or the handle that released a cooling address.
	Name string
	// At is when it was written, and of a cooling address when it began to cool. The age that Operator.Sweep looks at counts from here.
	At time.Time
	// Until is when a cooling address can be assigned again. Requests and sticky handles have no end of their own.
	Until time.Time
	// Addresses are those of the answer, or of the sticky handle, or the one that cools.
	Addresses []netip.Addr
}

// RememberedKind is what a [Remembered] is.
type RememberedKind uint8

const (
	// RememberedRequest is the answer to an AssignArgs.Request.
	RememberedRequest RememberedKind = iota + 1
	// RememberedSticky has the last addresses of a handle that was assigned them with AssignArgs.Sticky or Engine.Offer.
	RememberedSticky
	// RememberedCooling is an address in its cooldown, or one that was declined.
	RememberedCooling
)

// String returns "request", "sticky" or "cooling".
func (k RememberedKind) String() string {
	if k < RememberedRequest || k > RememberedCooling {
		return "none"
	}
	return [...]string{"request", "sticky", "cooling"}[k-1]
}
