package alloc

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Claim describes the holder of an address to package block. The calls of an engine have
// these fields among their arguments.
type Claim struct {
	// Handle is the caller's key. An address without a handle is released by address or
	// with its host.
	Handle     string
	Attributes Attributes
	// TTL is the duration of the lease; 0 means that the address is held until it is
	// released.
	TTL time.Duration
	// Share, if it is not zero, lets the address have further holders after the first. It
	// needs a Handle. Each holder has its own host, attributes and lease. The address is
	// free after its last holder releases it.
	Share Share
	// Since is when the holder of an imported address got it. Zero and future times mean
	// now.
	Since time.Time
}

// Share lets an address have several holders. The zero value allows only the first
// holder.
type Share struct {
	// Max is the largest number of holders, 2 to 256.
	Max int
	// Key must be the same for all holders, such as the name of a virtual IP; "" is a key
	// like any other.
	Key string
}

// MaxHolders bounds the holders of one address, because each change writes the record of all holders.
const MaxHolders = 256

// Check fails with [ipalloc.ErrInvalid] for a Max outside 2 to [MaxHolders] and for an
// impossible Key. The zero Share is valid.
func (s Share) Check() error {
	switch {
	case s.Key != "":
		if err := cause.Name("sharing key", s.Key); err != nil {
			return err
		}
		fallthrough
	case s.Max != 0:
		if s.Max < 2 || s.Max > MaxHolders {
			return cause.Wrap(ipalloc.Error{Op: "check", Field: "Share.Max", Reason: fmt.Sprintf("%d holders, want 2 to %d", s.Max, MaxHolders), Err: ipalloc.ErrInvalid})
		}
	}
	return nil
}

// Guard is the condition for releasing an address. Zero fields mean no condition.
type Guard struct {
	// Handle, if not empty, must be the handle that holds the address.
	Handle string
	// Seq, if not 0, must be the sequence number of the allocation.
	Seq uint64
}

// Outcome is the result of a release for one address. The zero value is no answer.
type Outcome uint8

const (
	// Released means that the address was held and is now free or cooling. Holders that
	// the guard does not name keep it.
	Released Outcome = iota + 1
	// WasFree means that the address was not held.
	WasFree
	// OwnerChanged means that the address is held, but not by the handle or allocation that the guard names. It stays held.
	OwnerChanged
)

// outcomeNames are the texts of the outcomes.
var outcomeNames = [...]string{"", "released", "was free", "owner changed"}

// String returns "released", "was free" or "owner changed".
func (o Outcome) String() string { return nameOf(outcomeNames[:], "outcome", o) }

// Release names an address to release.
type Release struct {
	Address netip.Addr
	// Guard is the condition for its release.
	Guard
}

// ReleaseResult is the outcome for one address.
type ReleaseResult struct {
	Address netip.Addr
	Outcome Outcome
}
