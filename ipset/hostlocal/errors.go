package hostlocal

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// What can go wrong, for [errors.Is]. Every error but those of a context and of the store is an [*Error] around one of
// these. Whatever the error, the state is what it was before the call.
var (
	// ErrFull: a set has no free address.
	ErrFull = errors.New("no free address")
	// ErrExists: the attachment holds an address of a set already.
	ErrExists = errors.New("already holds an address")
	// ErrOccupied: the named address is taken.
	ErrOccupied = errors.New("already taken")
	// ErrReserved: the named address is the gateway of its range.
	ErrReserved = errors.New("is the gateway")
	// ErrOutOfRange: the named address lies in no set, or in one that another named address is taken from.
	ErrOutOfRange = errors.New("in no set that still gives an address")
	// ErrNoRanges: there is no range set to allocate from.
	ErrNoRanges = errors.New("no range sets")

	// ErrNotFound: the attachment holds nothing.
	ErrNotFound = errors.New("holds nothing")
	// ErrMismatch: the attachment holds other addresses than those named.
	ErrMismatch = errors.New("holds other addresses")

	// ErrBadPrefix: a subnet is invalid, unmasked or 4-in-6.
	ErrBadPrefix = errors.New("bad subnet")
	// ErrTooSmall: a subnet has less than four addresses, or a set has no range.
	ErrTooSmall = errors.New("too small to allocate from")
	// ErrBadRange: the first or last address of a range is not in the subnet, or they are in the wrong order.
	ErrBadRange = errors.New("bad range")
	// ErrFamily: a set mixes address families.
	ErrFamily = errors.New("mixed address families")
	// ErrOverlap: two ranges share addresses.
	ErrOverlap = errors.New("ranges overlap")
	// ErrBadAddress: an address is invalid, zoned or 4-in-6.
	ErrBadAddress = errors.New("bad address")
	// ErrBadName: the name of a network, a container or an interface is empty, too long or holds a NUL byte.
	ErrBadName = errors.New("bad name")
	// ErrBadOption: an option that cannot be, or that contradicts another.
	ErrBadOption = errors.New("bad option")

	// ErrRecord: a record of the store is damaged, or contradicts another.
	ErrRecord = errors.New("damaged record")
)

// Error says which operation failed on what. It wraps one of the sentinels of this package. Fields that do not apply are
// zero, Set and Other apart.
type Error struct {
	Op         string     // "add", "verify", ...
	Network    string     // the network
	Attachment Attachment // the attachment that is served
	Set        int        // the number of the range set; -1 if none is meant
	Range      int        // the number of the range in it; -1 if none is meant
	Other      int        // the number of the other set or range that it overlaps; -1 if there is none
	Address    netip.Addr // the address that is meant
	Addresses  []netip.Addr
	Holder     Attachment // who has the address
	Text       string     // more of the reason
	Err        error
}

func (e *Error) Error() string {
	var s strings.Builder
	s.WriteString("hostlocal: ")
	s.WriteString(e.Op)
	if e.Network != "" {
		fmt.Fprintf(&s, " %s", e.Network)
	}
	if e.Attachment != (Attachment{}) {
		fmt.Fprintf(&s, " %s", e.Attachment)
	}
	if e.Set >= 0 {
		fmt.Fprintf(&s, " set %d", e.Set)
	}
	if e.Range >= 0 {
		fmt.Fprintf(&s, " range %d", e.Range)
	}
	s.WriteString(":")
	if e.Address.IsValid() {
		fmt.Fprintf(&s, " %s", e.Address)
	}
	for _, a := range e.Addresses {
		fmt.Fprintf(&s, " %s", a)
	}
	fmt.Fprintf(&s, " %s", e.Err)
	if e.Other >= 0 {
		fmt.Fprintf(&s, " with %d", e.Other)
	}
	if e.Holder != (Attachment{}) {
		fmt.Fprintf(&s, " by %s", e.Holder)
	}
	if e.Text != "" {
		fmt.Fprintf(&s, ": %s", e.Text)
	}
	return s.String()
}

// Unwrap returns the sentinel.
func (e *Error) Unwrap() error { return e.Err }

// fault returns an Error about no set, range or other.
func fault(op string, err error) *Error {
	return &Error{Op: op, Set: -1, Range: -1, Other: -1, Err: err}
}
