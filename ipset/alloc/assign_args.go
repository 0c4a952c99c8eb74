package alloc

import (
	"errors"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// AssignArgs are the arguments of Engine.AutoAssign. Zero fields select the defaults.
type AssignArgs struct {
	// Owner is the host (or virtual owner) that the addresses are for.
	Owner Owner
	// Handle is the caller's key. An address without a handle is released by address or
	// with its host.
	Handle     string
	Attributes Attributes
	// TTL is the duration of the leases; 0 means that the addresses are held until they
	// are released.
	TTL time.Duration
	// Share, if it is not zero, lets each address have further holders after the first.
	// It needs a Handle. Each holder has its own host, attributes and lease. The address
	// is free after its last holder releases it.
	Share Share

	// How many.

	// Num4 and Num6 are the numbers of addresses of each family.
	Num4, Num6 int
	// Partial accepts fewer addresses than requested, also if one commit cannot hold them
	// all; Assigned.Short has the reasons. Without it a shortage in any family is an
	// error and nothing is assigned.
	Partial bool

	// Which.

	// Use is Workload, Tunnel or LoadBalancer; the default is Workload.
	Use Use
	// Namespace has the labels of the namespace.
	Namespace map[string]string
	// Pools restricts the choice to the named pools; their selectors then apply only with
	// Selectors. Pools of one priority claim blocks in the order given here, so a caller
	// can put the pool with the most room first. Every address that the call names must
	// be in a named pool.
	Pools     []string
	Selectors bool
	// Choose is [Prefer], [From], [Contiguous] or [Aligned]; by default the order of the
	// pools decides.
	Choose Choice
	// Sticky prefers the addresses that the handle held last from a call with Sticky,
	// whether named by the caller or not, if they are free. It costs one more round trip.
	Sticky bool
	// Blocks restricts the blocks that the call makes for the owner.
	Blocks BlockArgs

	// Once.

	// Existing returns addresses that the handle holds, in Pools if these are named, and
	// assigns only the rest of Num4 and Num6. It returns the first assigned address first,
	// and at most Num4 and Num6 addresses. Concurrent calls with Existing for one handle
	// assign addresses once, even on several engines. Addresses that are held for another
	// host than Owner move to Owner, as Engine.Assign describes, all of them or none. The
	// returned addresses get the Attributes of the call, unless it has none. Leases keep
	// their expiry, even if TTL is 0; use Renew to extend them. Existing costs one more
	// round trip. It excludes Request and, in AssignIPs, named addresses. With Contiguous
	// or Aligned it fails with [ipalloc.ErrMismatch] if the handle holds some of the
	// addresses but not all.
	Existing bool
	// WithinRules applies the present rules of automatic assignment to the addresses that
	// Existing or Engine.Offer finds and that AssignIPs names. The rules are Ranges and
	// Subnet, reservations, Disabled, Manual, selectors and affinity. If they refuse an
	// address, the call fails with the error of AutoAssign, and a lease runs to its end. A
	// disabled pool of leases therefore becomes empty. WithinRules excludes Share with
	// named addresses.
	WithinRules bool
	// Request, if not empty, identifies this request. If a call repeats it, the call
	// returns the addresses that the first call assigned and the handle still holds, and
	// assigns the rest. It fails with [ipalloc.ErrMismatch] if an address has moved to
	// another host, which the error names, or, with Contiguous or Aligned, if some have been
	// released. The same key with other arguments fails with [ipalloc.ErrInvalid].
	Request string
	// Also lists operations on your own records for the same commit, both or neither: for
	// example the row of a machine with its address. Their keys begin with an upper-case
	// letter. Keys with L and X, which belong to hostlocal and prefixes, can only be
	// guarded. The call writes Also only if it assigns something. It does not write Also
	// if Existing finds addresses of the handle, or if a Request is repeated, because its
	// first commit has written it. A repeated Request may have another Also.
	Also []store.Op
}

// BlockArgs restricts the blocks that a call makes for its owner. The restrictions depend
// on the owner, not on the pool. For example, a Windows host reserves three addresses at
// the start and one at the end of each block, and a Linux host of the same pool none.
type BlockArgs struct {
	// Max lowers the limit of blocks per host if it is above 0.
	Max int
	// Head and Tail are the addresses to reserve for the host at the ends of each block; they need strict affinity.
	Head, Tail uint64
}

// AssignIPArgs are the arguments of Engine.AssignIP. Fields that [AssignArgs] also has
// mean the same.
type AssignIPArgs struct {
	Address netip.Addr
	// Owner is the host that the address is for.
	Owner      Owner
	Handle     string
	Attributes Attributes
	TTL        time.Duration
	Share      Share
	// Since is when the holder of an imported address got it. Zero and future times mean
	// now.
	Since time.Time
	// Use, if not 0, must be a use that the pool allows.
	Use Use
	// Namespace has the labels of the namespace.
	Namespace map[string]string
	// Pools, if it is not empty, must name the pool that contains the address.
	Pools []string
	// Selectors applies the selectors of the pool that contains the address: its Nodes to
	// the labels of the owner, its Namespaces to Namespace. Otherwise no selector
	// applies. Pool.Manual is ignored in either case, because the address names the pool.
	Selectors bool
	// WithinRules assigns the address only if automatic assignment could choose it for
	// the owner; otherwise the call fails. The pool's selectors, Ranges and Subnet, the
	// reservations and affinity apply. Use it for a client that needs either the
	// requested address or a refusal, such as a DHCP client after a restart. A Manual
	// pool serves the call too, because the address names its pool. Put addresses that
	// clients must not get in a pool with Nodes or Namespaces, or in another space. The
	// default of Use is then Workload. The rules also apply if the handle already holds the
	// address. WithinRules excludes Share.
	WithinRules bool
	// Sticky remembers the address for calls with [AssignArgs].Sticky. Without it the
	// call records nothing for Sticky.
	Sticky bool
	// Blocks restricts the block that the call makes for the owner.
	Blocks BlockArgs
	// Request, if not empty, identifies this request. A repetition returns the allocation
	// if the handle still holds it, and otherwise assigns the address again. If the address
	// has moved to another host, it fails with [ipalloc.ErrMismatch], which names that host.
	// The same key with other arguments fails with [ipalloc.ErrInvalid].
	Request string
	// Also lists operations on your own records for the same commit, as in [AssignArgs].
	// The call does not write Also if the handle already holds the address, or if a
	// Request is repeated.
	Also []store.Op
}

// Shortage is the reason why a pool gave fewer addresses than requested.
type Shortage struct {
	Family int // 4 or 6
	Pool   string
	Reason Reason
	// Until is when the first of the pool's cooling addresses becomes free, with
	// ReasonCoolingLeft.
	Until time.Time
	// Limit is the limit reached, with ReasonLimitReached, and the number of blocks that
	// the owner has or would have got. Max is 0 with NoAutoBlocks.
	Limit BlockLimit
	// InTheWay, with ReasonDrainingLeft, is a block that makes addresses unavailable to
	// the call.
	InTheWay netip.Prefix
}

// Shortages returns the reasons why pools gave too few addresses, from the error of any call that assigns. For AutoAssign they are
// also in Assigned.Short. Shortages returns nil for an error with another cause.
func Shortages(err error) []Shortage {
	var s interface{ Shortages() []Shortage }
	if !errors.As(err, &s) {
		return nil
	}
	return s.Shortages()
}

// Explanation is the result that one pool would have for a call.
type Explanation struct {
	// Shortage is the reason why the pool gives too few addresses. If Gives is not empty,
	// only Family and Pool are set.
	Shortage
	// Gives lists the addresses that the pool would give.
	Gives []netip.Addr
}

// Assigned is the result of Engine.AutoAssign.
type Assigned struct {
	V4, V6 []Allocation
	// Short has one entry for each pool tried in a family that got fewer addresses than
	// requested, also if the call fails because of that. If no pool qualifies, Short has
	// one entry for each pool, or for each pool that the call names.
	Short []Shortage
}

// Reason is the reason why a pool gave no more addresses, or does not qualify. The zero
// value means no reason.
type Reason uint8

const (
	// ReasonFull: every address is held.
	ReasonFull Reason = iota + 1
	// ReasonReservedLeft: only reserved addresses are left.
	ReasonReservedLeft
	// ReasonDrainingLeft: a block of another size than the pool's makes addresses
	// unavailable until it is empty. These are the addresses around it that a block of
	// the pool's size would contain, or its own addresses if several pools serve it.
	ReasonDrainingLeft
	// ReasonCoolingLeft: only cooling addresses are left.
	ReasonCoolingLeft
	// ReasonForeignLeft: blocks of other owners have room, and strict affinity forbids
	// borrowing from them.
	ReasonForeignLeft
	// ReasonLimitReached: free blocks exist, but a limit or the configuration forbids
	// claiming them.
	ReasonLimitReached
	// ReasonFragmented: addresses are left, but no block that the owner has or may claim
	// has as many in a row as Contiguous or Aligned needs.
	ReasonFragmented
	// ReasonTooSmall: the blocks of the pool are smaller than the run that Contiguous
	// requests.
	ReasonTooSmall
	// ReasonOutsideLeft: every address in the Ranges and Subnet of the pool is held; only
	// AssignIP assigns the others.
	ReasonOutsideLeft
	// ReasonBelowFrom: every address at or after From is held, and lower ones are not
	// searched.
	ReasonBelowFrom
	// ReasonCommitFull: addresses are left, but one commit of the store cannot hold more.
	ReasonCommitFull

	// The remaining reasons explain why a pool does not qualify.

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

// String returns the reason in a few words, "" for the zero value.
func (r Reason) String() string { return nameOf(reasonNames[:], "reason", r) }

// MarshalText returns the text of String. It fails with [ipalloc.ErrInvalid] for an
// unknown reason.
func (r Reason) MarshalText() ([]byte, error) { return writeName(reasonNames[:], "reason", r) }

// UnmarshalText reads the text of MarshalText. It fails with [ipalloc.ErrInvalid] for any
// other text.
func (r *Reason) UnmarshalText(text []byte) error { return readName(reasonNames[:], "reason", r, text) }
