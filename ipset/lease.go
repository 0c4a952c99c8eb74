package ipset

import (
	"context"
	"net/netip"
	"time"
)

// Offer assigns what a handle may want to keep, for the short time TTL: the addresses that it holds, else those that it had last
// as far as they are free, else others. It is AutoAssign with Existing and Sticky, and an address that the handle holds for less
// than TTL is held for TTL. An offer that is taken is a lease: RenewIP or Renew moves its end. One that is not taken ends by
// itself.
//
// Errors as for AutoAssign; [ipalloc.ErrInvalid] without TTL or handle, and with a Request.
func (e *Engine) Offer(ctx context.Context, a AssignArgs) (Assigned, error) {
	return e.assign.Offer(ctx, a)
}

// Renew moves the end of all leases of a handle to ttl from now and returns them with their new end. Addresses that it holds
// without a lease stay as they are and are not among them. It returns [ipalloc.ErrNotHeld] if the handle has no lease, because
// there is none or because it has ended, [ipalloc.ErrInvalid], or an error of the store with the leases renewed so far.
func (e *Engine) Renew(ctx context.Context, handle string, ttl time.Duration) ([]Allocation, error) {
	return e.release.Renew(ctx, handle, ttl)
}

// RenewIP moves the end of the lease of one address to ttl from now and returns the allocation with its new end. An address that is
// held without a lease stays as it is and is returned without one. Fields of the guard that are set must be those of the
// holder.
//
// Errors, nothing changed, each a refusal for a client: [ipalloc.ErrMismatch] with the holder if the guard names another,
// [ipalloc.ErrCooling] with the time, and [ipalloc.ErrNotHeld]. [ipalloc.ErrInvalid] and errors of the store as elsewhere. One commit.
func (e *Engine) RenewIP(ctx context.Context, a netip.Addr, g Guard, ttl time.Duration) (Allocation, error) {
	return e.release.RenewIP(ctx, a, g, ttl)
}

// Decline takes an address from its holder and out of use for a time, in one commit, as after a DHCPDECLINE: something else on the
// network answers for it. Until then it cools and no call assigns it, its former
// holder included. [Engine.Lookup] and Allocations show it with the reason. To repeat a Decline with the same handle is no error
// and changes nothing.
//
// Errors, nothing changed: [ipalloc.ErrMismatch] with the holder if the guard names another, [ipalloc.ErrInUse] if others hold the
// address beside the one that the guard names, [ipalloc.ErrCooling] with the time if the address cools for another reason, [ipalloc.ErrNotHeld], and [ipalloc.ErrInvalid]; [ipalloc.ErrLimit] for a reason of more
// than some 64 KiB; errors of the store as elsewhere.
func (e *Engine) Decline(ctx context.Context, a DeclineArgs) (Allocation, error) {
	return e.release.Decline(ctx, a)
}
