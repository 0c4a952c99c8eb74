// Package ipalloc is the root of a module that hands out IP addresses and
// prefixes, and takes them back. It holds no code of its own; this page says
// which package does what, and what holds for all of them.
//
// # Which package when
//
// Equal prefixes out of one pool, such as a /24 of 10.0.0.0/8 for each node, and
// larger ones out of the same pool: cidrset.
//
// A set of numbers that finds the next free one, or the best-fitting aligned run
// of free ones, however full it is: bitmap. The packages above it stand on it;
// it is public because other things are numbered too.
//
// # Vocabulary
//
//	prefix     a netip.Prefix whose host bits are zero
//	pool       the prefix that is divided
//	child      one of the equal prefixes that a pool is divided into
//	ordinal    the position of a child in its pool, from 0, a uint64
//	allocate   the engine chooses
//	occupy     the caller names what is taken
//	release    give back
//	cooling    released, and not to be reused yet
//
// # Errors
//
// A sentinel answers errors.Is. Where a package has a type Error, errors.As finds
// in it the operation, the pool and the prefix; the text of an error says what was
// asked for and what stands in the way. After an error, the state is what it was
// before the call.
//
//	package   sentinel        what stands in the way
//	cidrset   ErrFull         no free child, or no free space of the length asked for
//	          ErrCooling      there would be, but it was released too recently; Error.Until says when
//	          ErrOutOfRange   the prefix is of the other family, or not in the pool
//	          ErrMisaligned   the prefix is smaller than a child
//	          ErrBadPool      the pool is invalid, has host bits, or is an IPv4-mapped one
//	          ErrBadPrefix    the same of a prefix
//	          ErrBadBits      a prefix length that is impossible in this pool
//	          ErrBadOption    an option that cannot be, or that contradicts another
//	          ErrSnapshot     bytes that are not a snapshot, or a damaged one
//	bitmap    ErrCorrupt      bytes that are not a set, or a damaged one
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
