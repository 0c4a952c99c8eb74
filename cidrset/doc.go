// Package cidrset allocates equal child prefixes of one pool, and larger prefixes of the
// same pool. Examples are the pod CIDRs of nodes, the prefixes of a delegating router,
// and the blocks of a cluster.
//
//	set, err := cidrset.New(netip.MustParsePrefix("10.0.0.0/16"), 24)
//	if err != nil {
//		return err
//	}
//	p, err := set.AllocateNext()   // 10.0.0.0/24
//	p, err = set.AllocateNext()    // 10.0.1.0/24
//	freed, err := set.Release(p)   // 1 child is free again
//	p, err = set.AllocateNext()    // 10.0.2.0/24
//
// The set hands out the /24 prefixes of 10.0.0.0/16 in turn. It reuses a released child
// only after all others. An error that matches [ipalloc.ErrFull] means that none is free.
//
// Use servicealloc.NewRange for the addresses of one subnet, without network and
// broadcast address. Use package cidrset/nodeipam for prefixes by node. To keep a set in
// a file, use journal.OpenSet of package ipset/boltstore/journal.
//
// # Terms
//
// The pool is the masked prefix that the set divides. A child is a prefix of the pool
// whose length is given to [New]. A pool has 2^k children, k from 0 to 64. The ordinal of
// a child is its position, counted from 0 at the lowest address. A child is taken, free
// or, with [Cooldown], cooling: released and not to be reused yet.
//
// # Policy
//
// [Set.AllocateNext] takes the first free child at or after the cursor, wrapping, and
// moves the cursor just after it. Releasing does not move the cursor, so a released child
// is reused as late as possible. [LowestFirst], [Random] and [Cooldown] change the
// choice. [Set.AllocatePrefix] takes an aligned prefix of any length from the smallest
// free space that holds it. Prefixes of different lengths therefore share a pool without
// fragmenting it. [Set.Occupy] and [Set.Claim] take the prefix that the caller names.
//
// Prefixes must be masked and not 4-in-6; write a 4-in-6 prefix as IPv4. Only an IPv6
// pool that contains ::ffff:0:0/96 allocates and releases children in that range.
//
// # Errors
//
// Every error is an [*ipalloc.Error] with the operation, the pool and the argument. After
// an error the set is unchanged.
//
// # Cost
//
// Every method but the iterators, MarshalBinary and Check is O(log n) in the number of
// children, however full the set is. AllocateNext and Release take tens of nanoseconds
// and do not allocate in steady state. Occupying and releasing 2^20 neighbours costs
// little more than one child. An empty set of any size takes a few hundred bytes; each
// touched page of 4,096 children adds 576 bytes.
//
// # Concurrency
//
// All methods are safe for concurrent use. One mutex guards a set. The set does not hold
// it while the body of a loop over an iterator, the clock, or the function given to
// [OnChange] runs.
//
// # Restart
//
// [Set.MarshalBinary] and [Restore] preserve the taken children, the cooling children
// with their times, and the cursor. A set can also be rebuilt by occupying the prefixes
// in use. [OnChange] reports every change in order, for a journal.
//
// # Origin
//
// The policy follows package cidrset in the Kubernetes node IPAM controller, which loses
// or double-assigns prefixes in some cases. This package differs there. Releasing less
// than a child is an error, host bits in the pool are an error, and IPv6 pools may have
// more than 2^16 children.
package cidrset
