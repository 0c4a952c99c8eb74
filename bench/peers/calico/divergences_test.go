package main

// divergence is a case in which Calico (release-v3.28) and we do not answer alike, on purpose. The replay of a trace
// accepts no other difference.
type divergence struct {
	Case, Calico, Ours, Reason string
	// Replayed says that random traces show it; the others have a test of their own each. Traces may show one of those, too.
	Replayed bool
}

// Divergences that a replay shows.
const (
	countsHandles  = "the count of a handle's addresses"
	unknownHandle  = "a handle without addresses"
	countsReserved = "what is available of a block"
	lostIPv6       = "use of IPv6 blocks in no pool"
	poolGone       = "attributes of an address whose pool is gone or disabled"
	shortIsError   = "fewer addresses than asked, because of a limit"
	asksDisabled   = "a disabled pool among those asked for"
	halfDone       = "one family of two fails"
	limitBorrows   = "a host at its limit, room in blocks of others"
	limitPerPools  = "which blocks count towards the limit"
	limitNamed     = "a block for a named address or a claim by hand, at the limit"
	adoptsOrphans  = "a block without owner"
	ownNamed       = "a named address that the handle holds"
	ghostNamed     = "a named address for a host that does not exist"
	selectorMoves  = "empty blocks of a pool that does not select their host any more"
	failsWhole     = "a release of several addresses, one of which is another's"
	staleSequence  = "a release that has been made before, with a sequence number"
	freesReserved  = "a release of an address that is reserved for the host"
	queuesAnyhow   = "the order of addresses released together"
	claimsInVain   = "a named address that is reserved for the host, in a block that is not there yet"
	claimsPart     = "a claim of less than a block"
	claimsDisabled = "a claim in a disabled pool"
	claimsBeyond   = "a claim of more than a pool"
	releasesGone   = "a release of blocks whose pool is gone or disabled"
	releasesPart   = "a release of less than a block"
	stopsAtFirst   = "a release of several blocks, one of which is in use"
)

// Divergences that have a test of their own.
const (
	textOrder       = "the order of a host's own blocks"
	askedOrder      = "the order of the pools asked for"
	oneFamily       = "pools asked for, of one family only"
	smallBlocks     = "reserved ends in blocks that are too small for them"
	looseEnds       = "reserved ends without strict affinity"
	looseLimit      = "a limit of blocks for each host without strict affinity"
	noLimit         = "a host that needs more than 20 blocks, no limit configured"
	nothingAsked    = "no addresses asked"
	singleBlocks    = "the place where the search for a block of one address begins"
	overlaps        = "a pool whose block size changed"
	idleBlock       = "no free block, and one of another host's that is empty for a minute"
	hugeBlocks      = "IPv6 blocks of 2^64 addresses"
	writeLost       = "a crash between two writes"
	handleLost      = "a record of a handle that cannot be written"
	endedBorrow     = "a context that ends while blocks of others are searched"
	endedRelease    = "a context that has ended, and a release"
	crowdedHost     = "256 callers of one host"
	ensuresReserved = "a block for a host whose blocks are reserved"
	ensuresOther    = "a block for a host in named IPv6 pools"
	configuresAny   = "a configuration that nobody wrote"
)

const correct = "who is told what holds can do something about it"

var divergences = []divergence{
	{countsHandles, "counts as many as were asked for, and one for several released together: the record outlives the addresses",
		"no count: an index record in the commit of the block", "a second record that is written apart drifts", true},
	{unknownHandle, "an error", "no addresses, no error", "a release that is made again has nothing to do", true},
	{countsReserved, "includes addresses that a reservation keeps", "Reserved and Available apart", "a number to plan with is one that can be had", true},
	{lostIPv6, "left out", "listed under no name", "the pseudo pool of such blocks is 0.0.0.0/0", true},
	{poolGone, "does not exist", "the allocation", "the address is held all the same, and who asks wants to know by whom", true},
	{shortIsError, "those that were found, and an error", "those that were found, with the reason per pool", correct, true},
	{asksDisabled, "an error", "the enabled ones serve; ErrNotFound if there is none", "a pool is disabled to be drained, not to break who names it among others", true},
	{halfDone, "the addresses of the first family stay assigned; or the second is not tried", "one commit for both: nothing, or all that can be had", "what is assigned and not told is leaked", true},
	{limitBorrows, "an error", "borrows", "a limit on blocks is there to share them, and borrowing shares", true},
	{limitPerPools, "those of the pools that may serve the call, of one family", "all of the host", "two pools are no reason for twice as many", true},
	{limitNamed, "claims", "ErrLimit", "a limit that a call can go around is none", true},
	{adoptsOrphans, "stays without owner until it is empty; others borrow from it, except with strict affinity", "adopted by the next host that has no room", "otherwise the share of borrowed addresses grows with each host that leaves", true},
	{ownNamed, "an error", "the allocation as it is", "a caller that asks again has what it asks for", true},
	{ghostNamed, "assigned", "ErrNotFound", "as for an address that is not named", true},
	{selectorMoves, "taken from the host when it next assigns or releases", "taken from it by Sweep", "an assignment is one commit; tidying has a time of its own", true},
	{failsWhole, "nothing is released", "the others are released; per address what became of it", correct, true},
	{staleSequence, "a conflict", "was free", "the caller repeats because it does not know whether it was heard", true},
	{freesReserved, "the host's gateway is handed out next", "was free, and stays reserved", "reserved is not held", true},
	{queuesAnyhow, "that of a walk through a map", "ascending", "the same trace gives the same answers", true},
	{claimsInVain, "an error, and a block claimed", "ErrReserved, nothing changes", "an error leaves the state as it was", true},
	{claimsPart, "an error", "listed as failed", "the other pools in the prefix are claimed", true},
	{claimsDisabled, "an error", "listed as failed, each block", "the other pools in the prefix are claimed", true},
	{claimsBeyond, "blocks beyond the pool are claimed", "the part that lies in pools", "nobody said that they are for this", true},
	{releasesGone, "an error", "released", "that is when one has to", true},
	{releasesPart, "an error", "nothing is released, no error", "there is no block in it, as there is none where all are released", true},
	{stopsAtFirst, "the blocks before it are released", "all others are", "the answer does not depend on the order of addresses", true},

	{textOrder, "that of their texts: 10.0.0.128 before 10.0.0.16", "that of their addresses", "addresses have an order", false},
	{askedOrder, "they are tried as they are listed", "they are tried by priority, then by name", "the order is the operator's: Pool.Priority", false},
	{oneFamily, "the other family comes from any pool", "the other family has no pool: ErrNotFound", "who narrows the choice means it", false},
	{smallBlocks, "a block claimed in vain and an error; a panic for blocks of one address", "the pool is passed over", "a request does not fail where another pool can serve", false},
	{looseEnds, "allowed", "ErrInvalid", "others would borrow addresses of a network that is not theirs", false},
	{looseLimit, "an error", "a limit", "it shares blocks with and without borrowing", false},
	{noLimit, "a limit of 20", "no limit", "one owner may be a whole VPN", false},
	{nothingAsked, "nothing", "ErrInvalid", "a caller that asks for nothing has made a mistake", false},
	{singleBlocks, "by the clock", "by the host's name", "the same trace gives the same answers", false},
	{overlaps, "new blocks inside live ones: addresses given out twice", "old blocks drain, no claim overlaps them", "an address has one holder", false},
	{idleBlock, "no address with strict affinity", "the block is taken over", "an idle block is not worth an outage", false},
	{hugeBlocks, "a block of no addresses, and one more with each call", "they serve", "1<<64 is 0", false},
	{writeLost, "an affinity without a block, or a handle that counts what is not there", "all or nothing", "one commit", false},
	{handleLost, "assigned, and lost to a release by handle", "an error, nothing changes", "one commit", false},
	{endedBorrow, "no addresses, and no error", "the context's error", correct, false},
	{endedRelease, "a panic", "the context's error", "no panics on a caller's data", false},
	{crowdedHost, "calls fail while there is room: the block was full when it was claimed", "none fails, and no block too many", "callers of an engine are combined", false},
	{ensuresReserved, "another one, or an error", "the ones it has", "it has a block", false},
	{ensuresOther, "the named IPv4 pools are taken", "the named ones", "an oversight", false},
	{configuresAny, "reading writes the default", "reading writes nothing", "who may read need not be allowed to write", false},
}
