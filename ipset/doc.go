// Package ipset hands out single addresses from pools, to any number of hosts and
// programs that share one store.
//
//	engine, err := ipset.New(db, ipset.Options{})                           // db: a file, etcd, memory
//	err = engine.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: prefix})     // once more: nothing
//	address, err := engine.Assign(ctx, alloc.HostOwner("node-a"), "pod-1")  // again: the same address
//	released, err := engine.ReleaseByHandle(ctx, "pod-1")
//
// # Terms
//
//	pool      a prefix from which addresses are handed out; one inside another takes precedence there
//	block     an aligned child prefix of a pool, of its BlockBits
//	host      a machine; each address is held for one, and each block belongs to at most one owner
//	owner     a host, or a virtual owner such as a controller; "affinity" is its claim to its blocks
//	handle    your key for the addresses of one thing: a pod, a virtual machine, a lease
//	borrowed  held for a host that does not own the block
//	shared    held by several handles, each with its host, attributes and lease; free with the last
//	cooling   released, and not yet to be used again
//
// # Calls
//
//	assign        Assign, of any pool or of named ones; AutoAssign with all options; AssignIP for a named address, or to share it
//	release       ReleaseByHandle, ReleaseIPs, ReleaseAddressesOf a host; Release all or none
//	leases        Offer, RenewIP, Renew, Decline
//	look up       Lookup, IPsByHandle, IPsByHost, IPsByAttribute, IPsByShare, Allocations, Hosts, Utilization
//	pools         Pools, AddPool, UpdatePool, RemovePool
//	hosts         EnsureBlock, ClaimAffinity, DisownBlocks, RemoveHost
//	follow        Changes, what every commit did; Follow, to keep a cache fresh
//	what if       DryRun: an engine whose calls answer the same and write nothing
//	spaces        InSpace, for pools of tenants that overlap
//
// [Engine.Operator] has the calls for operating the pools:
//
//	every minute  Sweep for leases and cooldowns that have ended; a Collector for leaks
//	settings      Config, SetConfig, SetReservations, SplitPool, MergePools, Drain, Reindex
//	blocks        Blocks, BlockOf, ImportBlock, Borrowings
//	in doubt      Check, Repair
//	spaces        Spaces, RemoveSpace
//
// # Which address
//
// AutoAssign takes pools by their Priority. In those of one priority it serves a host from
// its own blocks in address order, and first-in first-out inside a block, so a released
// address rests as long as possible. Then it claims a free
// block, searching from a place fixed by the host's name; then it takes over a block of
// another owner that has been empty for a minute; then it adopts a block without owner;
// then, unless affinity is strict, it borrows. Limits forbid claiming, never borrowing.
// Contiguous addresses come from one block of the owner and are not borrowed.
//
// A block without owner is deleted by the commit that writes it as empty. A release of its
// last address is such a commit. Where its last lease or cooldown ends by time, that is
// written by the next Sweep, by a call that meets the block, and by an assignment that
// looks beyond its owner's blocks: that one first writes what has ended in its pools, so
// it gives the address that it would give after a Sweep. Until then the block is listed.
//
// # Errors
//
// Every error but a context's is, or wraps, an *ipalloc.Error. A conflict with another
// engine is retried. [ipalloc.ErrUnknownOutcome] means that the connection broke, or the
// context ended, while a commit was in flight: it may have been made. Then:
//
//   - Repeat [Engine.Assign], or AutoAssign with Existing: they return what the handle holds.
//   - Repeat AutoAssign or AssignIP with its request key. It returns what of the first
//     answer is still held and assigns the rest. [Operator.Sweep] forgets the key after a day.
//   - Otherwise release by handle, on the same engine. An engine remembers a lost commit and
//     settles it before it plans or reads anything else.
//
// # Cost
//
//	AutoAssign from a block, release   O(1), one commit; in blocks above 64 addresses O(spans of the free queue)
//	lowest or random address           O(spans of the free queue, log spans for the lowest), at most some 32 of 64 addresses
//	neighbours (Contiguous)            O(spans log spans) a block looked at, those of the owner before a free one
//	first block of a host              O(log64 n) page records, two round trips
//	block to borrow                    O(log n)
//	full pool                          O(1)
//	by handle, by host                 O(addresses of the handle or host), a list and a read or commit
//	Utilization                        O(blocks), without their addresses
//	Check                              O(n), in pages; memory O(blocks + what is wrong)
//	Collect                            O(n), in pages; memory O(what is not in use)
//
// Callers of one engine are combined: while a commit is in flight, calls that arrive wait
// and go into the next one together, as many as fit. One engine has one commit in flight;
// many engines may share one store. A call whose caller gives up before it is part of a
// commit is not carried out.
//
// # Clocks
//
// Leases, cooldowns and the age of idle blocks are compared with the clock of the engine
// that serves the call. If the clocks of engines on one store differ, set [Options].Skew to
// the largest difference: everything ends later by that time.
//
// # Spaces
//
// A store may have any number of named spaces, for tenants, VRFs or virtual networks whose
// pools overlap. [Engine.InSpace] returns the engine of one. Everything that an engine has
// or does is of its own space: pools, configuration, reservations, hosts, handles, request
// keys, queries, Check. A commit in a space allocates once more, and its keys are longer by
// the name and two bytes. The space without a name costs nothing.
//
// Records of your own may lie in the same store, and in each space of it, under keys that
// begin with an upper-case letter. This package does not read, report or remove them, and
// writes those that a call names in Also, in the commit of its addresses.
//
// # Limits
//
// A block has 1 to 2^64 addresses; at most 2^24 may be held. A name (host, handle, request
// key, pool) has at most 1,024 bytes and no NUL byte. An address has at most 256 holders. Attributes of one address have at
// most 64 KiB, and the record of an address with several holders 256 KiB; [ipalloc.ErrLimit] says so. An owner may have any
// number of blocks; with more than 64, its order of addresses follows what the engine saw last.
//
// The record of a block of 2^16 addresses or more grows by about 3 bytes for each stretch of its free addresses, and every commit
// in the block writes it: 72 KB after 25,000 of 50,000 addresses were released in random order. Where it would be longer than a
// value of the store may be, releases there fail with [ipalloc.ErrLimit]: from some 165,000 stretches on in etcd with values of
// 500 KB. Choose smaller blocks for so many addresses.
//
// The pools are one record: 10,000 with as many reserved ranges take some 260 KB, which a
// change of a pool rewrites and an engine reads again, 5 ms of work. Other calls do not
// depend on their number.
//
// A store takes 2^24 changes by which a pool gets addresses or another block size while its
// family has, or had, blocks of other sizes: one a minute for 31 years. Then such a change fails
// with [ipalloc.ErrLimit], and all else goes on. Other changes of pools do not count. What is
// left of hosts, blocks and pools that are gone is 64 records for each block size.
//
// A reserved range is passed over in one step, whatever its size. A free block that is
// wholly reserved keeps its page from being full, so the search for another block in an
// otherwise full pool reads one page for each such hole. Blocks that have been empty for
// less than a minute, or have only cooling addresses, are passed over by their index
// records, 64 to a list. A pool in another one is passed over in one step, pools side by
// side together.
//
// # Concurrency and restart
//
// An [Engine] and a store are safe for concurrent use; a [block.Block] is not. Nothing is held
// outside the store: a new engine starts with an empty cache. [Engine.Follow] keeps the
// cache of an engine fresh where others change what it serves. [Engine.Changes] delivers what
// every commit did, whole and in order, for an audit log.
//
// The records, and what a commit relies on, are described in README.md of package store.
package ipset
