package alloc

import (
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// ReleaseArgs are the arguments of Engine.Release.
type ReleaseArgs struct {
	// Handle, if not empty, releases all of its addresses.
	Handle string
	// Owner, if not zero, restricts Handle to the addresses that are held for this host. Name it where several hosts use one handle, as
	// in a migration: a late release by the former host then releases nothing.
	Owner Owner
	// Addresses are released if their guards hold.
	Addresses []Release
	// Also lists records of yours to write in the same commit, as in [AssignArgs].
	Also []store.Op
}

// UpdateArgs are the arguments of Engine.Update.
type UpdateArgs struct {
	Address netip.Addr
	// Guard names the handle, and optionally the allocation, that must hold the address; of a shared address it selects
	// the holder. Without a Guard the first holder is updated.
	Guard
	// Active and Alternate replace the attributes where they are not nil.
	Active, Alternate *Attributes
	// Host, if not nil, becomes the host that the address is held for, for example after a virtual machine has
	// moved.
	Host *Owner
	// Swap exchanges active and alternate before they are replaced.
	Swap bool
	// IfActive and IfAlternate, if not nil, must equal the present attributes, before the swap.
	IfActive, IfAlternate *Attributes
}

// DeclineArgs are the arguments of Engine.Decline.
type DeclineArgs struct {
	Address netip.Addr
	// Guard is the holder that declines the address. It must be the only one: without a Guard, all holders lose the address.
	Guard
	// For is how long the address stays out of use.
	For time.Duration
	// Reason is kept with the address for that time; see [Allocation.Declined].
	Reason string
}

// SweepArgs says what Operator.Sweep returns and forgets. Blocks are returned only as the fields say. Request keys and sticky
// handles have a default age, because without one they would accumulate.
type SweepArgs struct {
	// IdleAfter returns blocks that have been empty for that long; 0 returns none for their age.
	IdleAfter time.Duration
	// Keep is the number of blocks that an owner keeps even if they are idle.
	Keep int
	// Unselected returns empty blocks of pools that no longer select their host, or have another block size, at any age.
	Unselected bool
	// RequestsAfter forgets the answers to request keys that are older. 0 is a day; a negative value keeps them.
	RequestsAfter time.Duration
	// StickyAfter forgets the last addresses of sticky handles that have held nothing for about that long. 0 is 30 days; a
	// negative value keeps them.
	StickyAfter time.Duration
}

// Swept reports what a sweep did.
type Swept struct {
	// Advanced is the number of blocks in which leases or cooldowns ended. Blocks without owner that became empty are deleted.
	Advanced int
	// Ended are the allocations whose leases this sweep ended. Leases that an assignment ended first are not among them;
	// Engine.Changes reports all.
	Ended []Allocation
	// Returned are the blocks that were given back.
	Returned []netip.Prefix
	// Requests counts the request keys that were forgotten, Sticky the sticky handles.
	Requests, Sticky int
}

// ClaimFailure is a block that could not be claimed, and why.
type ClaimFailure struct {
	Block netip.Prefix
	Err   error
}

// Liveness says whether an allocation is in use, as far as the caller knows. The zero value means that the caller cannot tell; the
// address then stays held.
type Liveness uint8

const (
	// Alive means that it is in use.
	Alive Liveness = iota + 1
	// Leaked means that it is not in use. It is released after it has been so for the whole grace period.
	Leaked
	// Gone means that what used it no longer exists. It is released at once.
	Gone
)

// livenessNames are the texts of the states.
var livenessNames = [...]string{"", "alive", "leaked", "gone"}

// String returns "alive", "leaked" or "gone", and "" for the zero value.
func (l Liveness) String() string { return nameOf(livenessNames[:], "liveness", l) }

// DisownArgs say which blocks Engine.DisownBlocks takes from their owners.
type DisownArgs struct {
	// Owner selects all blocks that it owns, or only those in Prefix if that is set.
	Owner  Owner
	Prefix netip.Prefix
	// Pool, in place of Owner and Prefix, selects every block of the pool of that name, of any owner.
	Pool string
	// OnlyEmpty passes over blocks in which an address is held.
	OnlyEmpty bool
}
