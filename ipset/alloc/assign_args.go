package alloc

import (
	"errors"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// AssignArgs are the arguments of Engine.AutoAssign. Zero fields mean the default.
type AssignArgs struct {
	// Owner is the host (or virtual owner) that the addresses are for.
	Owner Owner
	// Handle is the caller's key. An address without one is released by address or with its host.
	Handle     string
	Attributes Attributes
	// TTL is the time the addresses are held for; 0 is until they are released.
	TTL time.Duration
	// Share, if it is not zero, lets each address have further holders after the first. It needs a Handle. Each holder has its
	// own host, attributes and lease. The address is free when the last holder has released it.
	Share Share

	// How many.

	// Num4 and Num6 are how many addresses of each family.
	Num4, Num6 int
	// Partial accepts fewer addresses than asked, also if one commit cannot hold them all; Assigned.Short says why. Without it a
	// shortage in any family is an error and nothing is assigned.
	Partial bool

	// Which.

	// Use is one of Workload, Tunnel and LoadBalancer; Workload by default.
	Use Use
	// Namespace has the labels of the namespace.
	Namespace map[string]string
	// Pools narrows the choice to the named pools; their selectors then apply only with Selectors.
	Pools     []string
	Selectors bool
	// Choose is one of [Prefer], [From], [Contiguous] and [Aligned]; by default the order of the pools decides.
	Choose Choice
	// Sticky prefers the addresses that the handle had last from a call with Sticky, named by the caller or not, if they are
	// free. It costs one round trip more.
	Sticky bool
	// Blocks restricts the blocks that the call makes for the owner.
	Blocks BlockArgs

	// Once.

	// Existing returns the addresses that the handle holds, in Pools if these are named, in place of assigning more. Num4 and Num6
	// are then ignored: a handle with addresses of one family gets none of the other. Concurrent calls with Existing for one
	// handle assign addresses once, even on several engines. Addresses that are held for another host than Owner move to Owner, as by
	// Engine.Assign: all of them or none. Leases keep their end, even if TTL is 0; Renew moves it. Existing
	// costs one round trip more and excludes Request.
	Existing bool
	// Request, if not empty, names this request: a repetition returns the addresses of the first answer that the handle still
	// holds, and assigns the rest; with Contiguous or Aligned it fails with [ipalloc.ErrMismatch] if some of them have been
	// released. The same key with other arguments is [ipalloc.ErrInvalid].
	Request string
	// Also lists records of yours to write in the same commit, both or neither: for example the row of a machine with its
	// address. Their keys begin with an upper-case letter. Keys with L and X, of hostlocal and prefixes, can only be guarded.
	// Also is written only if something is assigned: not if Existing finds addresses of the handle, and not by a repeated
	// Request, because its first commit has written it. A repeated Request may have another Also.
	Also []store.Op
}

// BlockArgs restricts the blocks that a call makes for its owner. They depend on the owner, not on the pool: a Windows host
// reserves three addresses and one of each block, a Linux host of the same pool none.
type BlockArgs struct {
	// Max narrows the limit of blocks per host if it is above 0.
	Max int
	// Head and Tail are the addresses to reserve for the host at the ends of each block; they need strict affinity.
	Head, Tail uint64
}

// AssignIPArgs are the arguments of Engine.AssignIP. Fields that [AssignArgs] has too mean the same.
type AssignIPArgs struct {
	Address netip.Addr
	// Owner is the host that the address is for.
	Owner      Owner
	Handle     string
	Attributes Attributes
	TTL        time.Duration
	Share      Share
	// Since is when the holder got an address that is imported. Zero and future times mean now.
	Since time.Time
	// Use, if not 0, must be one that the pool allows.
	Use Use
	// Namespace has the labels of the namespace.
	Namespace map[string]string
	// Selectors applies the selectors of the pool that has the address: its Nodes to the labels of the owner, its Namespaces to
	// Namespace. If it is false, no selector is applied. Pool.Manual is ignored in either case, because the address names the pool.
	Selectors bool
	// WithinRules assigns the address only if automatic assignment could choose it for the owner; otherwise the call fails. The pool's
	// selectors, Ranges and Subnet, the reservations and affinity apply. Use it for a client that needs the address it asks for or a
	// refusal, such as a DHCP client after a restart. The address names its pool, so a Manual pool gives it too: what a client must
	// not get belongs into a pool with Nodes or Namespaces, or into another space. Use is then Workload by default. WithinRules
	// excludes Share.
	WithinRules bool
	// Sticky remembers the address for calls with [AssignArgs].Sticky. Without it nothing is remembered.
	Sticky bool
	// Blocks restricts the block that the call makes for the owner.
	Blocks BlockArgs
	// Request, if not empty, names this request: a repetition returns the allocation if the handle still holds it, and
	// otherwise assigns the address again. The same key with other arguments is [ipalloc.ErrInvalid].
	Request string
	// Also lists records of yours to write in the same commit, as in [AssignArgs]: not if the handle already has the
	// address, and not by a repeated Request.
	Also []store.Op
}

// Shortage says why a pool gave fewer addresses than asked.
type Shortage struct {
	Family int // 4 or 6
	Pool   string
	Reason Reason
	// Until is when the first of its cooling addresses is free, with ReasonCoolingLeft.
	Until time.Time
	// Limit is the limit reached, with ReasonLimitReached, and the blocks that the owner has or would have got. Max is 0
	// under NoAutoBlocks.
	Limit BlockLimit
	// InTheWay is a block that keeps addresses from the call, with ReasonDrainingLeft.
	InTheWay netip.Prefix
}

// Shortages returns why pools gave too few addresses, from the error of any call that assigns: what Assigned.Short has for
// AutoAssign. It returns nil for an error that is about something else.
func Shortages(err error) []Shortage {
	var s interface{ Shortages() []Shortage }
	if !errors.As(err, &s) {
		return nil
	}
	return s.Shortages()
}

// Explanation says what one pool would do for a call.
type Explanation struct {
	// Shortage is why the pool gives too few addresses. If Gives is not empty, only Family and Pool are set.
	Shortage
	// Gives are the addresses that it would give.
	Gives []netip.Addr
}

// Assigned is the result of Engine.AutoAssign.
type Assigned struct {
	V4, V6 []Allocation
	// Short has one entry for each pool tried in a family that got fewer addresses than asked, also if the call fails for that. If
	// no pool qualifies, it has one for each pool, or for each pool that the call names.
	Short []Shortage
}

// Reason says why a pool gave no more addresses, or does not qualify. The zero value is no reason.
type Reason uint8

const (
	// ReasonFull: every address is held.
	ReasonFull Reason = iota + 1
	// ReasonReservedLeft: only reserved addresses are left.
	ReasonReservedLeft
	// ReasonDrainingLeft: a block of another size than the pool's keeps addresses from being assigned until it is empty: those around
	// it in the place of one of the pool's size, or its own, if several pools serve it.
	ReasonDrainingLeft
	// ReasonCoolingLeft: only cooling addresses are left.
	ReasonCoolingLeft
	// ReasonForeignLeft: other owners have blocks with room, and strict affinity forbids borrowing from them.
	ReasonForeignLeft
	// ReasonLimitReached: there are free blocks, and a limit or the configuration forbids claiming them.
	ReasonLimitReached
	// ReasonFragmented: addresses are left, but no block that the owner has or may get has as many in a row as Contiguous or
	// Aligned needs.
	ReasonFragmented
	// ReasonTooSmall: the blocks of the pool are too small for the run that Contiguous asks for.
	ReasonTooSmall
	// ReasonOutsideLeft: every address that the Ranges and Subnet of the pool allow is held; only AssignIP assigns the others.
	ReasonOutsideLeft
	// ReasonBelowFrom: every address at or after From is held, and those below are not searched.
	ReasonBelowFrom
	// ReasonCommitFull: addresses are left, but one commit of the store cannot hold more.
	ReasonCommitFull

	// The others say why a pool does not qualify.

	// ReasonOtherFamily: the pool has addresses of the other family.
	ReasonOtherFamily
	// ReasonNotNamed: the call names other pools, or names none and the pool is Manual.
	ReasonNotNamed
	// ReasonDisabled: the pool is disabled.
	ReasonDisabled
	// ReasonOtherUse: the pool is for other uses.
	ReasonOtherUse
	// ReasonEndsTooLarge: Head and Tail leave no address in a block of the pool.
	ReasonEndsTooLarge
	// ReasonNotOfHost: its Nodes do not select the owner.
	ReasonNotOfHost
	// ReasonNotOfNamespace: its Namespaces do not select the namespace.
	ReasonNotOfNamespace
)

// reasonNames are the texts of the reasons.
var reasonNames = [...]string{
	"", "full", "reserved", "draining", "cooling", "foreign", "limit", "fragmented", "blocks too small",
	"full, only addresses that AssignIP gives are left", "full from there on", "more than one commit takes",
	"of the other family", "only calls that name it", "disabled", "for other uses", "blocks not larger than Head and Tail",
	"does not select the host", "does not select the namespace",
}

// String returns a few words, and "" for no reason.
func (r Reason) String() string { return nameOf(reasonNames[:], "reason", r) }

// MarshalText returns what String returns. It returns [ipalloc.ErrInvalid] for an unknown reason.
func (r Reason) MarshalText() ([]byte, error) { return writeName(reasonNames[:], "reason", r) }

// UnmarshalText reads what MarshalText writes. It returns [ipalloc.ErrInvalid] for anything else.
func (r *Reason) UnmarshalText(text []byte) error { return readName(reasonNames[:], "reason", r, text) }
