// Package ipalloc is the root of a module that hands out IP addresses and
// prefixes, and takes them back. It holds no code of its own; this page says
// which package does what, and what holds for all of them.
//
// # Which package when
//
// Equal prefixes out of one pool, such as a /24 of 10.0.0.0/8 for each node, and
// larger ones out of the same pool: cidrset.
//
// The same by owner, one prefix of each address family for every node, with the
// service range kept out, and the loop that keeps an API server's records in step:
// cidrset/nodeipam. Where labels of the node choose the pool: cidrset/clustercidr.
//
// Single addresses and ports for services, with a band kept for those who name
// theirs: servicealloc.
//
// Single addresses for what runs on many hosts, each host with blocks of its own, in
// a store that many programs share: ipset. The store is memory, a file
// (ipset/boltstore, which keeps allocators of cidrset and servicealloc, too) or an
// etcd (ipset/etcdstore).
//
// Single addresses for the containers of one node, from ranges that come with every
// call, as CNI's host-local hands them out: ipset/hostlocal.
//
// A set of numbers that finds the next free one, or the best-fitting aligned run
// of free ones, however full it is: bitmap. The packages above stand on it; it is
// public because other things are numbered too.
//
// # Vocabulary
//
//	prefix     a netip.Prefix whose host bits are zero
//	pool       the prefix that is divided
//	child      one of the equal prefixes that a pool is divided into
//	block      in ipset, a child that belongs to one host
//	ordinal    the position of a child or address in its parent, from 0, a uint64
//	allocate   the engine chooses
//	occupy     the caller names what is taken
//	release    give back
//	reserve    take out of circulation; nobody's
//	owner      the caller's name for who holds something; in ipset a handle,
//	           beside which the host is kept that it is held for
//	affinity   the host that a block belongs to
//	cooling    released, and not to be reused yet
//	band       the static or the dynamic part of a service range
//
// # Errors
//
// A sentinel answers errors.Is. Where a package has a type Error, errors.As finds
// in it the operation, the pool and the prefix; the text of an error says what was
// asked for and what stands in the way. After an error, the state is what it was
// before the call.
//
//	package       sentinel        what stands in the way
//	cidrset       ErrFull         no free child, or no free space of the length asked for
//	              ErrCooling      there would be space, but it was given back too recently
//	              ErrOutOfRange   the prefix is not in the pool
//	              ErrMisaligned   the prefix is a part of a child
//	              ErrBadPool      the pool is invalid, unmasked or 4-in-6
//	              ErrBadPrefix    the prefix is invalid, unmasked or 4-in-6
//	              ErrBadBits      the prefix length is impossible for this pool
//	              ErrBadOption    an option that cannot be, or that contradicts another
//	              ErrSnapshot     the bytes given to Restore are damaged or not a snapshot
//	nodeipam      ErrFull         a slot has no pool with a free child
//	              ErrOutOfRange   the prefix is in no pool of its slot
//	              ErrBadPool      the pool is invalid, unmasked or 4-in-6
//	              ErrBadPrefix    the prefix is invalid, unmasked or 4-in-6, or its text is no prefix at all
//	              ErrBadBits      the child length is impossible for a pool
//	              ErrBadOption    an option that cannot be, or that contradicts another
//	              ErrSnapshot     the bytes given to Restore are damaged or not a snapshot
//	              ErrMisaligned   the prefix is in a pool but not one of its children: smaller or larger
//	              ErrDuplicate    another owner holds the prefix or one that overlaps it
//	              ErrReserved     the prefix overlaps a reservation
//	              ErrFamily       the prefix, or pool, is of the other family than its slot
//	              ErrTooMany      an owner has more prefixes than there are slots
//	              ErrListedTwice  a list of nodes has two with the same name
//	              ErrBadOwner     the name of the owner is empty
//	              ErrHolds        the owner holds other prefixes than those named
//	              ErrNoSlot       there is no slot of that number, or none at all
//	              ErrNoPool       no such pool, or a slot without one
//	              ErrOverlap      the pool overlaps another one
//	              ErrInUse        owners hold prefixes of the pool
//	              ErrRejected     for a Writer to wrap: the write has certainly not happened
//	              ErrGone         for a Writer to wrap: there is no such node
//	              ErrUnknownOutcome  reported for a node whose write may have happened
//	              ErrRunning      a controller runs once
//	clustercidr   ErrFull         entries match the node, and none of them has room in all families
//	              ErrOutOfRange   the prefix is not in the entry's pool, or in no entry's
//	              ErrBadPool      the pool is invalid, unmasked, 4-in-6 or of the other family
//	              ErrBadPrefix    the prefix is invalid, unmasked or 4-in-6, or its text is no prefix at all
//	              ErrBadBits      the size of a node is missing, impossible, or two things at once
//	              ErrBadOption    an option that cannot be, or that contradicts another
//	              ErrSnapshot     the bytes given to Restore are damaged or not a snapshot
//	              ErrNoMatch      no entry matches the node
//	              ErrNoEntry      there is no entry of that name
//	              ErrExists       another entry of that name is there; entries never change
//	              ErrTerminating  the entry was deleted and waits for its last node to go
//	              ErrBadName      the name is empty
//	              ErrBadSelector  a selector that cannot be meant
//	              ErrFamily       the entry lacks an address family, or there is no such family
//	              ErrMisaligned   the prefix is in the pool but not of the size of a child
//	              ErrTooMany      a second prefix of one family
//	              ErrMissing      the node has no prefix of a family that every node needs
//	              ErrAmbiguous    no entry is recorded and several fit
//	              ErrDuplicate    another node holds the prefix or one that overlaps it
//	              ErrReserved     the prefix overlaps a reservation
//	              ErrBadChange    a change of no known kind
//	              ErrListedTwice  a list of nodes has two with the same name
//	servicealloc  ErrFull         no free address or port is left in the bands that the engine may use
//	              ErrOccupied     the named address or port is taken
//	              ErrOutOfRange   the address or port is not one that the range hands out: outside it, of the other family, or its network, broadcast or base address
//	              ErrReserved     the address or port lies in a sub-range taken out of circulation
//	              ErrDraining     the address is usable only in ranges that drain
//	              ErrBadPrefix    a prefix is invalid, zoned, 4-in-6 or has host bits set
//	              ErrBadPort      a port range is empty, begins at 0 or goes beyond 65535, or a protocol is none of TCP, UDP and SCTP
//	              ErrBadOption    an option is impossible for what is being built
//	              ErrBadRequest   a request contradicts itself, or names no owner
//	              ErrExists       a range of that name is there already
//	              ErrNoRange      there is no range of that name
//	              ErrInUse        addresses are held that no other range has usable
//	              ErrNoOwner      the owner holds nothing
//	              ErrMismatch     the owner holds something else than what is asked for
//	              ErrGeneration   the owner's grant has been replaced since the caller read it
//	              ErrSnapshot     bytes are no snapshot of this kind, damaged, or contradict themselves
//	              ErrLimit        more prefixes or port ranges than the package allows
//	ipset         ErrConflict     conflict: a record changed
//	              ErrUnknown      outcome unknown
//	              ErrTooLarge     larger than one commit or record may be
//	              ErrCompacted    the store no longer has these changes
//	              ErrSnapshot     not a snapshot, or damaged
//	              ErrRecord       damaged record
//	              ErrBadPrefix    not a masked prefix
//	              ErrBadAddress   not an address this can serve
//	              ErrBadName      bad name
//	              ErrBadBlockSize block size does not fit
//	              ErrBadConfig    configuration contradicts itself
//	              ErrBadArgument  bad argument
//	              ErrUnknownUse   unknown use
//	              ErrUnknownHost  unknown host
//	              ErrUnknownPool  unknown pool
//	              ErrPoolExists   pool exists
//	              ErrOverlap      pools overlap
//	              ErrNoPool       no pool qualifies
//	              ErrShort        not enough addresses
//	              ErrOccupied     address is taken
//	              ErrCooling      address is cooling
//	              ErrReserved     address is reserved for the host
//	              ErrNotFound     not assigned
//	              ErrStrict       strict affinity forbids it
//	              ErrLimit        block limit reached
//	              ErrNotEmpty     block is not empty
//	              ErrOwner        owned by another
//	              ErrContention   gave up after repeated conflicts
//	              ErrExhausted    sequence numbers exhausted
//	              ErrHolds        the store to copy to holds something else
//	              ErrChanged      the store to copy from changed meanwhile
//	hostlocal     ErrFull         a set has no free address
//	              ErrExists       the attachment holds an address of the set already
//	              ErrOccupied     the named address is taken
//	              ErrReserved     the named address is the gateway of its range
//	              ErrOutOfRange   the named address lies in no set, or in one that another named address is taken from
//	              ErrNoRanges     there is no range set to allocate from
//	              ErrNotFound     the attachment holds nothing
//	              ErrMismatch     the attachment holds other addresses than those named
//	              ErrBadPrefix    a subnet is invalid, unmasked or 4-in-6
//	              ErrTooSmall     a subnet has less than four addresses, or a set has no range
//	              ErrBadRange     the ends of a range are not in the subnet, or in the wrong order
//	              ErrFamily       a set mixes address families
//	              ErrOverlap      two ranges share addresses
//	              ErrBadAddress   an address is invalid, zoned or 4-in-6
//	              ErrBadName      a name is empty, too long or holds a NUL byte
//	              ErrBadOption    an option that cannot be, or that contradicts another
//	              ErrRecord       a record of the store is damaged, or contradicts another
//	boltstore     ErrLocked       another process has the file
//	              ErrDamaged      the file is not as it was written
//	              ErrForeign      the file is something else than a store
//	              ErrVersion      the file was written by a newer program
//	              ErrNoSpace      the disk, a quota or Options.MaxSize has no room for the commit
//	              ErrReadOnly     the store was opened for reading
//	              ErrClosed       the store was closed
//	              ErrFailed       an earlier write failed: open the file again
//	              ErrJournal      a journal of that name is open, or is of something else
//	etcdstore     ErrForeign      somebody else's keys are under the prefix
//	              ErrNoStore      there is no store under the prefix, and none is to be made
//	              ErrVersion      the store was written by a newer program
//	              ErrCluster      the answer is another cluster's
//	              ErrReplaced     the store was removed, adopted or converted since it was opened
//	              ErrRollback     the cluster went back to an earlier state
//	bitmap        ErrCorrupt      bytes that are not a set, or a damaged one
//
// Nothing that a caller passes makes an allocator panic. An ordinal out of range
// makes package bitmap panic, as an index out of range does a slice.
//
// # What holds everywhere
//
// Addresses are net/netip values. Inputs are checked, never repaired. Time and
// randomness are passed in, so the same calls give the same answers. No package
// logs, starts anything when it is imported, or holds a lock while the caller's
// code runs. Check of an allocator recomputes all that is derived and compares.
//
// # Compatibility
//
// The module needs Go 1.24. It runs on 32-bit and 64-bit machines.
//
// Up to v1.0.0 a minor version may change the API, and CHANGELOG.md says where; a
// patch version does not. Snapshots carry the version of their form; a release
// reads what earlier releases wrote, and refuses what a later one wrote. Texts of
// errors and the String forms are for people and may change at any time.
//
// Packages below internal, bench and fuzz are no part of the API.
package ipalloc
