package ipset

import (
	"context"
	"net/netip"
)

// ReleaseIPs releases addresses and returns the outcome of each, in the order of the arguments. Addresses
// released together are queued in address order, block by block. Repeating a release is no error: the outcome is WasFree, as
// for an address outside every block.
//
// Addresses go in as many commits as they need, all of a block in one where they fit. It returns [ipalloc.ErrInvalid] if an
// address is not valid, nothing released; or an error of the store, and the results so far.
func (e *Engine) ReleaseIPs(ctx context.Context, releases ...Release) ([]ReleaseResult, error) {
	return e.release.ReleaseIPs(ctx, releases...)
}

// ReleaseByHandle gives back every address of a handle and returns them in the order of their blocks. A handle that
// has none is no error. With many blocks it goes in steps; an interrupted release is resumed by repeating it.
//
// It returns [ipalloc.ErrInvalid] for an empty handle, or an error of the store and the addresses released so far.
func (e *Engine) ReleaseByHandle(ctx context.Context, handle string) ([]netip.Addr, error) {
	return e.release.ReleaseByHandle(ctx, handle)
}
