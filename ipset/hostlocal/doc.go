// Package hostlocal hands out addresses to the containers of one node, from ranges that come with every call: what the CNI
// plugin host-local does, with records in a store in place of a file per address. The program that runs it for
// container runtimes is examples/cni-ipam.
//
// Terms: a network is a name space of its own in the store; a range is a run of addresses of one subnet, with the
// gateway that it never hands out; a set is a list of ranges of one family; an attachment is an interface of a
// container, and who holds addresses; a boot is the time from one start of the node to the next.
//
// Policy: [Engine.Add] takes one address of each set, all or none. A set goes round robin: from the address after
// the one it gave last, through its ranges in order, wrapping, so that a released address rests for as long as
// possible. A caller may name addresses; that does not move the place where a set goes on. What is taken is
// known by address, not by range: ranges may change from call to call, and [Engine.Del] releases by attachment
// alone. An attachment that holds an address of a set gets no second one there.
//
// # State
//
// All state is records in an [store.Store], which may hold those of other engines, too. A key is "L", the network's name,
// NUL, the kind, and:
//
//	h                       the header: the boot, and how many there were
//	t<container>\0<iface>   an attachment: its addresses, and in which boot it was added (the only truth)
//	a<address>              whose the address is
//	p<level,index>          a page: which of 64 addresses in a row, or of 64 pages below, are taken
//	c<set>                  the address that the set gave last without being asked for it
//
// Records of kind a and p are functions of those of kind t and change in the same commit. Pages make a 64-ary tree
// over all addresses of a family: a page above knows which ones below are full, so the next free address is found in
// a few reads however full the ranges are and however large.
//
// # Commits
//
// An operation is one commit, which names the revision of every record that was read for it. So engines of any number of
// processes may share a store; who loses a race reads again (Retry). Import, GC and what happens to leases after
// a reboot go in steps of one commit each, every one of which leaves a consistent state.
//
// An attachment lasts until it is released. With Leases it also ends when the node is started again: the first call under
// a new boot releases everything that was added under another one, before it does its own work. Sets do not begin
// anew then.
//
// # Limits
//
// A name is at most 1,024 bytes and holds no NUL byte. A subnet has at least four addresses, and a range that holds
// IPv4-mapped IPv6 addresses is refused. There may be 2^32 sets.
//
// # Complexity
//
//	Add            O(sets · log64 n): 6 records read and 4 written for the usual address, at worst two more reads per level
//	Del            O(addresses of the attachment): 5 records read and 3 written for one
//	Verify         one read
//	Status         O(sets · log64 n)
//	GC             O(attachments)
//	Import, Export, Stats, Check   O(attachments)
//
// Concurrency: an [Engine] is safe for concurrent use; its calls take turns. Restart: nothing is held outside the store.
//
// # Divergences
//
// What host-local 1.9.1 does otherwise, and why it is not done here:
//
//	a request moves the round robin       the address after it would be given next, long before it rested
//	a request skips the duplicate check   the attachment would collect addresses
//	an Add that fails moves the cursors and releases what the attachment held before
//	                                      an error leaves the state as it was
//	two requests in one set: either one   the first one
//	a range may start after its end       addresses outside the subnet would be handed out
//	DEL fails without ranges              what was handed out could not be released any more
//	GC and STATUS do nothing              they do here what the specification says
//	CHECK is true for any address         the listed ones have to be held
package hostlocal
