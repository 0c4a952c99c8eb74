// Package prefixes allocates prefixes of different lengths to owners, and records the
// owners in a store. Examples are regions from a company's prefix, clusters from a
// region, and nodes from a cluster.
//
//	db := store.NewMemory() // or boltstore, etcdstore, sqlstore, kubestore
//	a, err := prefixes.New(db, prefixes.Options{})
//	net := netip.MustParsePrefix("10.0.0.0/8")
//	err = a.AddPool(ctx, prefixes.Pool{Prefix: net, Sizes: prefixes.Sizes{Shortest: 12, Longest: 16}})
//	region, err := a.Assign(ctx, prefixes.Request{Pool: net, Owner: "eu-west", Bits: 14,
//		Children: prefixes.Sizes{Shortest: 18, Longest: 24}})
//	cluster, err := a.Assign(ctx, prefixes.Request{Pool: region.Prefix, Owner: "eu-west/a", Bits: 20})
//	path, err := a.Path(ctx, netip.MustParsePrefix("10.0.3.7/32")) // eu-west, eu-west/a
//
// Terms: a pool is a prefix that longer prefixes of certain lengths are allocated from.
// [Allocator.AddPool] adds a root pool. A holding is a prefix with an owner, held from
// one pool; with Children it is a pool itself. The level of a holding is the number of
// pools that contain it. An owner is any text, such as a node's name, or a tenant and a
// cluster. An owner may hold any number of prefixes.
//
// Policy: best fit. A prefix is allocated from the smallest free prefix that has room for
// it, from the lowest if there are several, as in cidrset.Set.AllocatePrefix. Free
// neighbours merge into one free prefix at once, so releases restore the larger prefixes.
//
// [Allocator.Assign] is the call for a controller: it returns the prefix that the owner
// holds, or allocates one, and is idempotent. [Allocator.Occupy] allocates a prefix that
// the caller names; [Allocator.Fits] returns the prefix that the next call would
// allocate. With [Request].New, Assign and Occupy fail with ErrExists if the owner
// already holds the prefix.
//
// A plan may change: [Allocator.SetSizes] and [Allocator.SetChildren] set the lengths of
// later allocations; existing holdings do not change. [Allocator.ReleaseTree] releases a
// holding and everything that is held from it.
//
// # Leases
//
// With [Request].TTL a prefix is a lease, as in DHCPv6 prefix delegation. It expires
// unless [Allocator.Renew] extends it, or makes it permanent with a TTL of 0. Once it
// expires, every call treats the prefix as free, even before Sweep records that:
//
//	lease, err := a.Assign(ctx, prefixes.Request{Pool: net, Owner: "00010a/0001", Bits: 56, TTL: time.Hour})
//	lease, err = a.Renew(ctx, lease.Prefix, lease.Owner, prefixes.RenewArgs{TTL: time.Hour, WithinRules: true}) // on an error: Assign again
//
// The owner is the client's DUID and the IAID of one IA_PD, both in hex. Hex is needed
// because an owner is text without NUL bytes, and the IAID because a client may have
// several IA_PDs. If the owner already has a lease, Assign returns it and does not extend
// it; only Renew does.
//
// A lease has no Children. If you follow Changes, call [Allocator.Sweep] every minute,
// because Changes reports the expiry of a lease when it is recorded. In a store with
// leases, a call that looks for free prefixes also reads the expired leases, which costs
// one more round trip.
//
// A released prefix is free at once. To keep it for its owner for a while, release it
// with Renew instead: the holding becomes a lease that expires after that time. Until
// then no other owner gets the prefix, even if the pool is full, and Assign returns it to
// its owner:
//
//	day := prefixes.RenewArgs{TTL: 24 * time.Hour}
//	_, err = a.Renew(ctx, held.Prefix, held.Owner, day)                    // in place of Release
//	back, err := a.Assign(ctx, request)                                    // within a day: the same prefix
//	back, err = a.Renew(ctx, back.Prefix, back.Owner, prefixes.RenewArgs{}) // permanent again
//
// The same works for a client that did not renew: ask for a TTL that is a day longer than
// the lifetime that you tell the client.
//
// # Your own records
//
// A call that changes a holding can change your own records in the same commit. This
// enforces rules across two packages, also across processes: for example, a prefix serves
// either addresses or children. Write a record of the prefix's use, at the revision that
// you have read, in both calls: here, and in the Also of package ipset:
//
//	use := store.Op{Kind: store.Put, Key: "Use/10.0.4.0/24", Value: "children", Expect: rev}
//	_, err := a.SetChildren(ctx, at, owner, prefixes.Sizes{Shortest: 26, Longest: 28}, use)
//
// If two processes read the same revision, only one succeeds. The other fails with
// ErrConflict, and store.ConflictKey names the record.
//
// # Addresses below
//
// To make a holding a pool of addresses, call ipset's AddPool. [store.Together] combines
// that call and the assignment of the holding in one commit. Make the pool Manual, so it
// serves only calls that name it, or set its Nodes. Otherwise it serves every host.
//
// To undo both, first remove the pool in a separate call, because the removal takes
// several commits. Then release the holding, in a commit that verifies that the pool has
// not been added again:
//
//	err := engine.Operator().ChangePools(ctx, alloc.PoolChanges{Remove: []string{name}, IfEmpty: true})
//	if err != nil {
//		return err // such as ErrInUse: an address is held, and both stay
//	}
//	return store.Together(ctx, db, func(tx store.Store) error {
//		allocator, engine := ... // of prefixes and of ipset, on tx
//		pools, err := engine.Pools(ctx)
//		if err != nil || slices.ContainsFunc(pools, func(p alloc.Pool) bool { return p.Name == name }) {
//			return cmp.Or(err, ipalloc.ErrInUse)
//		}
//		return allocator.Release(ctx, at, owner)
//	})
//
// Both steps are idempotent, but the second returns ErrNotHeld once the holding is released.
//
// # Records
//
// Every key begins with X. An ipset.Engine in the same store uses other keys, but neither
// package detects that the other uses the same addresses. In this table, <prefix> is the
// family, the address and the length.
//
//	Xr                              the root pools with their sizes; none without a root pool
//	Xh<prefix>                      a holding: the pools that it lies in, its children's sizes, owner, attributes
//	Xo<owner>\0<prefix>             the owner has that holding
//	Xd<end><prefix>                 the holding is a lease that ends then
//	Xf<pool><depth><address>        a page of a pool: which of 64 parts are free, held, or divided further
//
// Holdings are authoritative. Index entries and pages are derived from them and change in
// the same commit. The pages of a pool form a tree with 6 bits a level. A page records
// for each part which lengths are free under it, so the root page alone shows whether a
// /14 fits.
//
// # Commits
//
// A call that makes changes is one commit, which verifies the revision of every record
// that its answer depends on. Any number of allocators and processes may therefore share
// a store. Their answers are as from a single allocator that serves one call at a time. A
// call that loses a race is planned again.
//
// After ipalloc.ErrUnknownOutcome the commit may have been made. Repeat Assign, Occupy or
// a change of attributes. After Allocate use [Allocator.ReleaseByOwner] or
// [Allocator.Owned]. The next call of the same allocator first ensures that the lost
// commit can no longer be made.
//
// # Errors
//
// Every error is an [*ipalloc.Error]. On error nothing changes, unless the method's
// comment describes an exception. InTheWay and Holder name the conflicting prefix and its
// owner.
//
// # Limits
//
// An owner's name has at most [MaxOwner] bytes, and attributes have at most
// [MaxAttributes]. A root pool can allocate prefixes of any length from its own to single
// addresses; a holding can allocate only longer ones than itself. The root pools are one
// record, which suits some thousands of them.
//
// # Complexity
//
// With d the bits between the pool and the prefix, divided by 6 and rounded up:
//
//	Allocate, Assign, Occupy            d pages, 1 commit; Assign lists the index first
//	Release                             1 page, and those above that change; 1 commit
//	Fits                                d pages, verified in one round trip
//	Path                                2 round trips
//	Utilization                         the pages of the pool
//	Levels, ReleaseTree                 every record below the pool
//	State                               every holding, in memory
//	Check, Repair                       every record
//	Sweep                               the leases that have ended
//
// While expired leases are not yet recorded, Utilization and Levels read every holding of
// the pool.
//
// An [Allocator] is safe for concurrent use. It keeps nothing outside the store, so a
// restart loses nothing.
package prefixes
