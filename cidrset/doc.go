// Package cidrset allocates equal child prefixes of one pool, and larger prefixes of
// the same pool: the pod CIDRs of nodes, the prefixes of a delegating router, the blocks
// of a cluster.
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
// The set hands out the /24 prefixes of 10.0.0.0/16 in turn. It reuses a released child only
// after the others. An error that matches [ipalloc.ErrFull] means that none is free.
//
// For the addresses of one subnet, without network and broadcast, use servicealloc.NewRange;
// for prefixes by node, package cidrset/nodeipam; to keep a set in a file,
// journal.OpenSet of package ipset/boltstore/journal.
//
// # Terms
//
// The pool is the masked prefix being divided. A child is one of its 2^k equal prefixes
// of the length given to [New], k from 0 to 64. Its ordinal is its position from the
// lowest address, from 0. A child is taken, free or, with [Cooldown], cooling: released
// and not to be reused yet.
//
// # Policy
//
// [Set.AllocateNext] takes the first free child at or after the cursor, wrapping; the
// cursor then stands just after it. Releasing does not move the cursor, so a released
// child is reused as late as possible. [LowestFirst], [Random] and [Cooldown] change the
// choice. [Set.AllocatePrefix] takes an aligned prefix of any length from the smallest
// free space that holds it, so prefixes of several sizes share a pool without
// fragmenting it. [Set.Occupy] and [Set.Claim] take what the caller names.
//
// Prefixes are masked and not 4-in-6: write those as IPv4. Only an IPv6 pool that
// contains ::ffff:0:0/96 hands out children in that range, and takes them back.
//
// # Errors
//
// Every error is an [*ipalloc.Error]: operation, pool and what was asked for. After an
// error the set is unchanged.
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
// All methods are safe for concurrent use. One mutex guards a set. It is not held while
// a loop over an iterator, the clock or the function given to [OnChange] runs.
//
// # Restart
//
// [Set.MarshalBinary] and [Restore] preserve what is taken, what is cooling since when,
// and the cursor. A set can also be rebuilt by occupying the prefixes in use. [OnChange]
// reports every change in order, for a journal.
//
// # Origin
//
// The policy is the one of package cidrset in the Kubernetes node IPAM controller. It
// differs where that one loses or double-assigns prefixes: releasing less than a child is
// an error, host bits in the pool are an error, and IPv6 pools may have more than 2^16
// children.
package cidrset
