package nodeipam

import (
	"errors"
	"net/netip"
	"strconv"
)

// The sentinels that this package shares with clustercidr, for errors.Is.
var (
	// ErrFull: a slot has no pool with a free child.
	ErrFull = errors.New("no free space")
	// ErrOutOfRange: the prefix is in no pool of its slot.
	ErrOutOfRange = errors.New("not in the pool")
	// ErrBadPool: the pool is invalid, unmasked or 4-in-6.
	ErrBadPool = errors.New("bad pool")
	// ErrBadPrefix: the prefix is invalid, unmasked or 4-in-6, or its text is no
	// prefix at all.
	ErrBadPrefix = errors.New("bad prefix")
	// ErrBadBits: the child length is impossible for a pool.
	ErrBadBits = errors.New("bad prefix length")
	// ErrBadOption: an option that cannot be, or that contradicts another.
	ErrBadOption = errors.New("bad option")
	// ErrSnapshot: the bytes given to [Restore] are damaged or not a snapshot.
	ErrSnapshot = errors.New("bad snapshot")
)

// The sentinels of this package, for errors.Is.
var (
	// ErrMisaligned: the prefix is in a pool but not one of its children: smaller
	// or larger.
	ErrMisaligned = errors.New("not of the size of a child")
	// ErrDuplicate: another owner holds the prefix or one that overlaps it.
	ErrDuplicate = errors.New("held by another owner")
	// ErrReserved: the prefix overlaps a reservation.
	ErrReserved = errors.New("overlaps a reservation")
	// ErrFamily: the prefix, or pool, is of the other family than its slot.
	ErrFamily = errors.New("of the other address family than its slot")
	// ErrTooMany: an owner has more prefixes than there are slots.
	ErrTooMany = errors.New("more prefixes than slots")
	// ErrListedTwice: a list of nodes has two with the same name.
	ErrListedTwice = errors.New("listed twice")
	// ErrBadOwner: the name of the owner is empty.
	ErrBadOwner = errors.New("empty name")
	// ErrHolds: the owner holds other prefixes than those named.
	ErrHolds = errors.New("holds other prefixes")
	// ErrNoSlot: there is no slot of that number, or none at all.
	ErrNoSlot = errors.New("no such slot")
	// ErrNoPool: no such pool, or a slot without one.
	ErrNoPool = errors.New("no such pool")
	// ErrOverlap: the pool overlaps another one.
	ErrOverlap = errors.New("overlaps another pool")
	// ErrInUse: owners hold prefixes of the pool.
	ErrInUse = errors.New("in use")
)

// Error says which operation failed, for whom and on what. Its text names all of
// that; its Err is one of the sentinels, or wraps one. The problems that
// [Allocator.Load] finds are of this type too.
type Error struct {
	Op     string       // "allocate", "occupy", "load", "add pool" and so on
	Owner  string       // the owner it is about, if any
	Slot   int          // the slot, or position in the owner's prefixes; -1 if none
	Pool   netip.Prefix // the pool, if it is about one
	Prefix netip.Prefix // the prefix, if it is about one that could be read
	Text   string       // with ErrBadPrefix: what could not be read
	Other  string       // with ErrDuplicate and ErrInUse: an owner in the way
	Err    error
}

// Error returns "nodeipam: op owner slot n prefix in pool: reason: other".
func (e *Error) Error() string {
	s := "nodeipam: " + e.Op
	if e.Owner != "" {
		s += " " + e.Owner
	}
	if e.Slot >= 0 {
		s += " slot " + strconv.Itoa(e.Slot)
	}
	if e.Prefix.IsValid() {
		s += " " + e.Prefix.String()
	} else if e.Text != "" {
		s += " " + strconv.Quote(e.Text)
	}
	if e.Pool.IsValid() {
		s += " in " + e.Pool.String()
	}
	s += ": " + e.Err.Error()
	if e.Other != "" {
		s += ": " + e.Other
	}
	return s
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
