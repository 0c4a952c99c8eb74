package servicealloc

import (
	"errors"
	"net/netip"
	"strings"
)

// What can go wrong, for [errors.Is]. [ErrFull] comes back bare where an allocation
// is a hot path; everywhere else the sentinel is wrapped in an [*Error] that says
// what was asked. Whatever the error, the state is what it was before the call.
var (
	// ErrFull: no free address or port is left in the bands that the engine may use.
	ErrFull = errors.New("full")
	// ErrOccupied: the named address or port is taken.
	ErrOccupied = errors.New("already taken")
	// ErrOutOfRange: the address or port is not one that the range hands out: outside
	// it, of the other family, or its network, broadcast or base address.
	ErrOutOfRange = errors.New("not a usable member of the range")
	// ErrReserved: the address or port lies in a sub-range taken out of circulation.
	ErrReserved = errors.New("reserved")
	// ErrDraining: the address is usable only in ranges that drain.
	ErrDraining = errors.New("only in ranges that drain")

	// ErrBadPrefix: a prefix is invalid, zoned, 4-in-6 or has host bits set.
	ErrBadPrefix = errors.New("bad prefix")
	// ErrBadPort: a port range is empty, begins at 0 or goes beyond 65535, or a
	// protocol is none of TCP, UDP and SCTP.
	ErrBadPort = errors.New("bad port")
	// ErrBadOption: an option is impossible for what is being built.
	ErrBadOption = errors.New("bad option")
	// ErrBadRequest: a request contradicts itself, or names no owner.
	ErrBadRequest = errors.New("bad request")

	// ErrExists: a range of that name is there already.
	ErrExists = errors.New("name is in use")
	// ErrNoRange: there is no range of that name.
	ErrNoRange = errors.New("no such range")
	// ErrInUse: addresses are held that no other range has usable.
	ErrInUse = errors.New("still in use")

	// ErrLimit: there would be more prefixes than the package allows.
	ErrLimit = errors.New("too many")

	// ErrNoOwner: the owner holds nothing.
	ErrNoOwner = errors.New("no such owner")
	// ErrMismatch: the owner holds something else than what is asked for.
	ErrMismatch = errors.New("owner holds something else")
	// ErrGeneration: the owner's grant has been replaced since the caller read it.
	ErrGeneration = errors.New("generation has moved on")

	// ErrSnapshot: bytes are no snapshot of this kind, damaged, or contradict themselves.
	ErrSnapshot = errors.New("bad snapshot")
)

// Error is the error of every operation that is not a bare [ErrFull]. Fields that do
// not apply are zero.
type Error struct {
	Op     string       // the operation, such as "allocate"
	Range  netip.Prefix // the range asked
	Name   string       // the name of the range asked
	Addr   netip.Addr   // the address asked for
	Port   Port         // the port asked for
	Owner  string       // who asked
	Holder string       // who stands in the way
	Detail string       // what is wrong, where the sentinel does not say it all
	Err    error        // the sentinel
}

// Error says what was asked and what stands in the way.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("servicealloc: ")
	b.WriteString(e.Op)
	for _, s := range []string{e.Name, e.addrText(), e.portText()} {
		if s != "" {
			b.WriteString(" " + s)
		}
	}
	if e.Range.IsValid() {
		b.WriteString(" in " + e.Range.String())
	}
	if e.Owner != "" {
		b.WriteString(" for " + e.Owner)
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	if e.Holder != "" {
		b.WriteString(" by " + e.Holder)
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	return b.String()
}

func (e *Error) addrText() string {
	if !e.Addr.IsValid() {
		return ""
	}
	return e.Addr.String()
}

func (e *Error) portText() string {
	if e.Port == (Port{}) {
		return ""
	}
	return e.Port.String()
}

// Unwrap gives the sentinel to [errors.Is].
func (e *Error) Unwrap() error { return e.Err }
