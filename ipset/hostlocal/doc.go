// Package hostlocal allocates addresses for the containers of a node, or of nodes that
// share a store, from ranges that come with every call. It works like the CNI plugin
// host-local, but keeps records in a store instead of a file for each address.
// cmd/cni-ipam is the plugin built on it.
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
// Add gave eth0 of container c1 the first free address of each set. The first address of
// each subnet is its gateway, which is never allocated. Del released both. The next Add
// returns 10.1.2.3 and 2001:db8:1::3, because a released address rests as long as
// possible.
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
// [Engine.Add] allocates one address of each set, all or none. A set is used round robin:
// from the address after the last allocated one, through its ranges in order, wrapping. A
// caller may request addresses; a request does not move that position. The records
// contain addresses, not ranges. Ranges may change from call to call, and [Engine.Del]
// releases by attachment alone. An attachment that holds an address of a set cannot get a
// second one there. [Range.Exclude] excludes addresses from a range, even while they are
// held.
//
// [Engine.AddKey] allocates addresses to a key that outlives containers. The next
// attachment that uses the key, on any node, gets the same addresses.
//
// [Engine.GC] releases attachments that are not in a list of valid ones. It keeps
// attachments added after the list was made.
//
// # State
//
// All state is records in a store, which may also hold records of package ipset and of
// other engines. A key is "L", the network's name, NUL, the kind, and:
//
//	h<scope>                the header of a scope: the boot, how many there were, and whether it is being removed
//	t<container>\0<iface>   an attachment: its addresses, its scope, when it was added, and in which boot
//	a<address>              the attachment that holds the address
//	p<level,index>          a page: which of 64 addresses in a row, or of 64 pages below, are taken
//	u<container>\0<iface>   the key that an attachment uses, see [Engine.AddKey]; a key's record is t"key/"<key>\0<iface>
//	c<set>                  the address that the set gave last without a request; in a scope,
//	                        c<first address of the set>
//
// Records of kind t are authoritative. Records of kinds a, p and u are derived from them
// and change in the same commit. The pages form a 64-ary tree over all addresses of a
// family. The next free address is therefore found in a few reads, however large and full
// the ranges are.
//
// # Commits
//
// An operation is one commit that names the revision of every record read for it. Any
// number of engines and processes may share a store; an engine that loses a race retries.
//
// If engines on different nodes share a network, each has its own scope ([Config.Scope]),
// with its own boot, leases and GC. Every commit in a scope verifies its header. Commits
// in two scopes conflict only over records of addresses that both change.
//
// A scope is a part of one network: an address is held at most once in all its scopes
// together. If tenants may use the same names for networks and attachments, give each
// tenant a space of the store: New(in, config) with in from [store.Space].
//
// A value begins with the version of its form. A record of another version causes
// ErrVersion and is neither changed nor replaced.
//
// Import, GC, Remove and the expiry of leases work in steps of one commit each, and every
// step leaves a consistent state. [Engine.Remove] deletes the remaining records of an
// empty network: its headers and cursors.
//
// Calls that arrive while a commit of their engine is in flight share the next commit.
//
// A commit with an unknown outcome may be made after the call has returned. The next
// operation of the same engine settles it. It first writes the header, whose revision
// every commit names, so a lost commit that has not been made yet fails. Operations of
// other engines do not settle it, except Del and GC of an engine with the same Scope.
//
// # Errors
//
// Every error is, or wraps, an [*ipalloc.Error] of this package, and matches one sentinel
// or the error of the context. On error nothing changes, unless the method's comment
// describes an exception.
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
// An [Engine] is safe for concurrent use. An engine keeps nothing outside the store, so a
// restart loses nothing.
package hostlocal
