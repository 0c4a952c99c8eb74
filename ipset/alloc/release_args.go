package alloc

import (
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// ReleaseArgs are the arguments of Engine.Release.
type ReleaseArgs struct {
	// Handle, if not empty, selects all addresses of the handle.
	Handle string
	// Owner, if not zero, restricts Handle to the addresses that are held for this host.
	// Name the owner if several hosts use one handle, as in a migration: a late release
	// by the former host then releases nothing.
	Owner Owner
	// Addresses lists addresses to release if their guards match.
	Addresses []Release
	// Also lists operations on your own records for the same commit, as in [AssignArgs].
	Also []store.Op
}

// UpdateArgs are the arguments of Engine.Update.
type UpdateArgs struct {
	Address netip.Addr
	// Guard names the handle, and optionally the allocation, that must hold the address.
	// For a shared address it selects the holder. Without a Guard, Update changes the
	// first holder.
	Guard
	// Active and Alternate, if not nil, replace the attributes.
	Active, Alternate *Attributes
	// Host, if not nil, becomes the host of the address, for example after a virtual
	// machine has moved.
	Host *Owner
	// Swap exchanges active and alternate attributes before they are replaced.
	Swap bool
	// IfActive and IfAlternate, if not nil, must be equal to the present attributes,
	// before the swap.
	IfActive, IfAlternate *Attributes
}

// TransferArgs are the arguments of Engine.Transfer.
type TransferArgs struct {
	// From is the handle that gives addresses up, To the handle that gets them.
	From, To string
	// Address, if valid, is the only address to transfer; it may also be cooling after
	// From released it. Otherwise all addresses that From holds are transferred.
	Address netip.Addr
	// Also lists operations on your own records for the same commit, as in [AssignArgs].
	Also []store.Op
}

// RenameArgs are the arguments of Operator.RenameHost.
type RenameArgs struct {
	// From is the present name, To the new one.
	From, To Owner
	// Merge allows a new name that has blocks or addresses.
	Merge bool
}

// RenewArgs are the arguments of Engine.Renew and Engine.RenewIP.
type RenewArgs struct {
	// TTL is the new duration of the leases, from now; 0 makes them permanent.
	TTL time.Duration
	// WithinRules renews a lease only if automatic assignment could choose its address now
	// for Owner, as [AssignIPArgs].WithinRules describes. Otherwise the call fails with the
	// error of AutoAssign, and the lease runs to its end. Set it for dynamic leases:
	// without it, a client that renews keeps an address of a disabled pool for as long as
	// it likes.
	WithinRules bool
	// Owner, Use and Namespace are as in [AssignArgs], for WithinRules. WithinRules needs
	// Owner. Without WithinRules all three must be zero.
	Owner     Owner
	Use       Use
	Namespace map[string]string
}

// DeclineArgs are the arguments of Engine.Decline.
type DeclineArgs struct {
	Address netip.Addr
	// Guard names the holder that declines the address. It must be the only holder.
	// Without a Guard, all holders lose the address.
	Guard
	// For is the time during which the address stays out of use.
	For time.Duration
	// Reason is stored with the address for that time; see [Allocation.Declined].
	Reason string
}

// SweepArgs selects the blocks and records that Operator.Sweep returns or deletes. Sweep
// returns blocks only if these fields select them.
type SweepArgs struct {
	// IdleAfter selects blocks that have been empty for that long; 0 selects none by age.
	IdleAfter time.Duration
	// Keep is the number of blocks that an owner keeps even if they are idle.
	Keep int
	// Unselected selects empty blocks of any age in pools that no longer select their
	// host, or that have another block size.
	Unselected bool
	// RequestsAfter deletes answers to request keys that are older. 0 means the age in the
	// Options of the engine; a negative value deletes none.
	RequestsAfter time.Duration
	// StickyAfter deletes the last addresses of sticky handles that have held nothing for
	// about that long. 0 means the age in the Options; a negative value deletes none.
	StickyAfter time.Duration
}

// Swept is the result of a sweep.
type Swept struct {
	// Advanced is the number of blocks with leases or cooldowns that expired. Blocks
	// without owner that became empty are deleted.
	Advanced int
	// Ended lists the allocations whose leases expired by this sweep. It omits leases
	// whose expiry an assignment recorded first; Engine.Changes reports all.
	Ended []Allocation
	// Returned lists the blocks that were disowned.
	Returned []netip.Prefix
	// Requests and Sticky are the numbers of deleted request keys and sticky handles.
	Requests, Sticky int
}

// ClaimFailure is a block that could not be claimed, with the reason.
type ClaimFailure struct {
	Block netip.Prefix
	Err   error
}

// Liveness tells whether an allocation is in use, to the caller's knowledge. The zero
// value means unknown; the address then stays held.
type Liveness uint8

const (
	// Alive means that the address is in use.
	Alive Liveness = iota + 1
	// Leaked means that the address is not in use. It is released after it has been
	// leaked for the whole grace period.
	Leaked
	// Gone means that the user of the address no longer exists. It is released at once.
	Gone
)

// livenessNames are the texts of the states.
var livenessNames = [...]string{"", "alive", "leaked", "gone"}

// String returns "alive", "leaked" or "gone", and "" for the zero value.
func (l Liveness) String() string { return nameOf(livenessNames[:], "liveness", l) }

// DisownArgs selects the blocks that Engine.DisownBlocks removes from their owners.
type DisownArgs struct {
	// Owner selects all blocks of the owner, or only those in Prefix if that is set.
	Owner  Owner
	Prefix netip.Prefix
	// Pool selects every block of the named pool, of any owner; set it instead of Owner
	// and Prefix.
	Pool string
	// OnlyEmpty skips blocks with a held address.
	OnlyEmpty bool
}
