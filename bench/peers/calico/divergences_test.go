package main

// divergence is a case in which Calico (release-v3.28) and ipset answer differently by design. The replay of a trace
// accepts no other difference.
type divergence struct {
	Case, Calico, Ours, Reason string
	// Replayed reports that random traces show the case. Each other case has a test of its own; traces may show it too.
	Replayed bool
}

// Divergences that a replay shows.
const (
	countsHandles  = "the number of addresses of a handle"
	unknownHandle  = "a handle without addresses"
	countsReserved = "the available addresses of a block"
	lostIPv6       = "use of IPv6 blocks in no pool"
	poolGone       = "attributes of an address whose pool was removed or disabled"
	shortIsError   = "fewer addresses than asked, because of a limit"
	asksDisabled   = "a disabled pool among the named pools"
	halfDone       = "one family of two fails"
	limitBorrows   = "a host at its limit, room in blocks of others"
	limitPerPools  = "which blocks count towards the limit"
	limitNamed     = "a block for a named address or a claim by hand, at the limit"
	adoptsOrphans  = "a block without owner"
	ownNamed       = "a named address that the handle holds"
	ghostNamed     = "a named address for a host that does not exist"
	selectorMoves  = "empty blocks of a pool that no longer selects their host"
	failsWhole     = "a release of many addresses, one held by another handle"
	staleSequence  = "a repeated release with a sequence number"
	freesReserved  = "a release of an address that is reserved for the host"
	queuesAnyhow   = "the order of addresses released together"
	claimsInVain   = "a named address reserved for the host, in a block that does not exist yet"
	claimsPart     = "a claim of a prefix smaller than a block"
	claimsDisabled = "a claim in a disabled pool"
	claimsBeyond   = "a claim of a prefix larger than a pool"
	releasesGone   = "a release of blocks whose pool was removed or disabled"
	releasesPart   = "a release of a prefix smaller than a block"
	stopsAtFirst   = "a release of many blocks, one in use"
)

// Divergences that have a test of their own.
const (
	textOrder       = "the order of a host's own blocks"
	askedOrder      = "the order of named pools that differ in Priority"
	oneFamily       = "named pools of one family only"
	smallBlocks     = "reserved ends in blocks too small for them"
	looseEnds       = "reserved ends without strict affinity"
	looseLimit      = "a limit of blocks for each host without strict affinity"
	noLimit         = "a host that needs more than 20 blocks, no limit configured"
	nothingAsked    = "a request for no addresses"
	singleBlocks    = "the start of the search for a block of one address"
	overlaps        = "a pool whose block size changed"
	idleBlock       = "no free block, but another host has a block that has been empty for a minute"
	hugeBlocks      = "IPv6 blocks of 2^64 addresses"
	writeLost       = "a crash between two writes"
	handleLost      = "a handle record that cannot be written"
	endedBorrow     = "a context that ends while blocks of others are searched"
	endedRelease    = "a context that has ended, and a release"
	crowdedHost     = "256 callers of one host"
	ensuresReserved = "a block for a host whose blocks are reserved"
	ensuresOther    = "a block for a host in named IPv6 pools"
	configuresAny   = "a missing configuration"
)

const correct = "the caller can act on a correct answer"

var divergences = []divergence{
	{countsHandles, "counts the requested number, and counts several addresses released together once: the record outlives the addresses",
		"no count: an index record in the commit of the block", "a second record written in a commit of its own drifts", true},
	{unknownHandle, "an error", "no addresses, no error", "a repeated release has nothing to do", true},
	{countsReserved, "includes reserved addresses", "Reserved and Available apart", "capacity is planned with the addresses that can be assigned", true},
	{lostIPv6, "left out", "listed under no name", "the pseudo pool of such blocks is 0.0.0.0/0", true},
	{poolGone, "does not exist", "the allocation", "the address is still held, and the caller asks for its holder", true},
	{shortIsError, "the addresses found, and an error", "the addresses found, with a reason for each pool", correct, true},
	{asksDisabled, "an error", "the enabled pools serve; ErrNotFound if none is enabled", "disabling drains a pool; it must not break callers that name it among others", true},
	{halfDone, "the addresses of the first family stay assigned; or the second is not tried", "one commit for both families: nothing, or every available address", "an address that is assigned but not returned leaks", true},
	{limitBorrows, "an error", "borrows", "a limit on blocks shares them fairly, and borrowing does so too", true},
	{limitPerPools, "blocks of one family in the pools that may serve the call", "all blocks of the host", "a second pool must not double the limit", true},
	{limitNamed, "claims", "ErrLimit", "a call must not bypass a limit", true},
	{adoptsOrphans, "stays without owner until it is empty; others borrow from it, except with strict affinity", "adopted by the next host that has no room", "otherwise the share of borrowed addresses grows each time a host leaves", true},
	{ownNamed, "an error", "the allocation, moved to the caller's host", "a repeated request is already fulfilled", true},
	{ghostNamed, "assigned", "ErrNotFound", "as for an address that is not named", true},
	{selectorMoves, "taken from the host when it next assigns or releases", "taken from it by Sweep", "an assignment is one commit; tidying has a time of its own", true},
	{failsWhole, "nothing is released", "the others are released; the answer has an outcome for each address", correct, true},
	{staleSequence, "a conflict", "was free", "the caller repeats the release because its outcome is unknown", true},
	{freesReserved, "the host's gateway is the next address assigned", "was free, and stays reserved", "a reserved address is not held", true},
	{queuesAnyhow, "the order of a map iteration", "ascending", "the same trace gives the same answers", true},
	{claimsInVain, "an error, and a block claimed", "ErrReserved, nothing changes", "an error leaves the state as it was", true},
	{claimsPart, "an error", "listed as failed", "the other pools in the prefix are claimed", true},
	{claimsDisabled, "an error", "listed as failed, each block", "the other pools in the prefix are claimed", true},
	{claimsBeyond, "blocks beyond the pool are claimed", "the blocks inside pools are claimed", "addresses outside of the pools are not for assignment", true},
	{releasesGone, "an error", "released", "blocks of a removed pool must be released", true},
	{releasesPart, "an error", "nothing is released, no error", "the prefix contains no block, so none is left to release", true},
	{stopsAtFirst, "the blocks before it are released", "all other blocks are released", "the answer does not depend on the order of addresses", true},

	{textOrder, "by text: 10.0.0.128 before 10.0.0.16", "by address", "addresses have an order", false},
	{askedOrder, "they are tried as they are listed", "they are tried by priority", "Pool.Priority is the operator's; among equals the order of the call holds", false},
	{oneFamily, "the other family is assigned from any pool", "the other family has no pool: ErrNotFound", "a named list of pools is a restriction for both families", false},
	{smallBlocks, "a block claimed in vain and an error; a panic for blocks of one address", "the pool is passed over", "a request must not fail while another pool can serve it", false},
	{looseEnds, "allowed", "ErrInvalid", "other hosts would borrow addresses of a network that is not theirs", false},
	{looseLimit, "an error", "a limit", "it shares blocks fairly with and without borrowing", false},
	{noLimit, "a limit of 20", "no limit", "one owner may be a whole VPN", false},
	{nothingAsked, "nothing", "ErrInvalid", "a caller that asks for nothing has made a mistake", false},
	{singleBlocks, "by the clock", "by the host's name", "the same trace gives the same answers", false},
	{overlaps, "new blocks inside live ones: addresses given out twice", "old blocks drain, no claim overlaps them", "an address has one holder", false},
	{idleBlock, "no address with strict affinity", "the host takes the block over", "an idle block is not worth an outage", false},
	{hugeBlocks, "a block of no addresses, and one more with each call", "they serve", "1<<64 is 0", false},
	{writeLost, "an affinity without a block, or a handle that counts missing addresses", "all or nothing", "one commit", false},
	{handleLost, "assigned, and lost to a release by handle", "an error, nothing changes", "one commit", false},
	{endedBorrow, "no addresses, and no error", "the context's error", correct, false},
	{endedRelease, "a panic", "the context's error", "no panics on a caller's data", false},
	{crowdedHost, "calls fail while there is room: the block was full when it was claimed", "none fails, and no block too many", "callers of an engine are combined", false},
	{ensuresReserved, "another one, or an error", "the blocks it has", "the host has a block already", false},
	{ensuresOther, "the named IPv4 pools are taken", "the named IPv6 pools are taken", "an oversight", false},
	{configuresAny, "reading writes the default", "reading writes nothing", "a reader may lack the right to write", false},
}
