package ipset

import (
	"context"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Update changes the record of one holder of one address: the active and the alternate
// attributes, which it can swap, and the host. Other holders of the address and other
// addresses of the handle do not change.
//
// On error nothing changes. The call fails with [ipalloc.ErrInvalid] for an impossible
// address or host, with [ipalloc.ErrNotHeld] if the address is free, and with
// [ipalloc.ErrCooling] and the time if it is cooling. It fails with [ipalloc.ErrMismatch]
// and the holder if the guard names another holder, or if an expected attribute is
// different. It fails with [ipalloc.ErrLimit] if the record of a shared address would
// take more than 256 KiB, and with errors of the store as other calls do. Cost: one
// commit.
func (e *Engine) Update(ctx context.Context, a alloc.UpdateArgs) error {
	return cause.Of("update", a.Handle, e.release.Update(ctx, a))
}

// Transfer gives one address or all addresses of a handle to another handle. They are not
// free at any moment in between. Each address keeps its host, attributes and lease, and
// has a new sequence number: late calls of the former handle with a guard fail. A request
// key of the former handle no longer returns the addresses, and as a sticky handle it
// does not get them again. Transfer returns the addresses as they are held afterwards.
//
// A named address may also be cooling after From released it; To then holds it at once,
// for the same host and without a lease. A kept address of package kept stays with its
// handle: Transfer of all addresses leaves it out. Repeat an interrupted call. Repeating
// a completed one changes nothing and returns the named address.
//
// Transfer makes one commit with a named address or with Also, otherwise as many as
// needed. On error that commit changes nothing. The call fails with
// [ipalloc.ErrMismatch] and the holder if another handle holds the named address, or if
// it is kept. It fails with [ipalloc.ErrNotHeld] if the address is free, and with
// [ipalloc.ErrCooling] and the time if it is cooling for another reason. It fails with
// [ipalloc.ErrOccupied] if To also holds a shared address, or if strict affinity forbids
// the host a cooling one. It fails with [ipalloc.ErrNotFound] for a cooling address of a
// disabled pool or of none, and with [ipalloc.ErrReserved] if a pool is closed. It also
// fails with [ipalloc.ErrConflict] and [ipalloc.ErrLimit] as [Engine.Release] does, with
// [ipalloc.ErrInvalid], and with errors of the store. Cost: two round trips.
func (e *Engine) Transfer(ctx context.Context, a alloc.TransferArgs) ([]alloc.Allocation, error) {
	moved, err := e.release.Transfer(ctx, a)
	return moved, cause.Of("transfer", a.From, err)
}

// Renew extends all leases of a handle and returns them: they now expire after the TTL. A
// TTL of 0 makes them permanent. It neither changes nor returns addresses that the handle
// holds without a lease.
//
// It fails with [ipalloc.ErrNotHeld] if the handle has no lease or its leases have
// expired, and with [ipalloc.ErrInvalid]. With WithinRules it fails as AutoAssign does,
// and extends no lease, if the rules refuse any of the leases. More leases than one commit
// holds take several commits. After an error Renew returns the leases renewed so far.
func (e *Engine) Renew(ctx context.Context, handle string, a alloc.RenewArgs) ([]alloc.Allocation, error) {
	renewed, err := e.release.Renew(ctx, handle, a)
	return renewed, cause.Of("renew", handle, err)
}

// RenewIP extends the lease of one address, which now expires after the TTL, and returns
// the allocation. A TTL of 0 makes it permanent. If the address has no lease, RenewIP
// returns it unchanged. The fields that are set in the guard must match the holder.
//
// On error nothing changes. The call fails with [ipalloc.ErrMismatch] and the holder if
// the guard names another holder. It fails with [ipalloc.ErrCooling] and the time if the
// address is cooling, and with [ipalloc.ErrNotHeld] if it is free. With WithinRules it
// fails with [ipalloc.ErrReserved] for a reserved address and outside of Ranges, and with
// [ipalloc.ErrNotFound] if the pool is disabled or does not select the owner. It also
// fails with [ipalloc.ErrFull] in a block that several pools serve, and with
// [ipalloc.ErrOccupied] in another owner's block under strict affinity. After each of
// these a server answers its client with a refusal. It fails with [ipalloc.ErrInvalid] and
// errors of the store as other calls do. Cost: one commit.
func (e *Engine) RenewIP(ctx context.Context, at netip.Addr, g alloc.Guard, a alloc.RenewArgs) (alloc.Allocation, error) {
	al, err := e.release.RenewIP(ctx, at, g, a)
	return al, cause.Of("renew IP", g.Handle, err)
}

// Decline releases an address and blocks its use for a time, in one commit. Call it after
// a DHCPDECLINE, when something else on the network uses the address. During that time
// the address cools, and no call assigns it, not even to its former holder.
// [Engine.Lookup] and Allocations return it with the reason. A repeated Decline with the
// same handle changes nothing.
//
// On error nothing changes. The call fails with [ipalloc.ErrMismatch] and the holder if
// the guard names another holder, and with [ipalloc.ErrInUse] if the address has other
// holders besides. It fails with [ipalloc.ErrCooling] and the time if the address cools
// for another reason, with [ipalloc.ErrNotHeld] if it is free, and with
// [ipalloc.ErrInvalid]. It fails with [ipalloc.ErrLimit] for a reason of more than some
// 64 KiB, and with errors of the store as other calls do.
func (e *Engine) Decline(ctx context.Context, a alloc.DeclineArgs) (alloc.Allocation, error) {
	al, err := e.release.Decline(ctx, a)
	return al, cause.Of("decline", a.Handle, err)
}
