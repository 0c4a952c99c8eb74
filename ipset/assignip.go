package ipset

import (
	"context"
)

// AssignIP gives one named address. If its block does not exist, the owner claims it. It ignores reservations and the pool's
// ranges, because the caller names the address, and selectors unless Selectors is set. If the handle already holds the address,
// AssignIP returns the allocation as it is.
//
// With Claim.Share, a held address that its first holder shares under the same key gets one more holder, also from a block of
// another owner under strict affinity. The limit is that of the first holder. A holder is added and removed in one commit.
//
// Errors, nothing assigned: [ipalloc.ErrInvalid] for impossible arguments; [ipalloc.ErrNotFound] for an owner that does not
// exist, if no enabled pool has the address for this use, and with Selectors if the pool does not select the owner and the
// namespace; [ipalloc.ErrOccupied] with the holder if the address is held, and
// if its block is another owner's and affinity is strict; [ipalloc.ErrCooling] with the time, unless the handle is the one that
// released it; [ipalloc.ErrMismatch] with the first holder if the address is shared under another key; [ipalloc.ErrReserved];
// [ipalloc.ErrLimit] if the block would have to be claimed and may not be, and for a shared address that has as many holders as it
// may have, or whose record would take more than 256 KiB or than the store takes;
// [ipalloc.ErrConflict], [ipalloc.ErrUnknownOutcome] and other errors of the store as for AutoAssign.
func (e *Engine) AssignIP(ctx context.Context, a AssignIPArgs) (Allocation, error) {
	return e.assign.AssignIP(ctx, a)
}
