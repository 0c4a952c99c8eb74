package ipset

import (
	"context"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Release gives back addresses and writes records of the caller in one commit, all or none: for example the row of a machine goes
// with its addresses. It returns the addresses that were held, in the order of their blocks. Addresses that are free or cooling
// already are no error, and Also is written for them too.
//
// Errors, nothing changed: [ipalloc.ErrMismatch] with the holder if a guard does not hold; [ipalloc.ErrConflict] if a record of
// Also is not at the revision that it expects, which [store.ConflictKey] names; [ipalloc.ErrLimit] if one commit cannot hold the
// call; [ipalloc.ErrInvalid]; errors of the store as for AutoAssign. ReleaseIPs and ReleaseByHandle go in several commits where one
// does not suffice.
func (e *Engine) Release(ctx context.Context, a alloc.ReleaseArgs) ([]netip.Addr, error) {
	released, err := e.release.Release(ctx, a)
	return released, cause.Of("release", a.Handle, err)
}

// ReleaseIPs releases addresses and returns the outcome of each, in the order of the arguments. Addresses
// released together are queued in address order, block by block. A release may be repeated: the outcome is then WasFree, as
// for an address outside every block.
//
// Addresses go in as many commits as they need, all of a block in one where they fit. It returns [ipalloc.ErrInvalid] if an
// address is not valid, nothing released; or an error of the store, and the results so far.
func (e *Engine) ReleaseIPs(ctx context.Context, releases ...alloc.Release) ([]alloc.ReleaseResult, error) {
	results := make([]alloc.ReleaseResult, 0, len(releases))
	err := e.release.ReleaseIPs(ctx, releases, func(a netip.Addr, o alloc.Outcome) {
		results = append(results, alloc.ReleaseResult{Address: a, Outcome: o})
	})
	return results, cause.Op("release IPs", err)
}

// ReleaseByHandle gives back every address of a handle and returns them in the order of their blocks. A handle that
// has none returns none. If owners are named, only the addresses that are held for them are released: name the owner where several hosts
// use one handle, so that a late release by the former host of a moved address releases nothing. With many blocks it goes in steps; an
// interrupted release is resumed by repeating it.
//
// It returns [ipalloc.ErrInvalid] for an empty handle, or an error of the store and the addresses released so far. Cost: two round trips.
func (e *Engine) ReleaseByHandle(ctx context.Context, handle string, of ...alloc.Owner) ([]netip.Addr, error) {
	released, err := e.release.ReleaseByHandle(ctx, handle, of)
	return released, cause.Of("release by handle", handle, err)
}
