package ipset

import (
	"context"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/assign"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Assign returns the address that a handle holds, and gives it one if it holds none: an IPv4 address, or an IPv6 address where no
// IPv4 pool serves the owner. If pools are named, only these count, also for the address that the handle holds, and their
// selectors do not apply. If the handle holds several, it returns
// the one of them that it gave first, IPv4 before IPv6, else the first by address.
//
// If the handle holds the address for another host, the address moves to o in the commit of the answer, with a new sequence number, and
// MovedFrom names the host that has lost it; guards of that host no longer match. Two hosts that use an address at the same time share it
// ([alloc.Share]). A move that turns out wrong is undone by the former host's next Assign. Under strict affinity an address in the block
// of another owner than o does not move: the error is [ipalloc.ErrOccupied] with the host that has it.
//
// Concurrent calls for one handle return one address, also from several engines, and no record is left when the address is released.
// Repeating the call is safe, also after [ipalloc.ErrUnknownOutcome], with one exception: if an engine ends or stays idle after an
// unknown outcome, its commit may still arrive after another engine has assigned the handle an address and released it. The handle
// then holds an address that no caller knows, until its next Assign or ReleaseByHandle. Each call of an engine settles its own unknown outcome
// first, so an engine that goes on making calls never leaves that behind.
//
// Errors as for AutoAssign, which has all the options. Cost: two round trips while the owner's own blocks have room and are
// cached.
func (e *Engine) Assign(ctx context.Context, o alloc.Owner, handle string, pools ...string) (alloc.Allocation, error) {
	a, err := e.assign.Assign(ctx, o, handle, pools...)
	return a, cause.Of("assign", handle, err)
}

// AutoAssign gives addresses to a host: from the pools of the highest [Pool.Priority] that serve it, and only the rest from pools
// of lower priority. Among pools of one priority it tries in this order: the host's own blocks, by address; a free block, which
// it claims, searched from a place fixed by the host's name; another owner's block that has been empty for at least a minute,
// which it takes over; a block without owner, which it adopts; and, unless affinity is strict, any block with room, from which it
// borrows. Limits forbid claiming, taking over and adopting, not borrowing.
//
// A block keeps its size when its pool's changes, and is used like any other. A place that has a block of another size gets no new
// block while one there is in use. Empty ones, the host's or left for a minute, make room: the commit that claims the place deletes
// them. A block that several pools serve gives no addresses automatically.
//
// All is done in one commit. Fewer addresses than asked is an error unless Partial is set.
//
// Errors, nothing assigned: [ipalloc.ErrInvalid] for impossible arguments, among them Head or Tail without strict affinity;
// [ipalloc.ErrNotFound] for an owner or a pool that does not exist, and if no pool may serve a family; without Partial, for a
// shortage, [ipalloc.ErrCooling] with the time, [ipalloc.ErrLimit] or [ipalloc.ErrReserved] if that is the only reason of all
// pools tried, else [ipalloc.ErrFull]; [ipalloc.ErrLimit] if one commit cannot hold the call; [ipalloc.ErrConflict] after
// Retry.Attempts conflicts; any error of the store. If a record of Also is not at the revision that it expects, the error is
// [ipalloc.ErrConflict] as well, without another attempt, and [store.ConflictKey] names the record. After
// [ipalloc.ErrUnknownOutcome] the addresses may have been assigned: repeat with the same Request, or release by handle on the
// same engine.
//
// Cost: one round trip while the host's own blocks have room and are cached, two for a host's first block.
func (e *Engine) AutoAssign(ctx context.Context, a alloc.AssignArgs) (alloc.Assigned, error) {
	got, err := e.assign.AutoAssign(ctx, a)
	return got, cause.Of("auto assign", a.Handle, err)
}

// AssignIPs gives the named addresses, and beside them those that the arguments ask for, in one commit: for example a static IPv4
// address with an automatic IPv6 one. Each named address is assigned as by [Engine.AssignIP]: reservations and ranges do not
// apply, selectors apply only with Selectors, and an address that the handle already holds is returned again. If one cannot be
// assigned, the call fails, even with Partial. They come first in the result. At most 64 may be named. Choose must be neither
// [alloc.From] nor a row.
//
// Errors as for AssignIP and AutoAssign.
func (e *Engine) AssignIPs(ctx context.Context, a alloc.AssignArgs, named ...netip.Addr) (alloc.Assigned, error) {
	got, err := e.assign.AssignIPs(ctx, a, named)
	return got, cause.Of("assign IPs", a.Handle, err)
}

// AssignIP gives one named address. If its block does not exist, the owner claims it. It ignores reservations and the pool's
// ranges, because the caller names the address, and selectors unless Selectors is set; with WithinRules it obeys all of them, as
// AutoAssign does. If the handle already holds the address, AssignIP returns that allocation; it moves to
// a.Owner if it is held for another host, as by Assign.
//
// With Share, a held address that its first holder shares under the same key gets one more holder, even in another
// owner's block under strict affinity. The first holder's limit applies. Adding or removing a holder is one commit.
//
// Errors, nothing assigned: [ipalloc.ErrInvalid] for impossible arguments; [ipalloc.ErrNotFound] for an owner that does not
// exist, if no enabled pool has the address for this use, and with Selectors if the pool does not select the owner and the
// namespace; [ipalloc.ErrOccupied] with the holder if the address is held, if its block is another owner's and affinity is
// strict, and if a block of another size is in the way; [ipalloc.ErrCooling] with the time, unless the handle is the one that
// released it; [ipalloc.ErrMismatch] with the first holder if the address is shared under another key; [ipalloc.ErrReserved] for
// one of the Head or Tail of its block, and with WithinRules for one that automatic assignment leaves out; [ipalloc.ErrLimit] if
// the block would have to be claimed but a limit or the configuration forbids that, if a shared address has its largest number of
// holders, and if its record would exceed 256 KiB or the store's limit; [ipalloc.ErrConflict], [ipalloc.ErrUnknownOutcome] and
// other errors of the store as for AutoAssign.
func (e *Engine) AssignIP(ctx context.Context, a alloc.AssignIPArgs) (alloc.Allocation, error) {
	al, err := e.assign.AssignIP(ctx, a)
	return al, cause.Of("assign IP", a.Handle, err)
}

// Offer assigns addresses to a handle for a short time, the TTL: those that it holds, else those that it had last and that are
// free, else others. It is AutoAssign with Existing and Sticky, and an address that the handle holds for less than TTL is held
// for TTL. To accept an offer, move its end with RenewIP or Renew. An offer that is not accepted ends by itself, and its
// addresses then cool for the Cooldown of their pool.
//
// Errors as for AutoAssign; [ipalloc.ErrInvalid] without TTL or handle, and with a Request.
func (e *Engine) Offer(ctx context.Context, a alloc.AssignArgs) (alloc.Assigned, error) {
	got, err := e.assign.Offer(ctx, a)
	return got, cause.Of("offer", a.Handle, err)
}

// EnsureBlock makes sure that an owner has a block in one of the pools that serve the arguments, and returns the owner's blocks
// there, which need not have room. If there is none it claims one, as AutoAssign would, and assigns no address. A family counts
// if its Num4 or Num6 is above 0, regardless of the number.
//
// Errors as for AutoAssign, nothing claimed; [ipalloc.ErrLimit] if a block is free but a limit forbids the
// owner to claim it, and the error of a shortage if no block is free.
func (e *Engine) EnsureBlock(ctx context.Context, a alloc.AssignArgs) (blocks []netip.Prefix, err error) {
	blocks, err = e.assign.EnsureBlock(ctx, a)
	return blocks, cause.Op("ensure block", err)
}

// Explain returns, for every pool in the order in which pools are tried, what AutoAssign with these arguments would do if that
// pool were the only one: the addresses that it would give, or why it gives too few. Existing, Sticky, Partial, Request
// and Also are ignored, and a preferred address counts only for the pool that contains it. Nothing is written. The pools are examined
// one after the other, so the result is no consistent snapshot.
//
// Errors: [ipalloc.ErrInvalid] for impossible arguments; [ipalloc.ErrNotFound] for an owner or a pool that does not exist; the
// store's. Cost: a [Engine.DryRun] for each pool that qualifies.
func (e *Engine) Explain(ctx context.Context, a alloc.AssignArgs) ([]alloc.Explanation, error) {
	rows, err := e.assign.Explain(ctx, a, func() *assign.Assigner { return &e.DryRun().assign })
	return rows, cause.Of("explain", a.Handle, err)
}
