// Package hostlocal hands out addresses to the containers of one node, or of several that
// share a store, from ranges that come with every call. It does what the CNI plugin
// host-local does, with records in a store in place of a file per address. cmd/cni-ipam is
// the plugin built on it.
//
//	engine, err := hostlocal.New(store.NewMemory(), hostlocal.Config{
//		Network: "pods",
//		Sets: []hostlocal.RangeSet{
//			{{Subnet: netip.MustParsePrefix("10.1.2.0/24")}},
//			{{Subnet: netip.MustParsePrefix("2001:db8:1::/64")}},
//		},
//	})
//	c1 := hostlocal.Attachment{Container: "c1", Interface: "eth0"}
//	got, err := engine.Add(ctx, c1)   // 10.1.2.2/24 via 10.1.2.1 and 2001:db8:1::2/64 via 2001:db8:1::1
//	freed, err := engine.Del(ctx, c1) // [10.1.2.2 2001:db8:1::2]
//
// Add gave eth0 of container c1 the first free address of each set. The first address of each
// subnet is its gateway, which is never handed out. Del released both. The next Add returns
// 10.1.2.3 and 2001:db8:1::3, because a released address rests as long as possible.
//
// # Terms
//
//	network     a name space of its own in the store
//	range       a run of addresses of one subnet, with a gateway
//	set         a list of ranges of one family
//	attachment  an interface of a container; it holds addresses
//	boot        the time from one start of the node to the next
//
// # Policy
//
// [Engine.Add] takes one address of each set, all or none. A set goes round robin: from the
// address after the one it gave last, through its ranges in order, wrapping. A caller may
// request addresses; a request does not move that position. Addresses are recorded, not
// ranges: ranges may change from call to call, and [Engine.Del] releases by attachment
// alone. An attachment that holds an address of a set gets no second one there. [Range.Exclude] takes addresses out of a range, also
// while they are held.
//
// [Engine.AddKey] gives addresses to a key that outlives containers: the next attachment that uses the key, on whatever node,
// has the same addresses.
//
// [Engine.GC] releases what a list of valid attachments lacks, and leaves alone what was added after the list was made.
//
// # State
//
// All state is records in a store, which may hold those of package ipset and of other
// engines too. A key is "L", the network's name, NUL, the kind, and:
//
//	h<scope>                the header of a scope: the boot, how many there were, and whether it is being removed
//	t<container>\0<iface>   an attachment: its addresses, its scope, when it was added, and in which boot
//	a<address>              the attachment that holds the address
//	p<level,index>          a page: which of 64 addresses in a row, or of 64 pages below, are taken
//	u<container>\0<iface>   the key that an attachment uses, see [Engine.AddKey]; a key's record is t"key/"<key>\0<iface>
//	c<set>                  the address that the set gave last without a request; in a scope,
//	                        c<first address of the set>
//
// Records of kind t are authoritative. Records of kinds a, p and u are derived from them and
// change in the same commit. The pages form a 64-ary tree over all addresses of a family, so the
// next free address is found in a few reads however large and full the ranges are.
//
// # Commits
//
// An operation is one commit that names the revision of every record read for it. Any
// number of engines and processes may share a store; an engine that loses a race retries.
//
// Engines of several nodes that share a network have a scope each ([Config.Scope]): a boot,
// leases and GC of their own. Every commit in a scope verifies its header. Commits in
// two scopes conflict only over the records of addresses that both touch.
//
// A scope is a part of one network: all its scopes together hold an address once. If tenants
// may use the same names for networks and attachments, give each tenant a space of the store:
// New(in, config) with in from [store.Space].
//
// A value begins with the version of its form. Another version is ErrVersion, and is neither changed nor replaced.
//
// Import, GC, Remove and the end of leases work in steps of one commit each, and every step
// leaves a consistent state. [Engine.Remove] deletes what an empty network leaves: its headers and cursors.
//
// Calls of one engine that come while a commit is under way share the next one.
//
// A commit with an unknown outcome may be made after the call has returned. The next
// operation of the same engine settles it: it first writes the header, whose revision every
// commit names, so the lost commit fails if it has not been made by then. Operations
// of other engines do not settle it, except Del and GC of an engine with the same Scope.
//
// # Errors
//
// Every error is, or wraps, an [*ipalloc.Error] of this package, and matches one sentinel
// or the error of the context. The state after an error is the state before the call,
// unless the method says otherwise.
//
// # Limits
//
// A name has at most 1,024 bytes and no NUL byte. A subnet has at least four addresses. A
// range with IPv4-mapped IPv6 addresses is refused. There may be 2^32 sets.
//
// # Complexity
//
//	Add            O(sets · log64 n): 6 records read and 4 written for the usual address, at worst two more reads per level
//	Del            O(addresses of the attachment): 5 records read and 3 written for one
//	Verify         one read
//	Status         O(sets · log64 n)
//	GC, Import, Export, Check   O(attachments)
//	Remove         O(scopes + sets)
//
// Concurrency: an [Engine] is safe for concurrent use.
// Restart: an engine keeps nothing outside the store.
package hostlocal
