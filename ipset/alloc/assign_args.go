package alloc

import (
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// AssignArgs are the arguments of Engine.AutoAssign. Zero fields mean the default.
type AssignArgs struct {
	// Owner is the host (or virtual owner) that the addresses are for.
	Owner Owner
	// Num4 and Num6 are how many addresses of each family.
	Num4, Num6 int
	// Addresses are given besides these, in the same commit: a static IPv4 address with an automatic IPv6 one. What
	// Engine.AssignIP says of its address holds of each: reservations and ranges do not count for it, selectors count with
	// PoolsAndSelectors alone, one that the handle holds already is given again. If one cannot be given, the call fails, also with
	// Partial. They come first in the result. At most 64.
	Addresses []netip.Addr
	// Claim is the handle, the attributes and the time to live.
	Claim
	// Use is one of Workload, Tunnel and LoadBalancer; Workload by default.
	Use Use
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
	// Existing returns the addresses that the handle holds, of Pools if these are named, in place of assigning more. Num4 and Num6 are
	// then ignored: a handle with addresses of one family gets none of the other. Calls with Existing for one handle give it addresses
	// once, also when they come from several engines at the same time. Leases keep their end, also if TTL is 0: Renew moves it. It
	// costs one round trip more, and goes without a Request.
	Existing bool
	// Wish is an address that a client asks for, as in option 50 of DHCP. It is given if automatic assignment could give it, so it
	// respects ranges, reservations, selectors and limits; otherwise another address is. It comes before what a Sticky handle had
	// last.
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

// AssignIPArgs are the arguments of Engine.AssignIP.
type AssignIPArgs struct {
	Address netip.Addr
	// Owner is the host that the address is for.
	Owner Owner
	Claim
	// Use, if not 0, must be one that the pool allows.
	Use Use
	// Selectors applies the selectors of the pool that has the address: its Nodes to the labels of the owner, its Namespaces to
	// Namespace. If it is false, no selector is applied. Pool.Manual is ignored in either case, because the address names the pool.
	Selectors bool
	// Automatic gives the address only if automatic assignment could give it to the owner, else the call fails: the selectors of its pool
	// apply, its Ranges, Subnet and the reservations, and affinity. So a client gets the address that it asks for, or a refusal, as a
	// DHCP client that restarts does. Use is then Workload by default. It goes without Share.
	Automatic bool
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
	// InTheWay is one of the blocks that ReasonDrainingLeft means; it may be the zero Prefix.
	InTheWay netip.Prefix
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
	// Short has one entry per pool tried in a family with fewer addresses than asked, also beside the error of a shortage. Where no
	// pool qualifies, it has one for each pool, or for each that the call names.
	Short []Shortage
}

// Reason says why a pool gave no more addresses, or does not qualify. The zero value is no reason.
type Reason uint8

const (
	// ReasonFull: every address is held.
	ReasonFull Reason = iota + 1
	// ReasonReservedLeft: only reserved addresses are left.
	ReasonReservedLeft
	// ReasonDrainingLeft: blocks of a size that the pool had before are in the way. Their addresses can be assigned when they are
	// empty.
	ReasonDrainingLeft
	// ReasonCoolingLeft: only cooling addresses are left.
	ReasonCoolingLeft
	// ReasonForeignLeft: other owners have blocks with room, and strict affinity forbids borrowing from them.
	ReasonForeignLeft
	// ReasonLimitReached: there are free blocks, and a limit or the configuration forbids claiming them.
	ReasonLimitReached
	// ReasonFragmented: addresses are left, and no block that the owner has or may get has so many in a row as Contiguous or
	// Aligned asks for.
	ReasonFragmented
	// ReasonTooSmall: no block of the pool has so many addresses in a row as Contiguous asks for.
	ReasonTooSmall
	// ReasonOutsideLeft: every address that the Ranges and Subnet of the pool allow is held, and AssignIP alone gives the others.
	ReasonOutsideLeft
	// ReasonBelowFrom: every address at or after From is held, and those below it are not looked at.
	ReasonBelowFrom
	// ReasonCommitFull: addresses are left, and one commit of the store takes no more.
	ReasonCommitFull

	// The others say why a pool does not qualify.

	// ReasonOtherFamily: it has addresses of the other family.
	ReasonOtherFamily
	// ReasonNotNamed: other pools are named, or it is Manual and none is.
	ReasonNotNamed
	// ReasonDisabled: it is disabled.
	ReasonDisabled
	// ReasonOtherUse: it is for other uses.
	ReasonOtherUse
	// ReasonEndsTooLarge: Head and Tail leave nothing of its blocks.
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
