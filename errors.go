package ipalloc

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// The sentinels that every package returns, for [errors.Is]. Each error matches a
// sentinel and is, or wraps, an [*Error].
var (
	// ErrInvalid means an argument, option or configuration field is impossible;
	// Error.Field names it.
	ErrInvalid = errors.New("invalid argument")
	// ErrFull means nothing that fits the request is free.
	ErrFull = errors.New("full")
	// ErrCooling means everything that fits was released too recently; Error.Until tells
	// when the next part of it becomes free.
	ErrCooling = errors.New("cooling")
	// ErrOccupied means the named prefix, address or port, or a part of it, is taken.
	ErrOccupied = errors.New("occupied")
	// ErrNotHeld means the owner does not hold the address, prefix or grant in question.
	ErrNotHeld = errors.New("not held")
	// ErrOutOfRange means the named prefix, address or port is not in the pool or range,
	// or has a size that the pool does not allocate. From a watch it means that the store
	// no longer has the commits after the given revision: list, and watch from there.
	ErrOutOfRange = errors.New("out of range")
	// ErrReserved means the named prefix or address overlaps a reservation, or only
	// reserved ones are left.
	ErrReserved = errors.New("reserved")
	// ErrExists means something else of that name already exists.
	ErrExists = errors.New("exists")
	// ErrNotFound means nothing of that name exists, or no entry matches.
	ErrNotFound = errors.New("not found")
	// ErrInUse means the pool, range or block still has holders, or is being drained.
	ErrInUse = errors.New("in use")
	// ErrMismatch means the state differs from the caller's expectation: another holder,
	// generation, pool or kind.
	ErrMismatch = errors.New("mismatch")
	// ErrVersion means another version of this module, usually a newer one, wrote the data in a form that this
	// version does not read.
	ErrVersion = errors.New("unknown version")
	// ErrReplaced means the store was exchanged for another one after it was opened, or
	// went back to an earlier state. Nothing was read or committed. Data read from it
	// before is invalid: open the store again, and make new engines for it.
	ErrReplaced = errors.New("the store was replaced")
	// ErrLimit means a documented or configured limit would be exceeded.
	ErrLimit = errors.New("limit exceeded")
	// ErrConflict means another writer changed a record first, or a server refused the
	// write. Nothing changed. Repeat the call.
	ErrConflict = errors.New("conflict")
	// ErrUnknownOutcome means the change may or may not have been made.
	ErrUnknownOutcome = errors.New("unknown outcome")
	// ErrCorrupt means stored bytes are damaged or contradict themselves.
	ErrCorrupt = errors.New("corrupt")
	// ErrClosed means the store or controller was closed.
	ErrClosed = errors.New("closed")
)

// Error names the failed call, its arguments and the reason. Fields that do not apply are
// zero.
//
// An allocator may return the same *Error many times, so that reporting a full pool
// costs no allocation. Callers must not modify it.
type Error struct {
	Package string // "cidrset"
	Op      string // "allocate", "occupy", "new", "restore" and so on

	Owner  string       // the node, service, host or attachment the call is for
	Handle string       // the handle the call is for
	Field  string       // the argument, configuration field or slot, such as "Slots[1].Bits"
	Prefix netip.Prefix // the prefix asked for
	Addr   netip.Addr   // the address asked for
	Port   uint16       // the port asked for
	Bits   int          // the prefix length asked for, if no prefix is named
	Text   string       // what was given instead, if it could not be read
	Pool   netip.Prefix // the pool or range it was asked of
	Name   string       // the name of the pool, range, entry or record

	InTheWay netip.Prefix // the first prefix that stands in the way
	Holder   string       // who holds what stands in the way
	Until    time.Time    // with ErrCooling: when the next of it becomes free

	Reason string // replaces the text of Err in the message, if not empty
	Err    error  // a sentinel of this package, or an error that wraps one
}

// Error returns one line: the package, the call, its arguments, the pool, the wrong
// argument, and the reason:
//
//	cidrset: allocate /22 in 10.0.0.0/16: no free prefix of that length (largest is /23)
//	ipset: drain "pods": no such pool
//	ipset: add pool 10.0.0.0/24 in "pods": BlockBits: /20 is not from /24 to /32
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Package + ": " + e.Op)
	asked := false
	for _, s := range []string{prefixText(e.Prefix), addrText(e.Addr), e.numbers(), quoted(e.Text), labeled("handle", e.Handle), labeled("for", e.Owner)} {
		if s != "" {
			b.WriteString(" " + s)
			asked = true
		}
	}
	if in := strings.TrimSpace(quoted(e.Name) + " " + prefixText(e.Pool)); in != "" {
		if asked || e.Pool.IsValid() {
			b.WriteString(" in")
		}
		b.WriteString(" " + in)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	b.WriteString(": ")
	switch {
	case e.Reason != "":
		b.WriteString(e.Reason)
	case e.Err != nil:
		b.WriteString(e.Err.Error())
	default:
		b.WriteString("failed")
	}
	if at := prefixText(e.InTheWay); at != "" {
		b.WriteString(" at " + at)
	}
	if e.Holder != "" {
		b.WriteString(", held by " + strconv.Quote(e.Holder))
	}
	if !e.Until.IsZero() {
		b.WriteString(" until " + e.Until.UTC().Format(time.RFC3339Nano))
	}
	return b.String()
}

// numbers returns the port and the prefix length in the arguments.
func (e *Error) numbers() string {
	var s []string
	if e.Port != 0 {
		s = append(s, "port "+strconv.Itoa(int(e.Port)))
	}
	if e.Bits != 0 {
		s = append(s, "/"+strconv.Itoa(e.Bits))
	}
	return strings.Join(s, " ")
}

func prefixText(p netip.Prefix) string {
	if p == (netip.Prefix{}) {
		return ""
	}
	return p.String()
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func labeled(label, s string) string {
	if s == "" {
		return ""
	}
	return label + " " + strconv.Quote(s)
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return strconv.Quote(s)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
