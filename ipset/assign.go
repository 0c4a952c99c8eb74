package ipset

import (
	"context"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/assign"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// AssignArgs are the arguments of [Engine.AutoAssign]. Zero fields mean the default.
type AssignArgs struct {
	// Owner is the host (or virtual owner) that the addresses are for.
	Owner alloc.Owner
	// Num4 and Num6 are how many addresses of each family.
	Num4, Num6 int
	// Addresses are given besides these, in the same commit: a static IPv4 address with an automatic IPv6 one. What
	// [Engine.AssignIP] says of its address holds of each: reservations and ranges do not count for it, selectors count with
	// PoolsAndSelectors alone, one that the handle holds already is no error. If one cannot be given, the call fails, also with
	// Partial. They come first in the result. At most 64.
	Addresses []netip.Addr
	// Claim is the handle, the attributes and the time to live.
	alloc.Claim
	// Use is one of Workload, Tunnel and LoadBalancer; Workload by default.
	Use alloc.Use
	// Namespace has the labels of the namespace.
	Namespace map[string]string
	// Pools narrows the choice to the named pools; their selectors then do not count unless PoolsAndSelectors.
	Pools             []string
	PoolsAndSelectors bool
	// MaxBlocks narrows the limit of blocks per host if it is above 0.
	MaxBlocks int
	// Head and Tail are the addresses to reserve for the host at the ends of blocks made for it; they need strict affinity.
	Head, Tail uint64
	// Partial accepts fewer addresses than asked, also where one commit does not take so many: Short of the result says why. Without
	// it a shortage in any family is an error and nothing is assigned.
	Partial bool
	// Contiguous asks for neighbouring addresses: those of a family are in one block and in a row, all or none. They come from the
	// owner's blocks, then from one that it claims or takes over, and are never borrowed; in any Order of the pool the lowest
	// that fit are taken. It goes without Partial and Sticky. A repeated Request whose addresses have been released in part is
	// [ipalloc.ErrMismatch]. Cost: O(spans log spans) of the free queue for each block that is looked at.
	Contiguous bool
	// Aligned is Contiguous with addresses that make up a prefix, such as a /29 of a block of /26: their number is a power of two,
	// and the first is a multiple of it.
	Aligned bool
	// Existing returns the addresses that the handle holds, of Pools if these are named, in place of assigning more. The numbers do
	// not count then: a handle with addresses of one family gets none of the other. Calls with Existing for one handle give it addresses
	// once, also when they come from several engines at the same time. It costs one round trip more, and goes without a Request.
	Existing bool
	// Wish is an address that a client asks for, as in option 50 of DHCP. It is given if automatic assignment could give it, so it
	// respects ranges, reservations, selectors and limits; else others are. It comes before what a Sticky handle had last.
	Wish netip.Addr
	// From asks for the next free addresses at or after an address, for a server that gives them in sequence: the lowest ones of its
	// family that automatic assignment may give, from blocks of any owner, and none below it. Pools of one priority are searched in
	// address order. What a Sticky handle had comes first. It goes without Addresses, Wish and Contiguous. Cost: three round trips,
	// and one more for each 64 blocks with room that are passed over.
	From netip.Addr
	// Sticky gives the handle the addresses back that it had last from a call with Sticky, named by the caller or not: those
	// that are free. It costs one round trip more.
	Sticky bool
	// Request, if not empty, names this request: a repetition returns the addresses of the first answer that the handle still
	// holds, and assigns what is missing of them. The same key with other arguments is [ipalloc.ErrInvalid].
	Request string
	// Also are records of yours that are written in the same commit, both or neither: the row of a machine with its address.
	// Their keys begin with an upper-case letter other than L and X, those of hostlocal and prefixes, which may be guarded. They
	// are written if anything is assigned: not where Existing finds addresses of the handle, and not by a repetition of a
	// Request, whose first commit has written them. They are not among the arguments that a repetition must repeat.
	Also []store.Op
}

// AssignIPArgs are the arguments of [Engine.AssignIP].
type AssignIPArgs struct {
	Address netip.Addr
	// Owner is the host that the address is for.
	Owner alloc.Owner
	alloc.Claim
	// Use, if not 0, must be one that the pool allows.
	Use alloc.Use
	// Selectors applies the selectors of the pool that has the address: its Nodes to the labels of the owner, its Namespaces to
	// Namespace. Without it neither counts. Pool.Manual never does, because the address names the pool.
	Selectors bool
	// Namespace has the labels of the namespace.
	Namespace map[string]string
	// MaxBlocks narrows the limit of blocks per host if it is above 0.
	MaxBlocks int
	// Head and Tail are the addresses to reserve for the host at the ends of a block made for it; they need strict affinity.
	Head, Tail uint64
	// Sticky remembers the address for the calls with [AssignArgs].Sticky. Without it the call leaves no memory.
	Sticky bool
	// Request, if not empty, names this request: a repetition returns the allocation while the handle still holds it, and
	// assigns the address again after. The same key with other arguments is [ipalloc.ErrInvalid].
	Request string
	// Also are records of yours that are written in the same commit, as in [AssignArgs]: not if the handle has the address
	// already, and not by a repetition of the Request.
	Also []store.Op
}

// Reason says why a pool gave no more addresses, or does not qualify.
type Reason uint8

const (
	// ReasonFull: every address is held.
	ReasonFull = Reason(assign.Full)
	// ReasonReservedLeft: only reserved addresses are left.
	ReasonReservedLeft = Reason(assign.ReservedLeft)
	// ReasonCoolingLeft: only cooling addresses are left.
	ReasonCoolingLeft = Reason(assign.CoolingLeft)
	// ReasonForeignLeft: other owners have blocks with room, and strict affinity forbids borrowing from them.
	ReasonForeignLeft = Reason(assign.ForeignLeft)
	// ReasonLimitReached: there are free blocks, and a limit or the configuration forbids claiming them.
	ReasonLimitReached = Reason(assign.LimitReached)
	// ReasonFragmented: addresses are left, and not so many in a row as Contiguous asks for.
	ReasonFragmented = Reason(assign.Fragmented)
	// ReasonTooSmall: no block of the pool has so many addresses in a row as Contiguous asks for.
	ReasonTooSmall = Reason(assign.TooSmall)
	// ReasonOutsideLeft: every address of the pool's ranges is held, and AssignIP alone gives the others.
	ReasonOutsideLeft = Reason(assign.OutsideLeft)
	// ReasonBelowFrom: every address at or after From is held, and those below it are not looked at.
	ReasonBelowFrom = Reason(assign.BelowFrom)
	// ReasonCommitFull: addresses are left, and one commit of the store takes no more.
	ReasonCommitFull = Reason(assign.CommitFull)

	// The others say why a pool does not qualify.

	// ReasonOtherFamily: it has addresses of the other family.
	ReasonOtherFamily = Reason(assign.OtherFamily)
	// ReasonNotNamed: other pools are named, or it is Manual and none is.
	ReasonNotNamed = Reason(assign.NotNamed)
	// ReasonDisabled: it is disabled.
	ReasonDisabled = Reason(assign.Disabled)
	// ReasonOtherUse: it is for other uses.
	ReasonOtherUse = Reason(assign.OtherUse)
	// ReasonEndsTooLarge: Head and Tail leave nothing of its blocks.
	ReasonEndsTooLarge = Reason(assign.EndsTooLarge)
	// ReasonNotOfHost: its Nodes do not select the owner.
	ReasonNotOfHost = Reason(assign.NotOfHost)
	// ReasonNotOfNamespace: its Namespaces do not select the namespace.
	ReasonNotOfNamespace = Reason(assign.NotOfNamespace)
)

// String returns a few words.
func (r Reason) String() string { return assign.Reason(r).String() }

// Shortage says why a pool did not give what was asked.
type Shortage struct {
	Family int // 4 or 6
	Pool   string
	Reason Reason
	// Until is when the first of its cooling addresses is free, with ReasonCoolingLeft.
	Until time.Time
	// Limit is the limit that ReasonLimitReached means, with the blocks that the owner has or would have got. Max is 0 under
	// NoAutoBlocks.
	Limit BlockLimit
}

// Explanation says what one pool would do for a call.
type Explanation struct {
	// Shortage is why the pool gives too few addresses. If Gives is not empty, only Family and Pool are set.
	Shortage
	// Gives are the addresses that it would give.
	Gives []netip.Addr
}

// Assigned is the result of [Engine.AutoAssign].
type Assigned struct {
	V4, V6 []alloc.Allocation
	// Short has one entry per pool tried in a family with fewer addresses than asked, also beside the error of a shortage. Where no
	// pool qualifies, it has one for each pool, or for each that the call names.
	Short []Shortage
}

// Assign returns the address that a handle holds, and gives it one if it holds none: an IPv4 address, or an IPv6 address where no
// IPv4 pool serves the owner. Pools, if any are named, are the only ones that count, for what the handle holds too, and their selectors
// do not count then. Repeating the call is safe, also after [ipalloc.ErrUnknownOutcome] and from several engines at once. If the handle
// holds several, it returns the first.
//
// Errors as for AutoAssign, which has all the options. Cost: two round trips while the owner's own blocks have room and are
// cached.
func (e *Engine) Assign(ctx context.Context, o alloc.Owner, handle string, pools ...string) (alloc.Allocation, error) {
	return e.assign.Assign(ctx, o, handle, pools...)
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
// [ipalloc.ErrNotFound] for an owner or a pool that does not exist, and if no pool may serve a family; without Partial, for a
// shortage, [ipalloc.ErrCooling] with the time, [ipalloc.ErrLimit] or [ipalloc.ErrReserved] if all pools tried have that reason
// alone, else [ipalloc.ErrFull]; [ipalloc.ErrLimit] if one commit cannot hold the call; [ipalloc.ErrConflict] after
// Retry.Attempts conflicts; any error of the store. If a record of Also is not at the revision that it expects, the error is
// [ipalloc.ErrConflict] as well, without another attempt, and [store.ConflictKey] names the record. After
// [ipalloc.ErrUnknownOutcome] the addresses may have been assigned: repeat with the same Request, or release by handle on the
// same engine.
//
// Cost: one round trip while the host's own blocks have room and are cached, two for a host's first block.
func (e *Engine) AutoAssign(ctx context.Context, a AssignArgs) (Assigned, error) {
	got, err := e.assign.AutoAssign(ctx, assign.AssignArgs(a))
	return assigned(got), err
}

// AssignIP gives one named address. If its block does not exist, the owner claims it. It ignores reservations and the pool's
// ranges, because the caller names the address, and selectors unless Selectors is set. If the handle already holds the address,
// AssignIP returns the allocation as it is.
//
// With Claim.Share, a held address that its first holder shares under the same key gets one more holder, also from a block of
// another owner under strict affinity. The limit is that of the first holder. A holder is added and removed in one commit.
//
// Errors, nothing assigned: [ipalloc.ErrInvalid] for impossible arguments; [ipalloc.ErrNotFound] for an owner that does not
// exist, if no enabled pool has the address for this use, and with Selectors if the pool does not select the owner and the
// namespace; [ipalloc.ErrOccupied] with the holder if the address is held, if its block is another owner's and affinity is strict, and
// if a block of another size is in the way; [ipalloc.ErrCooling] with the time, unless the handle is the one that released it;
// [ipalloc.ErrMismatch] with the first holder if the address is shared under another key; [ipalloc.ErrReserved] for one of the Head or
// Tail of its block; [ipalloc.ErrLimit] if the block would have to be claimed and may not be, and for a shared address that has as many
// holders as it may have, or whose record would take more than 256 KiB or than the store takes; [ipalloc.ErrConflict],
// [ipalloc.ErrUnknownOutcome] and other errors of the store as for AutoAssign.
func (e *Engine) AssignIP(ctx context.Context, a AssignIPArgs) (alloc.Allocation, error) {
	return e.assign.AssignIP(ctx, assign.AssignIPArgs(a))
}

// Offer assigns what a handle may want to keep, for the short time TTL: the addresses that it holds, else those that it had
// last and that are free, else others. It is AutoAssign with Existing and Sticky, and an address that the handle holds for less
// than TTL is held for TTL. An offer that is taken is a lease: RenewIP or Renew moves its end. One that is not taken ends by
// itself, and its addresses then cool for the Cooldown of their pool.
//
// Errors as for AutoAssign; [ipalloc.ErrInvalid] without TTL or handle, and with a Request.
func (e *Engine) Offer(ctx context.Context, a AssignArgs) (Assigned, error) {
	got, err := e.assign.Offer(ctx, assign.AssignArgs(a))
	return assigned(got), err
}

// EnsureBlock makes sure that an owner has a block in one of the pools that may serve the arguments, and returns the owner's
// blocks there, which need not have room. Without any it claims one, as AutoAssign would, and assigns no address. Num4 and Num6
// say which families; their values do not count.
//
// Errors as for AutoAssign, nothing claimed; [ipalloc.ErrLimit] if there is a block and it may not be claimed,
// an error of a shortage if there is none.
func (e *Engine) EnsureBlock(ctx context.Context, a AssignArgs) (blocks []netip.Prefix, err error) {
	return e.assign.EnsureBlock(ctx, assign.AssignArgs(a))
}

func assigned(got assign.Assigned) Assigned {
	a := Assigned{V4: got.V4, V6: got.V6}
	for _, s := range got.Short {
		a.Short = append(a.Short, shortage(s))
	}
	return a
}

func shortage(s assign.Shortage) Shortage {
	return Shortage{s.Family, s.Pool, Reason(s.Reason), s.Until, BlockLimit(s.Limit)}
}

// Explain says of every pool what it would do for AutoAssign with these arguments if it were the only one, in the order in which
// pools are tried: the addresses that it would give, or why it gives too few. Existing, Sticky, Partial, Request, Addresses and
// Also do not count, and a Wish counts in its own pool. Nothing is written. The pools are looked at one after the other, so the answer is no consistent snapshot.
//
// Errors: [ipalloc.ErrInvalid] for impossible arguments; [ipalloc.ErrNotFound] for an owner or a pool that does not exist; those of the
// store. Cost: that of a [Engine.DryRun] for each pool that qualifies.
func (e *Engine) Explain(ctx context.Context, a AssignArgs) ([]Explanation, error) {
	found, err := e.assign.Explain(ctx, assign.AssignArgs(a), func() *assign.Assigner { return e.DryRun().assign })
	var all []Explanation
	for _, x := range found {
		all = append(all, Explanation{shortage(x.Shortage), x.Gives})
	}
	return all, err
}

// StartOf returns the block of a pool at which the searches of an owner begin. The owner's name fixes it, so hosts that start
// at the same time search in different places, and a host that returns searches where it was before. size is the
// prefix length of the pool's blocks, from that of the pool on.
func StartOf(o alloc.Owner, pool netip.Prefix, size int) netip.Prefix {
	return record.StartOf(o, pool, size)
}
