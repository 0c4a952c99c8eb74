package ipset

import (
	"context"
)

// Assign returns the address that a handle holds, and gives it one if it holds none: an IPv4 address, or an IPv6 address where no
// IPv4 pool serves the owner. Repeating it is safe, also after [ipalloc.ErrUnknownOutcome] and from several engines at once. If the
// handle holds several, it returns the first.
//
// Errors as for AutoAssign, which has all the options. Cost: two round trips while the owner's own blocks have room and are
// cached.
func (e *Engine) Assign(ctx context.Context, o Owner, handle string) (Allocation, error) {
	return e.assign.Assign(ctx, o, handle)
}

// AutoAssign gives addresses to a host: from the pools of the highest [Pool.Priority] that serve it, and only what these lack
// from the next ones. Among pools of one priority it takes them from the host's own blocks in address order; then from a free
// block that it claims, searched from a place fixed by its name; then from a block of another that has been empty for at least
// a minute, which it takes over; then from a block without owner, which it adopts; then, unless affinity is strict, borrowed from
// any block with room. Limits forbid claiming, taking over and adopting, not borrowing.
//
// All is done in one commit. Fewer addresses than asked is an error unless Partial is set.
//
// Errors, nothing assigned: [ipalloc.ErrInvalid] for impossible arguments, among them Head or Tail without strict affinity;
// [ipalloc.ErrNotFound] for an owner or a pool that does not exist, and if no pool may serve a family; [ipalloc.ErrFull] without
// Partial; [ipalloc.ErrLimit] if one commit cannot hold the call; [ipalloc.ErrConflict] after Retry.Attempts conflicts; any
// error of the store. If a record of Also is not at the revision that it expects, the error is [ipalloc.ErrConflict] as well,
// without another attempt, and [store.ConflictKey] names the record. After [ipalloc.ErrUnknownOutcome] the addresses may have been
// assigned: repeat with the same Request, or release by handle on the same engine.
//
// Cost: one round trip while the host's own blocks have room and are cached, two for a host's first block.
func (e *Engine) AutoAssign(ctx context.Context, a AssignArgs) (Assigned, error) {
	return e.assign.AutoAssign(ctx, a)
}
