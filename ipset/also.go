package ipset

import (
	"context"
	"net/netip"
)

// Release gives addresses back in one commit, all or none, and writes records of the caller with it: the row of a machine goes with
// its addresses. It returns the addresses that were held, in the order of their blocks. Addresses that are free or cooling already
// are no error, and Also is written for them too.
//
// Errors, nothing changed: [ipalloc.ErrMismatch] with the holder if a guard does not hold; [ipalloc.ErrConflict] if a record of
// Also is not at the revision that it expects, which [store.ConflictKey] names; [ipalloc.ErrLimit] if one commit cannot hold the
// call; [ipalloc.ErrInvalid]; errors of the store as for AutoAssign. ReleaseIPs and ReleaseByHandle go in several commits where one
// does not suffice.
func (e *Engine) Release(ctx context.Context, a ReleaseArgs) ([]netip.Addr, error) {
	return e.release.Release(ctx, a)
}
