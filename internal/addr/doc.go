// Package addr is the 128-bit arithmetic of addresses and the codec between an
// ordinal and the prefix or address it stands for.
//
// # Terms
//
// An address is a number: an IPv4 address its 32 bits, an IPv6 address its 128.
// The two families never mix, so a number goes with the family it came from. A
// pool is a masked prefix that is divided into equal children; the ordinal of a
// child is its position in the pool, 0 for the lowest address.
//
// # What is where
//
// [Check] and [CheckAddr] are the door: every allocator runs what a caller hands
// it through one of them before anything else, and wraps the reason under its
// own sentinel. [Codec] goes from ordinals to prefixes and back, and says with
// [Codec.Locate] how any prefix lies to a pool. [U128] is the arithmetic for what
// is larger than an ordinal.
//
// # Cost and concurrency
//
// Everything is a value, takes constant time, never allocates (errors apart) and
// is safe for concurrent use.
package addr
