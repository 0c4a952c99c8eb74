// Package nodeipam gives every node of a cluster its pod prefixes, one for each
// address family, and remembers who holds what. Package
// [github.com/ipalloc/ipalloc/cidrset/nodeipam/controller] keeps an [Allocator] and the
// records of an API server in step.
//
// # Terms
//
// An owner is a node, known by its name. A slot is one of the prefixes that each
// node gets, in the order of its podCIDRs; it has a child length and a list of
// pools (cluster CIDRs) of one family, tried in order. Pools never overlap. A
// reservation is a prefix that no owner can take or free: a service CIDR. A
// prefix is held if an owner was given it or is seen to have it; a foreign one is
// held and not a child of its slot's pools.
//
// # Policy
//
// [Allocator.Allocate] takes the first free child at or after the cursor of the
// first pool with room, for every slot or for none, and answers the same when asked
// again. A child is free if nothing that is held or reserved overlaps it, whatever
// its size: foreign prefixes are kept out of circulation, also in pools that are
// added later, and a child that several owners hold or share is free when the last
// of them is released. [Allocator.Occupy] takes what the caller names and refuses
// what is not right; [Allocator.Observe] and [Allocator.Load] record what nodes
// have, right or not, and say what is wrong with it. [Allocator.Release] is by
// owner, never by what the node's record says now.
//
// # Errors
//
// Every error is an [*Error] that names owner, slot, pool and prefix, around one of
// the sentinels below. After an error nothing has changed.
//
// # Limits and cost
//
// A pool has up to 2^64 children. Allocate, Release, Occupy and Observe are O(log n)
// however full a pool is and however many owners there are. An owner costs its name,
// its prefixes and about 100 bytes for each of them.
//
// # Concurrency
//
// All methods are safe for concurrent use. One mutex guards an allocator; it is
// never held while the caller's code runs: the function given to [OnChange], the
// body of a loop.
//
// # Restart
//
// An allocator starts with [Allocator.Load] of the full list of nodes, or with
// [Restore] of a snapshot. Load after Restore brings it up to date; what it does
// not list is to be released by the caller, as a controller does.
//
// # Origin
//
// The policy is that of the range allocator of the Kubernetes node IPAM controller.
// It departs from it where that one leaks, double-assigns or does not start: a
// failing dual-stack allocation takes nothing, prefixes have owners, reservations
// cannot be freed, an ambiguous write keeps its prefix, and a bad record is a
// message. It stands on the bitmap and the codec rather than on cidrset.Set: one
// lock for all slots, so that all or nothing needs no way back.
package nodeipam
