package cause

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/ipalloc/ipalloc"
)

// cause is an obstacle to a call, in words. It matches a sentinel of package ipalloc.
type cause struct {
	text string
	is   error
}

func (c *cause) Error() string { return c.text }

func (c *cause) Unwrap() error { return c.is }

// Causes of arguments and configuration.
var (
	BadAddress         = Invalid("Address", "not a plain IPv4 or IPv6 address")
	BadBlockSize error = &cause{"block size does not fit", ipalloc.ErrInvalid}
	UnknownUse         = Invalid("Use", "unknown use")
	LooseEnds          = Invalid("Blocks.Head", "addresses are reserved for the host only with strict affinity")
	UnknownOwner error = &cause{"no such owner", ipalloc.ErrNotFound}
	UnknownPool  error = &cause{"no such pool", ipalloc.ErrNotFound}
	PoolExists   error = &cause{"a pool of that name exists", ipalloc.ErrExists}
	Overlap      error = &cause{"another pool has that prefix", ipalloc.ErrExists}
	Copied       error = &cause{"the store is being copied into: repeat the copy, or empty the store", ipalloc.ErrInUse}
)

// Causes of an assignment, a claim or a release.
var (
	NoPool     error = &cause{"no pool qualifies", ipalloc.ErrNotFound}
	Closed     error = &cause{"the pool is closed until an operator opens it", ipalloc.ErrReserved}
	Outside    error = &cause{"no pool has the address", ipalloc.ErrNotFound}
	KeptBack   error = &cause{"reserved, or outside of the ranges of its pool", ipalloc.ErrReserved}
	NotNamed   error = &cause{"the call names other pools", ipalloc.ErrNotFound}
	Short      error = &cause{"not enough addresses", ipalloc.ErrFull}
	Cooling    error = &cause{"not enough addresses", ipalloc.ErrCooling}
	Reserved   error = &cause{"not enough addresses", ipalloc.ErrReserved}
	Limited    error = &cause{"not enough addresses", ipalloc.ErrLimit}
	Strict     error = &cause{"the block is another owner's and affinity is strict", ipalloc.ErrOccupied}
	Claimed    error = &cause{"the block is another owner's", ipalloc.ErrOccupied}
	Covered    error = &cause{"a block that exists is in the way", ipalloc.ErrOccupied}
	BlockLimit error = &cause{"the owner has as many blocks as it may have", ipalloc.ErrLimit}
	PoolHeld   error = &cause{"addresses of the pool are held", ipalloc.ErrInUse}
	NotEmpty   error = &cause{"addresses of the block are held", ipalloc.ErrInUse}
	Torn       error = &cause{"a part of the addresses in a row has been released", ipalloc.ErrMismatch}
	Owner      error = &cause{"held by another, or with other attributes", ipalloc.ErrMismatch}
	HostExists error = &cause{"the new name has blocks or addresses", ipalloc.ErrExists}
	IsKept     error = &cause{"the address is kept for its handle", ipalloc.ErrMismatch}
	Withdrawn  error = &cause{"the request was withdrawn", ipalloc.ErrMismatch}
	Moved      error = &cause{"the handle has moved to another host", ipalloc.ErrMismatch}
	CoHeld     error = &cause{"others hold the address as well", ipalloc.ErrInUse}
	Exhausted  error = &cause{"sequence numbers are exhausted", ipalloc.ErrLimit}
)

// IsConflict reports whether a commit met a conflict.
func IsConflict(err error) bool { return errors.Is(err, ipalloc.ErrConflict) }

// Invalid returns the error of an impossible argument. [Wrap] adds the call.
func Invalid(field, format string, args ...any) error {
	return &ipalloc.Error{Package: "ipset", Field: field, Reason: fmt.Sprintf(format, args...), Err: ipalloc.ErrInvalid}
}

// As sets the field of an error about an argument. It returns any other error as it is.
func As(field string, err error) error {
	in := (*ipalloc.Error)(nil)
	if !errors.As(err, &in) || !errors.Is(err, ipalloc.ErrInvalid) {
		return err
	}
	e := *in
	e.Package, e.Field = "ipset", field
	return &e
}

// Op adds the name of the call to an error. It returns nil for nil.
func Op(op string, err error) error {
	if err == nil {
		return nil
	}
	return Wrap(ipalloc.Error{Op: op, Err: err})
}

// Of adds the name of the call and its handle to an error. It returns nil for nil.
func Of(op, handle string, err error) error {
	if err == nil {
		return nil
	}
	return Wrap(ipalloc.Error{Op: op, Handle: handle, Err: err})
}

// Each returns a list, with the name of the call added to its errors.
func Each[T any](op string, list iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for x, err := range list {
			if !yield(x, Op(op, err)) {
				return
			}
		}
	}
}

// Wrap returns the error of a call. If e.Err is an [ipalloc.Error] of package ipset already, e sets its Op and fills in
// only its empty fields, so that no text repeats itself.
func Wrap(e ipalloc.Error) error {
	e.Package = "ipset"
	in, ok := e.Err.(*ipalloc.Error)
	if !ok || in.Package != e.Package {
		return &e
	}
	both := *in
	both.Op = e.Op
	for _, f := range [...]struct {
		to   *string
		from string
	}{{&both.Owner, e.Owner}, {&both.Handle, e.Handle}, {&both.Field, e.Field}, {&both.Name, e.Name}, {&both.Holder, e.Holder}} {
		if *f.to == "" {
			*f.to = f.from
		}
	}
	if !both.Prefix.IsValid() {
		both.Prefix = e.Prefix
	}
	if !both.Addr.IsValid() {
		both.Addr = e.Addr
	}
	if !both.InTheWay.IsValid() {
		both.InTheWay = e.InTheWay
	}
	return &both
}

// MaxName bounds names so that every key fits the stores (bbolt: 32 KiB, etcd: far more) with room for what precedes it.
const MaxName = 1024

// Name refuses a name that cannot be a part of a key: NUL ends a handle in its index key.
func Name(what, name string) error {
	reason := ""
	switch {
	case name == "":
		reason = "it is empty"
	case len(name) > MaxName:
		reason = fmt.Sprintf("%d bytes, at most %d", len(name), MaxName)
	case strings.IndexByte(name, 0) >= 0:
		reason = "it holds a NUL byte"
	default:
		return nil
	}
	return &ipalloc.Error{Package: "ipset", Op: "check", Field: what, Reason: reason, Err: ipalloc.ErrInvalid}
}
