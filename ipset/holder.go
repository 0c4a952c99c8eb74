package ipset

import (
	"context"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Update changes the record of one holder of one address: the active and the alternate attributes, which it can swap, and the
// host that the address is held for. Other holders of the address and other addresses of the handle keep theirs.
//
// Errors, nothing changed: [ipalloc.ErrInvalid] for an impossible address or host; [ipalloc.ErrNotHeld]; [ipalloc.ErrCooling]
// with the time; [ipalloc.ErrMismatch] with the holder if the guard names another, or if one of the expected attributes is
// different; [ipalloc.ErrLimit] if the record of a shared address would take more than 256 KiB; errors of the store as elsewhere.
// One commit.
func (e *Engine) Update(ctx context.Context, a alloc.UpdateArgs) error {
	return cause.Of("update", a.Handle, e.release.Update(ctx, a))
}

// Renew moves the end of all leases of a handle to ttl from now and returns them with their new end; a ttl of 0 makes them
// permanent. Addresses that it holds without a lease stay as they are and are not among them. It returns [ipalloc.ErrNotHeld] if
// the handle has no lease or its leases have ended, [ipalloc.ErrInvalid], or an error of the store with the leases renewed so
// far.
func (e *Engine) Renew(ctx context.Context, handle string, ttl time.Duration) ([]alloc.Allocation, error) {
	renewed, err := e.release.Renew(ctx, handle, ttl)
	return renewed, cause.Of("renew", handle, err)
}

// RenewIP moves the end of the lease of one address to ttl from now and returns the allocation with its new end; a ttl of 0 makes
// it permanent. An address that is held without a lease stays as it is and is returned without one. Fields of the guard that are set must be those of the
// holder.
//
// Errors, nothing changed: [ipalloc.ErrMismatch] with the holder if the guard names another, [ipalloc.ErrCooling] with the time,
// and [ipalloc.ErrNotHeld]; to each of these a server answers its client with a refusal. [ipalloc.ErrInvalid] and errors of the
// store as elsewhere. One commit.
func (e *Engine) RenewIP(ctx context.Context, a netip.Addr, g alloc.Guard, ttl time.Duration) (alloc.Allocation, error) {
	al, err := e.release.RenewIP(ctx, a, g, ttl)
	return al, cause.Of("renew IP", g.Handle, err)
}

// Decline takes an address from its holder and out of use for a time, in one commit, as after a DHCPDECLINE, when something else
// on the network answers for it. During that time it cools, and no call assigns it, not even to its former holder.
// [Engine.Lookup] and Allocations show it with the reason. A repeated Decline with the same handle changes nothing.
//
// Errors, nothing changed: [ipalloc.ErrMismatch] with the holder if the guard names another, [ipalloc.ErrInUse] if others hold
// the address beside the one that the guard names, [ipalloc.ErrCooling] with the time if the address cools for another reason,
// [ipalloc.ErrNotHeld], and [ipalloc.ErrInvalid]; [ipalloc.ErrLimit] for a reason of more than some 64 KiB; errors of the store
// as elsewhere.
func (e *Engine) Decline(ctx context.Context, a alloc.DeclineArgs) (alloc.Allocation, error) {
	al, err := e.release.Decline(ctx, a)
	return al, cause.Of("decline", a.Handle, err)
}
