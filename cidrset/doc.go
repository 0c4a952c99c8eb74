// Package cidrset hands out equal child prefixes of one pool, and larger ones
// out of the same pool: the pod CIDRs of nodes, the prefixes of a delegating
// router, the blocks of a cluster.
//
// # Terms
//
// The pool is the masked prefix being divided. A child is one of its 2^k equal
// prefixes of the length given to [New], k from 0 to 64. Its ordinal is its
// position from the lowest address, from 0. A child is taken, free or, with
// [Cooldown], cooling: given back and not to be reused yet.
//
// # Policy
//
// [Set.AllocateNext] takes the first free child at or after the cursor, wrapping
// round; the cursor then stands just after it. Nothing else moves the cursor, so
// that a child given back is reused as late as possible. [LowestFirst], [Random]
// and [Cooldown] change that. [Set.AllocatePrefix] takes a prefix of any length from
// that of the pool to that of a child, aligned, from the smallest free space that
// holds it, so that prefixes of several sizes live in one pool without stranding
// space. [Set.Occupy] takes what the caller names, [Set.Release] gives back.
//
// Prefixes are masked, without zone, and not 4-in-6: write those as IPv4. Only a pool
// that holds all of ::ffff:0:0/96 hands out children in there, and takes them back.
//
// # Errors
//
// Every error is one of the sentinels below (errors.Is), most of them inside an
// [*Error] (errors.As) that names operation, pool and prefix. After an error the
// set is as it was before.
//
// # Cost
//
// Every method is O(log n) in the number of children, however full the set,
// but for iterators, Snapshot and Check. AllocateNext and Release take tens of
// nanoseconds and do not allocate in steady state; a prefix of 2^20 children is
// occupied and released for the price of a few. An empty set of any size is a few
// hundred bytes; each touched page of 4,096 children adds 576.
//
// # Concurrency
//
// All methods are safe for concurrent use. One mutex guards a set; it is never
// held while the caller's code runs, be it the body of a loop over an iterator or
// the function given to [OnChange].
//
// # Restart
//
// [Set.MarshalBinary] and [Restore] carry everything over: what is taken, what is
// cooling since when, and the cursor. A set can as well be built anew by occupying
// the prefixes known to be in use. [OnChange] tells every change in order, for a
// journal.
//
// # Origin
//
// The policy is that of the cidrset of the Kubernetes node IPAM controller, from
// which it departs where that one loses or double-assigns prefixes: Release of
// less than a child is an error, host bits in the pool are an error, and IPv6
// pools are not limited to 2^16 children.
package cidrset
