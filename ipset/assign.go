package ipset

import (
	"context"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/assign"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Assign returns the address that a handle holds, and first assigns one if it holds none.
// That is an IPv4 address, or an IPv6 address if no IPv4 pool serves the owner. If pools
// are named, Assign uses only these, also for the address that the handle holds, and
// ignores their selectors; [alloc.AssignArgs].Pools describes their order. If the handle holds several addresses, it returns the first
// that it assigned, IPv4 before IPv6, else the lowest.
//
// If the handle holds the address for another host, the address moves to o in the commit
// of the answer, with a new sequence number. MovedFrom names the former host; guards of
// that host no longer match. If two hosts use an address at the same time, share it
// ([alloc.Share]). The former host's next Assign undoes a wrong move. Under strict
// affinity an address does not move into another owner's block: the call fails with
// [ipalloc.ErrOccupied] and the present host.
//
// Concurrent calls for one handle return one address, also from several engines. No
// record remains after the address is released. Repeating the call is safe, also after
// [ipalloc.ErrUnknownOutcome], with one exception. If an engine ends or stays idle after
// an unknown outcome, its commit may still arrive after another engine has assigned the
// handle an address and released it. The handle then holds an address that no caller
// knows, until its next Assign or ReleaseByHandle. Each call of an engine first settles
// the engine's own unknown outcomes, so an engine that goes on making calls never leaves
// such an address.
//
// It fails as AutoAssign does, which has all the options. Cost: two round trips while the
// owner's own blocks have room and are cached.
func (e *Engine) Assign(ctx context.Context, o alloc.Owner, handle string, pools ...string) (alloc.Allocation, error) {
	a, err := e.assign.Assign(ctx, o, handle, pools...)
	return a, cause.Of("assign", handle, err)
}

// AutoAssign assigns addresses to a host. It uses the pools of the highest
// [Pool.Priority] that serve the host, and pools of lower priority only for the rest.
// Among pools of one priority it tries blocks in this order. First it assigns from the
// host's own blocks, in address order. Second, it claims a free block, searching from a
// position derived from the host's name. Third, it takes over another owner's block that
// has been empty for at least a minute. Fourth, it adopts a block without owner. Unless
// affinity is strict, it finally borrows from any block with room. Limits forbid
// claiming, taking over and adopting, but not borrowing.
//
// A block keeps its size when its pool's block size changes, and is used like any other.
// While it is in use, no block of the new size is claimed in its place. If it is empty,
// and the host's own or empty for a minute, the commit that claims the place deletes it.
// A block that several pools serve is not used for automatic assignment.
//
// One commit makes all changes. Without Partial, AutoAssign fails if it finds fewer
// addresses than requested.
//
// On error nothing is assigned. The call fails with [ipalloc.ErrInvalid] for impossible
// arguments, among them Head or Tail without strict affinity. It fails with
// [ipalloc.ErrNotFound] if the owner or a pool does not exist, or if no pool may serve a
// family. If addresses are short and Partial is not set, the error depends on the pools
// tried. If all have the same reason, it is [ipalloc.ErrCooling] with the time,
// [ipalloc.ErrLimit] or [ipalloc.ErrReserved], and otherwise [ipalloc.ErrFull]. It fails
// with [ipalloc.ErrLimit] if one commit cannot hold the call, with [ipalloc.ErrConflict]
// after Retry.Attempts conflicts, and with any error of the store. If a record of Also is
// not at the expected revision, the call fails with [ipalloc.ErrConflict] without another
// attempt, and [store.ConflictKey] names the record. After [ipalloc.ErrUnknownOutcome]
// the addresses may have been assigned: repeat with the same Request, or release by
// handle on the same engine.
//
// Cost: one round trip while the host's own blocks have room and are cached, two for a
// host's first block.
func (e *Engine) AutoAssign(ctx context.Context, a alloc.AssignArgs) (alloc.Assigned, error) {
	got, err := e.assign.AutoAssign(ctx, &a)
	e.release.Pass(ctx, err, a.Request != "", a.Sticky)
	return got, cause.Of("auto assign", a.Handle, err)
}

// AssignIPs assigns the named addresses, and also the addresses that the arguments
// request, in one commit. An example is a static IPv4 address with an automatic IPv6 one.
// It assigns each named address as [Engine.AssignIP] does. Reservations and ranges do not
// apply, selectors apply only with Selectors, and an address that the handle already
// holds is returned again. If Pools are named, each address must be in a named pool. If a
// named address cannot be assigned, the call fails, even with Partial. The named addresses
// come first in the result. At most 64 may be named. Choose must be neither [alloc.From]
// nor a row.
//
// It fails as AssignIP and AutoAssign do.
func (e *Engine) AssignIPs(ctx context.Context, a alloc.AssignArgs, named ...netip.Addr) (alloc.Assigned, error) {
	got, err := e.assign.AssignIPs(ctx, &a, named)
	e.release.Pass(ctx, err, a.Request != "", a.Sticky)
	return got, cause.Of("assign IPs", a.Handle, err)
}

// AssignIP assigns one named address. If its block does not exist, the owner claims it.
// It ignores reservations and the pool's ranges, because the caller names the address. It
// ignores selectors unless Selectors is set. With WithinRules it obeys all of them, as
// AutoAssign does; the page of the package has the table. If the handle already holds the
// address, AssignIP returns that allocation, with the Attributes of the call unless it has
// none. An address that the handle holds for another host moves to a.Owner, as Assign
// describes.
//
// With Share, a held address that its first holder shares under the same key gets one
// more holder, also in another owner's block under strict affinity. The first holder's
// limit applies. Adding or removing a holder is one commit.
//
// On error nothing is assigned. The call fails with [ipalloc.ErrInvalid] for impossible
// arguments. It fails with [ipalloc.ErrNotFound] if the owner does not exist, or if no
// enabled pool has the address for this use. With Selectors it also does so if the pool
// does not select the owner and the namespace. It fails with [ipalloc.ErrOccupied] and
// the holder if the address is held, or if affinity is strict and another owner has its
// block. It also does so if a block of another size is in the way. It fails with
// [ipalloc.ErrCooling] and the time, unless the same handle released the address. It
// fails with [ipalloc.ErrMismatch] and the first holder if the address is shared under
// another key. It fails with [ipalloc.ErrReserved] in the Head or Tail of its block, and
// with WithinRules for an address that automatic assignment omits. It fails with
// [ipalloc.ErrLimit] if a limit or the configuration forbids claiming the block, or if a
// shared address has its largest number of holders. It also does so if the record would
// exceed 256 KiB or the store's limit. It fails with [ipalloc.ErrConflict],
// [ipalloc.ErrUnknownOutcome] and other errors of the store as AutoAssign does.
func (e *Engine) AssignIP(ctx context.Context, a alloc.AssignIPArgs) (alloc.Allocation, error) {
	al, err := e.assign.AssignIP(ctx, a)
	e.release.Pass(ctx, err, a.Request != "", a.Sticky)
	return al, cause.Of("assign IP", a.Handle, err)
}

// Offer assigns addresses to a handle for a short time, the TTL. It prefers addresses
// that the handle holds, then free addresses that it held last, then others. It is
// AutoAssign with Existing and Sticky. If the lease of a returned address expires earlier
// than TTL from now, the call extends it to TTL. To accept an offer, extend the lease with
// RenewIP or Renew. An offer that is not accepted expires, and its addresses then cool for
// the Cooldown of their pool.
//
// Set WithinRules here and in RenewIP, so that a client does not keep an address of a
// disabled pool. If the client may no longer use the address that it holds, the call fails:
// release that address, and repeat the call.
//
// It fails as AutoAssign does, and with [ipalloc.ErrInvalid] without TTL or handle, or
// with a Request.
func (e *Engine) Offer(ctx context.Context, a alloc.AssignArgs) (alloc.Assigned, error) {
	got, err := e.assign.Offer(ctx, &a)
	e.release.Pass(ctx, err, false, true)
	return got, cause.Of("offer", a.Handle, err)
}

// EnsureBlock ensures that an owner has a block in a pool that serves the arguments. It
// returns the owner's blocks there, which need not have room. If there is none it claims
// one, as AutoAssign would, but assigns no address. Set Num4 or Num6 to any positive
// number to request a block of that family.
//
// On error it claims nothing. It fails as AutoAssign does. If a block is free but a limit
// forbids the owner to claim it, the error is [ipalloc.ErrLimit]. If no block is free, it
// fails as AutoAssign does when addresses are short.
func (e *Engine) EnsureBlock(ctx context.Context, a alloc.AssignArgs) (blocks []netip.Prefix, err error) {
	blocks, err = e.assign.EnsureBlock(ctx, a)
	return blocks, cause.Op("ensure block", err)
}

// Explain returns the result that AutoAssign with these arguments would have if each pool
// were the only one. It returns the addresses for every pool, in AutoAssign's order, or
// the reason why there are too few. It ignores Existing, Sticky, Partial, Request and
// Also. A preferred address counts only for the pool that contains it. It writes nothing.
// It examines the pools one after the other, so the result is not a consistent snapshot.
//
// It fails with [ipalloc.ErrInvalid] for impossible arguments, with [ipalloc.ErrNotFound]
// if the owner or a pool does not exist, and with any error of the store. Cost: an
// [Engine.DryRun] for each pool that qualifies.
func (e *Engine) Explain(ctx context.Context, a alloc.AssignArgs) ([]alloc.Explanation, error) {
	rows, err := e.assign.Explain(ctx, a, func() *assign.Assigner { return &e.DryRun().assign })
	return rows, cause.Of("explain", a.Handle, err)
}
