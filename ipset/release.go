package ipset

import (
	"context"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Release releases addresses and writes records of the caller in one commit, all or none.
// For example, it can delete the row of a machine together with its addresses. It returns
// the addresses that were held, in the order of their blocks. Addresses that are already
// free or cooling are not an error, and Also is written for them too.
//
// On error nothing changes. The call fails with [ipalloc.ErrMismatch] and the holder if a
// guard does not match. It fails with [ipalloc.ErrConflict] if a record of Also is not at
// the expected revision; [store.ConflictKey] names the record. It fails with
// [ipalloc.ErrLimit] if one commit cannot hold the call, with [ipalloc.ErrInvalid], and
// with errors of the store as AutoAssign does. ReleaseIPs and ReleaseByHandle use several
// commits if one does not suffice.
func (e *Engine) Release(ctx context.Context, a alloc.ReleaseArgs) ([]netip.Addr, error) {
	released, err := e.release.Release(ctx, a)
	return released, cause.Of("release", a.Handle, err)
}

// Withdraw ends a request key: it releases the addresses that were assigned under the key
// and are still held, and returns them. From then on nothing is assigned under the key. A
// call that timed out and whose commit arrives late, from any process, fails with
// [ipalloc.ErrMismatch]. Use it if a call timed out and you want nothing. You may repeat
// it; it is no error if nothing was assigned.
//
// The key stays ended until it is deleted, as every request key, after
// [Options].RequestsAfter. An address that was released and assigned again, or has moved
// to another handle or host, is not released. If one commit does not hold all addresses,
// Withdraw ends the key in the first commit and releases the rest in further ones;
// repeat an interrupted call. It fails with [ipalloc.ErrInvalid] for an empty key, and
// with errors of the store. Cost: two round trips.
func (e *Engine) Withdraw(ctx context.Context, request string) ([]netip.Addr, error) {
	released, err := e.release.Withdraw(ctx, request)
	e.release.Pass(ctx, err, true, false)
	return released, cause.Op("withdraw", err)
}

// ReleaseIPs releases addresses and returns the outcome of each, in the order of the
// arguments. Addresses released together are queued in address order, block by block. You
// may repeat a release: the outcome is then WasFree, as for an address outside every
// block.
//
// It makes as many commits as needed, with all addresses of a block in one commit if they
// fit. It fails with [ipalloc.ErrInvalid], and releases nothing, if an address is not
// valid. After an error of the store it returns the results so far.
func (e *Engine) ReleaseIPs(ctx context.Context, releases ...alloc.Release) ([]alloc.ReleaseResult, error) {
	results := make([]alloc.ReleaseResult, 0, len(releases))
	err := e.release.ReleaseIPs(ctx, releases, func(a netip.Addr, o alloc.Outcome) {
		results = append(results, alloc.ReleaseResult{Address: a, Outcome: o})
	})
	return results, cause.Op("release IPs", err)
}

// ReleaseByHandle releases every address of a handle and returns them in the order of
// their blocks. It returns none if the handle holds none. If owners are named, it
// releases only the addresses that are held for them. Name the owner if several hosts use
// one handle: a late release by the former host of a moved address then releases nothing.
// It releases many blocks in several steps; repeat an interrupted release to resume it.
//
// It fails with [ipalloc.ErrInvalid] for an empty handle. After an error of the store it
// returns the addresses released so far. Cost: two round trips.
func (e *Engine) ReleaseByHandle(ctx context.Context, handle string, of ...alloc.Owner) ([]netip.Addr, error) {
	released, err := e.release.ReleaseByHandle(ctx, handle, of)
	return released, cause.Of("release by handle", handle, err)
}
