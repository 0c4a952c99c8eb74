// Package ipalloc is the root of a module that allocates and releases IP addresses and
// prefixes. It declares the errors that all packages return. This page lists the packages
// and the rules that hold for all of them.
//
// # Which package when
//
// Package cidrset allocates equal prefixes of one pool, such as a /24 of 10.0.0.0/8 for
// each node, and larger prefixes of the same pool.
//
// Package cidrset/nodeipam does that by owner: every node gets one prefix of each address
// family, from fixed slots or from pools chosen by labels. Service ranges can be kept
// out. Package cidrset/nodeipam/controller keeps the records of an API server in step
// with it.
//
// Package servicealloc allocates single addresses and ports for services. It keeps a band
// for callers that name their address or port.
//
// Package ipset allocates single addresses on many hosts. Each host has its own blocks,
// and all programs share one store: memory (ipset/store), a file (ipset/boltstore), a SQL
// database (ipset/sqlstore), etcd (ipset/etcdstore) or Kubernetes (ipset/kubestore).
// Package ipset/boltstore/journal keeps allocators of cidrset and servicealloc in such a
// file. Package metrics exports metrics of all of them to Prometheus.
//
// Package ipset/hostlocal allocates single addresses for the containers of one node, from
// ranges that come with every call, like CNI's host-local.
//
// Package ipset/prefixes allocates prefixes of different lengths to owners, and prefixes
// inside these: regions, clusters, nodes. Package ipset/numbers allocates VLANs, VNIs and
// other numbers to owners. Both use the stores of ipset.
//
// Package bitmap is the set of ordinals that all of them build on. It finds the next free
// ordinal, or the best-fitting aligned run of free ones, however full the set is.
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
//	reserve    take out of circulation, without an owner
//	owner      the caller's name for who holds something; in ipset, the host that an
//	           address is for and a block belongs to
//	handle     in ipset, the caller's key for what it holds, such as a pod or a lease
//	affinity   the host that a block belongs to
//	cooling    released, and not to be reused yet
//	band       the static or the dynamic part of a service range
//
// # Errors
//
// Every error matches a sentinel below and is, or wraps, an [*Error]. Use errors.As to
// get the call, the pool, the prefix or address, the holder and the time. A failed call
// changes nothing.
//
//	ErrInvalid         an argument, option or configuration field is impossible
//	ErrFull            nothing is free that fits the request
//	ErrCooling         what would fit was released too recently
//	ErrOccupied        the named prefix, address or port is taken
//	ErrNotHeld         the owner does not hold what the call refers to
//	ErrOutOfRange      the named prefix, address or port is not in the pool or range,
//	                   or not of a size that the pool hands out; a watch from a
//	                   revision that the store no longer has
//	ErrReserved        the named prefix or address overlaps a reservation, or only reserved ones are left
//	ErrExists          something else of that name exists
//	ErrNotFound        nothing of that name exists, or no entry matches
//	ErrInUse           the pool, range or block still has holders
//	ErrMismatch        the state differs from what the caller expects
//	ErrVersion         another version wrote what was read, in an unknown form
//	ErrReplaced        the store is not the one that was opened
//	ErrLimit           a documented or configured limit would be exceeded
//	ErrConflict        another writer changed a record first, or a server refused the write
//	ErrUnknownOutcome  the change may or may not have been made
//	ErrCorrupt         stored bytes are damaged or contradict themselves
//	ErrClosed          the store or controller was closed
//
// Nothing that a caller passes makes an allocator panic. There are three exceptions, as
// in the standard library: a nil context, a method of a nil allocator, and an ordinal out
// of range of package bitmap. A nil store, or a nil pointer as a store, is an ErrInvalid.
//
// # Common rules
//
// Addresses are net/netip values. Inputs are checked and never corrected. Time and
// randomness are passed in, so the same calls give the same answers. No package logs,
// starts anything when it is imported, or holds a lock while the caller's code runs.
// Check of an allocator recomputes all derived state and compares.
//
// # Compatibility
//
// The module needs Go 1.24. It runs on 32-bit and 64-bit machines.
//
// Until v1.0.0 a minor version may change the API, as CHANGELOG.md describes; a patch
// version does not. All stored data carries the version of its form. A release reads the
// forms of earlier releases and refuses unknown ones. Texts of errors and the String
// forms are for people and may change at any time. COMPATIBILITY.md has the rules.
//
// Packages below internal, bench and fuzz are no part of the API.
package ipalloc
