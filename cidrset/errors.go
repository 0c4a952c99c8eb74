package cidrset

import (
	"errors"
	"net/netip"
	"time"
)

// The sentinels of this package, for errors.Is.
var (
	// ErrFull: no free child, or no free space of the length asked for.
	ErrFull = errors.New("no free space")
	// ErrCooling: there would be space, but it was given back too recently. The
	// [Error] says in Until when the next of it may be reused.
	ErrCooling = errors.New("free space is cooling")
	// ErrOutOfRange: the prefix is not in the pool.
	ErrOutOfRange = errors.New("not in the pool")
	// ErrMisaligned: the prefix is a part of a child.
	ErrMisaligned = errors.New("smaller than a child")
	// ErrBadPool: the pool is invalid, unmasked or 4-in-6.
	ErrBadPool = errors.New("bad pool")
	// ErrBadPrefix: the prefix is invalid, unmasked or 4-in-6.
	ErrBadPrefix = errors.New("bad prefix")
	// ErrBadBits: the prefix length is impossible for this pool.
	ErrBadBits = errors.New("bad prefix length")
	// ErrBadOption: an option that cannot be, or that contradicts another.
	ErrBadOption = errors.New("bad option")
	// ErrSnapshot: the bytes given to [Restore] are damaged or not a snapshot.
	ErrSnapshot = errors.New("bad snapshot")
)

// Error says which operation failed and on what. Its text names all of that; its
// Err is one of the sentinels, or wraps one.
type Error struct {
	Op     string       // "allocate", "occupy", "release", "new", "restore"
	Pool   netip.Prefix // the set's pool
	Prefix netip.Prefix // what was asked for; invalid if the caller named none
	Until  time.Time    // with ErrCooling: when the next child may be reused
	Err    error
}

// Error returns "cidrset: op prefix in pool: reason".
func (e *Error) Error() string {
	s := "cidrset: " + e.Op
	if e.Prefix != (netip.Prefix{}) {
		s += " " + e.Prefix.String()
	}
	if e.Pool != (netip.Prefix{}) {
		s += " in " + e.Pool.String()
	}
	s += ": " + e.Err.Error()
	if !e.Until.IsZero() {
		s += " until " + e.Until.UTC().Format(time.RFC3339Nano)
	}
	return s
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
