package alloc

import (
	"net/netip"
	"time"
)

// Remembered is a record that the store keeps because a caller asked for it, other than a
// held address. It is the answer to a request key, the last addresses of a sticky handle,
// or a cooling address. Nothing else remains after an address is released.
type Remembered struct {
	Kind RememberedKind
	// Name is the request key, the sticky handle, or the handle that released a cooling
	// address.
	Name string
	// At is when the record was written, or when a cooling address began to cool.
	// Its age counts from here.
	At time.Time
	// Until is when a cooling address can be assigned again. Requests and sticky handles
	// do not expire at a fixed time.
	Until time.Time
	// Addresses lists the addresses of the answer or of the sticky handle, or the cooling
	// address.
	Addresses []netip.Addr
}

// RememberedKind is the kind of a [Remembered].
type RememberedKind uint8

const (
	// RememberedRequest is the answer to an AssignArgs.Request.
	RememberedRequest RememberedKind = iota + 1
	// RememberedSticky has the last addresses that a handle got with AssignArgs.Sticky or
	// Engine.Offer.
	RememberedSticky
	// RememberedCooling is an address in its cooldown, or a declined address.
	RememberedCooling
	// RememberedWithdrawn is a request key that Engine.Withdraw ended. Addresses lists the
	// addresses that are still to be released.
	RememberedWithdrawn
	// RememberedRename is an Operator.RenameHost that was interrupted. Name has both
	// names.
	RememberedRename
)

// String returns "request", "sticky", "cooling", "withdrawn" or "rename".
func (k RememberedKind) String() string {
	if k < RememberedRequest || k > RememberedRename {
		return "none"
	}
	return [...]string{"request", "sticky", "cooling", "withdrawn", "rename"}[k-1]
}
