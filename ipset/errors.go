package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc"
)

// ErrRecord means that a record in the store is damaged.
var ErrRecord = errors.New("ipset: damaged record")

// Errors of arguments and configuration.
var (
	ErrBadPrefix    = errors.New("ipset: not a masked prefix")
	ErrBadAddress   = errors.New("ipset: not an address this can serve")
	ErrBadName      = errors.New("ipset: bad name")
	ErrBadBlockSize = errors.New("ipset: block size does not fit")
	ErrBadConfig    = errors.New("ipset: configuration contradicts itself")
	ErrBadArgument  = errors.New("ipset: bad argument")
	ErrUnknownUse   = errors.New("ipset: unknown use")
	ErrUnknownHost  = errors.New("ipset: unknown host")
	ErrUnknownPool  = errors.New("ipset: unknown pool")
	ErrPoolExists   = errors.New("ipset: pool exists")
	ErrOverlap      = errors.New("ipset: pools overlap")
)

// Errors of an assignment or a release.
var (
	ErrNoPool     = errors.New("ipset: no pool qualifies")
	ErrShort      = errors.New("ipset: not enough addresses")
	ErrOccupied   = errors.New("ipset: address is taken")
	ErrCooling    = errors.New("ipset: address is cooling")
	ErrReserved   = errors.New("ipset: address is reserved for the host")
	ErrNotFound   = errors.New("ipset: not assigned")
	ErrStrict     = errors.New("ipset: strict affinity forbids it")
	ErrLimit      = errors.New("ipset: block limit reached")
	ErrNotEmpty   = errors.New("ipset: block is not empty")
	ErrOwner      = errors.New("ipset: owned by another")
	ErrContention = errors.New("ipset: gave up after repeated conflicts")
	ErrExhausted  = errors.New("ipset: sequence numbers exhausted")
)

// isConflict reports whether a commit met a conflict.
func isConflict(err error) bool { return errors.Is(err, ipalloc.ErrConflict) }

// Error says which operation failed on what. It wraps one of the sentinels of this package or the store's own error.
type Error struct {
	Op      string       // the verb: "assign", "release", ...
	Pool    string       // the pool's name, if one is meant
	Prefix  netip.Prefix // the block or range, if one is meant
	Address netip.Addr   // the address, if one is meant
	Owner   string       // the host or handle that stands in the way, or that asked
	Err     error
}

func (e *Error) Error() string {
	var s strings.Builder
	s.WriteString("ipset: ")
	s.WriteString(e.Op)
	if e.Pool != "" {
		fmt.Fprintf(&s, " pool %s", e.Pool)
	}
	if e.Prefix.IsValid() {
		fmt.Fprintf(&s, " %s", e.Prefix)
	}
	if e.Address.IsValid() {
		fmt.Fprintf(&s, " %s", e.Address)
	}
	if e.Owner != "" {
		fmt.Fprintf(&s, " (%s)", e.Owner)
	}
	s.WriteString(": ")
	s.WriteString(strings.TrimPrefix(e.Err.Error(), "ipset: "))
	return s.String()
}

// Unwrap returns the sentinel or the store's error.
func (e *Error) Unwrap() error { return e.Err }

// maxName bounds names so that every key fits the stores (bbolt: 32 KiB, etcd: far more) with room for what precedes it.
const maxName = 1024

// checkName refuses what cannot be a part of a key: NUL ends a handle in its index key.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: empty %s", ErrBadName, what)
	case len(name) > maxName:
		return fmt.Errorf("%w: %s of %d bytes, at most %d", ErrBadName, what, len(name), maxName)
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("%w: %s %q holds a NUL byte", ErrBadName, what, name)
	}
	return nil
}
