package ipset

import (
	"context"
	"net/netip"
)

// EnsureBlock makes sure that an owner has a block in one of the pools that may serve the arguments, and returns the owner's
// blocks there, which need not have room. Without any it claims one, as AutoAssign would, and assigns no address. Num4 and Num6
// say which families; their values do not count.
//
// Errors as for AutoAssign, nothing claimed; [ipalloc.ErrLimit] if there is a block and it may not be claimed,
// [ipalloc.ErrFull] if there is none.
func (e *Engine) EnsureBlock(ctx context.Context, a AssignArgs) (blocks []netip.Prefix, err error) {
	return e.assign.EnsureBlock(ctx, a)
}
