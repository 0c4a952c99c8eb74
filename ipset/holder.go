package ipset

import (
	"context"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/release"
)

// SetOwnerArgs are the arguments of [Engine.SetAttributes].
type SetOwnerArgs struct {
	Address netip.Addr
	// Guard names the handle, and perhaps the allocation, that must hold the address, and selects that holder of a shared
	// address. Without it the first holder is meant.
	alloc.Guard
	// Active and Alternate replace the attributes where they are not nil.
	Active, Alternate *alloc.Attributes
	// Host, if not nil, becomes the host that the address is held for: the one that a virtual machine has moved to.
	Host *alloc.Owner
	// Swap exchanges active and alternate before they are replaced.
	Swap bool
	// IfActive and IfAlternate, if not nil, must equal the present attributes, before the swap.
	IfActive, IfAlternate *alloc.Attributes
}

// DeclineArgs are the arguments of [Engine.Decline].
type DeclineArgs struct {
	Address netip.Addr
	// Guard is the holder that declines the address. It must be the only one: without a Guard, all holders lose the address.
	alloc.Guard
	// For is how long the address stays out of use.
	For time.Duration
	// Reason is kept with the address for that time; see [alloc.Allocation.Declined].
	Reason string
}

// SetAttributes changes what one holder of one address has: the attributes of the owner that is active and of the one that may
// take over, which it can swap, and the host that the address is held for. Other holders of the address and other addresses of
// the handle keep theirs.
//
// Errors, nothing changed: [ipalloc.ErrInvalid] for an address or a host that cannot be; [ipalloc.ErrNotHeld];
// [ipalloc.ErrCooling] with the time; [ipalloc.ErrMismatch] with the holder if the guard names another, or if one of the expected
// attributes is different; [ipalloc.ErrLimit] if the record of a shared address would take more than 256 KiB; errors of the store
// as elsewhere. One commit.
func (e *Engine) SetAttributes(ctx context.Context, a SetOwnerArgs) error {
	return e.release.SetAttributes(ctx, release.SetOwnerArgs(a))
}

// Renew moves the end of all leases of a handle to ttl from now and returns them with their new end. Addresses that it holds
// without a lease stay as they are and are not among them. It returns [ipalloc.ErrNotHeld] if the handle has no lease, because
// there is none or because it has ended, [ipalloc.ErrInvalid], or an error of the store with the leases renewed so far.
func (e *Engine) Renew(ctx context.Context, handle string, ttl time.Duration) ([]alloc.Allocation, error) {
	return e.release.Renew(ctx, handle, ttl)
}

// RenewIP moves the end of the lease of one address to ttl from now and returns the allocation with its new end. An address that is
// held without a lease stays as it is and is returned without one. Fields of the guard that are set must be those of the
// holder.
//
// Errors, nothing changed, each a refusal for a client: [ipalloc.ErrMismatch] with the holder if the guard names another,
// [ipalloc.ErrCooling] with the time, and [ipalloc.ErrNotHeld]. [ipalloc.ErrInvalid] and errors of the store as elsewhere. One commit.
func (e *Engine) RenewIP(ctx context.Context, a netip.Addr, g alloc.Guard, ttl time.Duration) (alloc.Allocation, error) {
	return e.release.RenewIP(ctx, a, g, ttl)
}

// Decline takes an address from its holder and out of use for a time, in one commit, as after a DHCPDECLINE: something else on the
// network answers for it. Until then it cools and no call assigns it, its former
// holder included. [Engine.Lookup] and Allocations show it with the reason. To repeat a Decline with the same handle is no error
// and changes nothing.
//
// Errors, nothing changed: [ipalloc.ErrMismatch] with the holder if the guard names another, [ipalloc.ErrInUse] if others hold
// the address beside the one that the guard names, [ipalloc.ErrCooling] with the time if the address cools for another reason,
// [ipalloc.ErrNotHeld], and [ipalloc.ErrInvalid]; [ipalloc.ErrLimit] for a reason of more than some 64 KiB; errors of the store
// as elsewhere.
func (e *Engine) Decline(ctx context.Context, a DeclineArgs) (alloc.Allocation, error) {
	return e.release.Decline(ctx, release.DeclineArgs(a))
}
