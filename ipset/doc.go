// Package ipset hands out single addresses from pools that are divided into blocks, each block kept close to one host.
//
// Terms: a pool is a prefix; a block is an aligned child prefix of it, the unit of ownership and of writing; an ordinal
// is the position of an address in its block; a handle is the caller's opaque key for the addresses of one thing (a pod,
// a virtual machine); the affinity of a block is the one owner it belongs to, or nobody; a host borrows when it takes
// an address from a block of another owner; a cooling address is released and not yet reusable.
//
// Each address is held for a host, which is what [Engine.ReleaseAddressesOf] goes by: mostly the owner of its block, else
// one that borrowed it.
//
// Policy: AutoAssign serves a host from its own blocks in address order, first-in first-out inside a block; then claims
// a free block, searching from a place fixed by the host's name; then takes over a block of another owner that has been
// empty for a minute; then, unless affinity is strict, borrows. Limits forbid claiming, never borrowing.
//
// # State
//
// All state is records in a [store.Store]: ordered keys with opaque values and a revision each. The first byte of a key
// is its kind:
//
//	c                     the catalog: configuration, pools, reservations, the generation of pool changes
//	b<block>              a block: its affinity, its free and cooling queues, which addresses are held
//	a<address>            exists while the address is held or cooling: its holder, host, attributes, sequence number, time
//	s<size,level,index>   a space page: which 64 blocks, or pages below, of one block size are taken
//	o<owner>              the blocks of one owner, in address order
//	h<handle>\0<address>  exists while the handle holds the address; like all that follow, <address> has its block's length
//	n<host>\0<address>    exists while the host holds the address and was not the block's owner when it got it
//	f<owner>\0<block>     exists while an address of the block is held and the owner had it before the present one
//	r<block>              exists while the block has an address that is free or cooling
//	e<block>              exists while no address of a block with an owner is held; since when it is empty
//	u<block>              exists while a block without owner has room
//	d<time><block>        the moment at which time alone changes the block: a lease or a cooldown ends
//	q<request>            the answer that was given to a request key; q\0<handle> that of Assign
//	l<family><handle>     the last addresses of a sticky handle
//	t<time><q or l>       a request or a sticky handle by its age
//
// Keys that begin with an upper-case letter belong to other programs, such as package hostlocal. This package neither
// reads nor reports them.
//
// So an assignment writes what it changes: the record of the block, of at most some 130 bytes for 64 addresses however many are
// held, the record of the address, and the index records that come or go. An address record is written in the block's commit,
// on the block's revision, so it needs no expectation of its own: at one revision of a block its addresses are what they are. An
// engine reads them when it needs them: to release or to look at an address, not to assign one.
//
// h and n are indexes, functions of an address; f, r, e, u and d are functions of a block. They are written in the same commit,
// so they cannot drift. They are written without an expected revision, because the writer has the block's: no two
// commits compete for an index record, and a handle with addresses in many blocks is no point of contention.
// Blocks are keyed by prefix, not by pool: splitting or merging pools writes the catalog alone.
//
// # Commits
//
// An engine keeps a cache of what it has read and writes with one commit per change, which names the revision
// of every record that it writes or relied upon. It is right only because the store checks these. Every commit that
// takes an address guards the catalog, so that a pool that was disabled, resized or removed, and a changed
// reservation, are seen by every engine from the next commit on, watch or no watch. What a decision rests upon is
// guarded as well: the owner's blocks passed over because they were full, the pages on the way to a free one, and, for an answer
// that changes nothing, all that it says. So how much an engine remembers, and how old that is, changes what a call costs
// and not what it answers.
//
// A claim writes the block (which must not exist), the page that finds it, and the owner's record. The page
// carries the highest sequence number of the blocks that were deleted under it: deleting a block raises this mark
// in the same commit and a new block starts above it, so that a sequence number never repeats for an address. Every
// change of the set of pools raises the catalog's generation, the upper 20 bits of the sequence numbers of blocks
// made from then on, which keeps this true when the block size of a range changes. Because only the current block
// size of a pool can be claimed and the claim guards the catalog, a block of another size can only vanish, and it is
// enough to look once whether one is in the way.
//
// A free block is found by descending the pages: a 64-ary tree with one word per record, so that a host's first
// block costs one read and one commit, and a full pool is one word. A block with room, an empty one and an orphan
// are found through the ordered indexes, each by one short list from a place fixed by the host's name.
//
// Callers of one engine are combined: while a commit is under way, calls that arrive wait and go into the next one together, as
// many as fit. One engine therefore has one commit under way; many engines may share one store. A call whose caller gives up
// before it is part of a commit is not carried out. A call that meets conflicts without end fails alone.
//
// # Unknown outcomes
//
// The outcome of a commit is done, a conflict (retried after reading again) or unknown ([ipalloc.ErrUnknownOutcome]: the connection
// broke, or the context ended, while the commit was under way). What to do then:
//
//   - [Engine.Assign], and AutoAssign with Existing, may be repeated: they return what the handle holds.
//   - AutoAssign and AssignIP with a request key may be repeated: the key is written in the commit that serves it, so that the
//     repetition returns what of the first answer is still held and assigns the rest. The same key with other arguments is refused.
//   - Otherwise release by handle, on the same engine. An engine remembers a lost commit and makes sure, before it plans or
//     reads anything else, that it has been made or cannot be made any more.
//
// A request key is remembered until [Engine.Sweep] finds it old, after a day by default; repeated later it is a new request.
//
// # Clocks
//
// Leases, cooldowns and the age of idle blocks are compared with the clock of the engine that looks. Engines on one store need
// clocks that agree, or [Options].Skew: the largest difference, by which everything ends later.
//
// # Limits
//
// A block has 1 to 2^64 addresses, of which 2^24 may be held. A name (host, handle, request key, pool) is at most 1,024 bytes and holds no NUL
// byte; attributes of one address are at most 64 KiB. The list of blocks of one owner is one record: an owner with
// 10,000 blocks rewrites 60 KB per claim; with more than 64 blocks it has addresses in the order of what the engine last saw.
//
// A reserved range is passed over in one step, whatever its size. A free block that is wholly reserved keeps its page from
// being full, so that the search for another block in an otherwise full pool reads one page for each such hole. Blocks that are
// empty for less than a minute, or have only cooling addresses, are passed over by their index records, 64 to a list.
//
// # Complexity
//
//	AutoAssign from a block, release   O(1), one commit; in blocks above 64 addresses O(spans of the free queue)
//	first block of a host              O(log64 n) page records, two round trips
//	block to borrow                    O(log n)
//	full pool                          O(1)
//	by handle, by host                 O(addresses of the handle or host), a list and a read or commit
//	Utilization, Check                 O(n)
//
// Changes are observed at the store: [Store.Watch] delivers every commit whole and in order, which is what a journal, an
// audit log or a metric is built from.
//
// Concurrency: an [Engine] and a store are safe for concurrent use; a [Block] is not. Restart: nothing is held outside
// the store; a new engine starts with an empty cache.
package ipset
