// Package addr implements the 128-bit arithmetic of addresses and the codec between an
// ordinal and the prefix or address it stands for.
//
// # Terms
//
// An address is a number: 32 bits for IPv4, 128 bits for IPv6. The two families never
// mix. A pool is a masked prefix that is divided into equal children. The ordinal of a
// child is its position in the pool, 0 for the lowest address.
//
// # Contents
//
// [Check] and [CheckAddr] validate the arguments of a caller: every allocator calls
// either of them first, and reports the reason in its own error. [Codec] converts
// between ordinals and prefixes, and [Codec.Locate] returns the relation of any prefix
// to a pool. [U128] is the arithmetic for numbers larger than an ordinal.
//
// # Pools that contain ::ffff:0:0/96
//
// A 4-in-6 prefix means an IPv4 one and is refused by [Check]. But an IPv6 pool such as
// ::/80 contains ::ffff:0:0/96, and its codec returns children in that prefix. An
// allocator over such a pool must accept its own children when they are released. So it
// validates prefixes of the caller, of records and of snapshots with [Codec.Check],
// never with Check alone. Codec.Check accepts a 4-in-6 prefix in a pool that contains
// it. Before it reads a record of ::ffff:0.0.0.0/96 as 0.0.0.0/0, it must look into its
// IPv6 pools. An allocator that does not want that refuses such pools when they are
// added.
//
// # Cost and concurrency
//
// All types are values. Everything takes constant time, does not allocate (except
// errors) and is safe for concurrent use.
package addr
