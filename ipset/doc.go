// Package ipset hands out single addresses from pools, to any number of hosts and
// programs that share one store.
//
//	engine, err := ipset.New(store.NewMemory(), ipset.Options{}) // or a file, SQL, etcd, Kubernetes
//	err = engine.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 29})
//	a, err := engine.Assign(ctx, alloc.HostOwner("node-a"), "pod-1") // a.Address is 10.0.0.152
//	released, err := engine.ReleaseByHandle(ctx, "pod-1")            // [10.0.0.152]
//
// The pool has 32 blocks of eight addresses. Assign claimed a free block for node-a, found from
// a place that the host's name fixes, and gave pod-1 its first address. The next address for
// node-a comes from the same block. Calls may be repeated: AddPool then changes nothing, and Assign returns
// the same address.
//
// # Terms
//
//	pool      a prefix from which addresses are handed out; a pool inside another serves its addresses in place of the outer one
//	block     an aligned child prefix of a pool, of its BlockBits
//	host      a machine; each address is held for one, and each block belongs to at most one owner
//	owner     a host, or a virtual owner such as a controller; "affinity" is its claim to its blocks
//	handle    your key for the addresses of one thing: a pod, a virtual machine, a lease
//	borrowed  held for a host that does not own the block
//	shared    held by several handles, each with its host, attributes and lease; free with the last
//	cooling   released, and not yet to be used again
//
// # Which address
//
// AutoAssign, which has all options, takes pools by their Priority. Among those of one priority it looks:
//
//  1. in the host's own blocks, for the address that was released first;
//  2. for a free block, which the host claims;
//  3. for a block that another owner has left empty for a minute, then for one without owner;
//  4. in the blocks of other hosts, from which it borrows unless affinity is strict.
//
// # Errors
//
// Every error but a context's is, or wraps, an *ipalloc.Error. After
// [ipalloc.ErrUnknownOutcome] the call may have been carried out: repeat Assign, or release by handle.
//
// # Further
//
// Leases (Offer, RenewIP, Decline), lookups, changes of pools and hosts, and plans that write nothing (DryRun) are methods of
// [Engine]. If you use leases or cooldowns, call Sweep of [Engine.Operator] every minute. [Engine.InSpace] keeps pools of tenants
// apart, which may overlap. Everything that an engine has or does belongs to its own space: pools, configuration, reservations,
// hosts, handles, request keys, queries, Check.
//
// An [Engine] and a store are safe for concurrent use; a [block.Block] is not. All state is in
// the store: a new engine starts with an empty cache. [Engine.Changes] delivers the changes of
// each commit, in order, for caches and indexes; it is not an audit log. An engine remembers a
// commit of unknown outcome and settles it before it plans or reads anything else. The page of [Engine] has costs, clocks and limits; README.md of store the records.
package ipset
