// Package ipset allocates single addresses from pools, for any number of hosts and programs
// that share one store.
//
//	engine, err := ipset.New(store.NewMemory(), ipset.Options{}) // or a file, SQL, etcd, Kubernetes
//	err = engine.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 29})
//	a, err := engine.Assign(ctx, alloc.HostOwner("node-a"), "pod-1") // a.Address is 10.0.0.152
//	released, err := engine.ReleaseByHandle(ctx, "pod-1")            // [10.0.0.152]
//
// The pool has 32 blocks of eight addresses. Assign claimed a free block for node-a and gave
// pod-1 its first address. The next address for node-a comes from the same block. You may
// repeat calls: AddPool then changes nothing, and Assign returns the same address.
//
// # Terms
//
//	pool      a prefix whose addresses are assigned; a nested pool serves its addresses instead of the outer one
//	block     an aligned child prefix of a pool, of its BlockBits
//	host      a machine; each address is held for one, and each block has at most one owner
//	owner     a host, or a virtual owner such as a controller; "affinity" is its claim to its blocks
//	handle    your key for the addresses of one thing: a pod, a virtual machine, a lease
//	borrowed  held for a host that does not own the block
//	shared    held by several handles, each with its host, attributes and lease; free after the last release
//	cooling   released, but not yet reusable
//
// # Which address
//
// AutoAssign, which has all options, uses pools in the order of their Priority. In pools of
// one priority it tries:
//
//  1. the host's own blocks, and there the address that was released first;
//  2. a free block, which the host claims, from a position derived from its name;
//  3. a block that another owner left empty for a minute, then one without owner;
//  4. other hosts' blocks, to borrow from them, unless affinity is strict.
//
// # Errors
//
// Every error is a context's error, or is or wraps an *ipalloc.Error. After
// [ipalloc.ErrUnknownOutcome] the call may have been carried out: repeat Assign, or release by
// handle.
//
// # Further
//
// [Engine] also has leases (Offer, RenewIP, Decline), lookups, changes of pools and hosts, and
// plans that write nothing (DryRun). If you use leases or cooldowns, call Sweep of
// [Engine.Operator] every minute. [Engine.Changes] delivers the changes of each commit, in
// order, for caches and indexes; it is not an audit log. [Engine.InSpace] separates tenants,
// whose pools may overlap: each engine has the pools, hosts, handles and settings of one space.
//
// An [Engine] and a store are safe for concurrent use; a [block.Block] is not. All state is in
// the store, whose README.md lists the records. The page of [Engine] has rules, costs and limits.
package ipset
