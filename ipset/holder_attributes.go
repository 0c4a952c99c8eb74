package ipset

import (
	"context"
)

// SetAttributes changes what one holder of one address has: the attributes of the owner that is active and of the one that may
// take over, which it can swap, and the host that the address is held for. Other holders of the address and other addresses of
// the handle keep theirs.
//
// Errors, nothing changed: [ipalloc.ErrInvalid] for an address or a host that cannot be; [ipalloc.ErrNotHeld]; [ipalloc.ErrCooling]
// with the time; [ipalloc.ErrMismatch] with the holder if the guard names another, or if one of the expected attributes is
// different; [ipalloc.ErrLimit] if the record of a shared address would take more than 256 KiB; errors of the store as elsewhere. One commit.
func (e *Engine) SetAttributes(ctx context.Context, a SetOwnerArgs) error {
	return e.release.SetAttributes(ctx, a)
}
