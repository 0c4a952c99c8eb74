// Package servicealloc hands out the addresses and ports of services: one address per
// service and family, from ranges with a static and a dynamic band, and ports.
//
// # Which address will I get, and why
//
// A range is a prefix. Its usable addresses are all but network and broadcast (IPv4) or
// all but the base address (IPv6). The lowest of them are the static band, the rest is
// the dynamic band:
//
//		prefix          static band                 dynamic band                 addresses
//		10.96.0.0/28    none                        10.96.0.1 - 10.96.0.14         0 +    14
//		10.96.0.0/27    10.96.0.1 - 10.96.0.16      10.96.0.17 - 10.96.0.30       16 +    14
//		10.96.0.0/24    10.96.0.1 - 10.96.0.16      10.96.0.17 - 10.96.0.254      16 +   238
//		10.96.0.0/22    10.96.0.1 - 10.96.0.64      10.96.0.65 - 10.96.3.254      64 +   958
//		10.96.0.0/20    10.96.0.1 - 10.96.1.0       10.96.1.1 - 10.96.15.254     256 +  3838
//		10.96.0.0/16    10.96.0.1 - 10.96.1.0       10.96.1.1 - 10.96.255.254    256 + 65278
//		fd00::/64       fd00::1 - fd00::100         fd00::101 - the last one     256 + 2^64-257
//
//	  - You name an address: you get it if it is free, in either band. The static band is
//	    where a well-known one, such as cluster DNS at 10.96.0.10, is safe: nothing takes it
//	    before you ask.
//	  - You don't: you get the next free address of the dynamic band at or after a random
//	    start, coming round at its end; with [LowestFirst] the lowest free one.
//	  - The dynamic band is full: the same in the static band, and the answer says spilled;
//	    with [NeverSpill], or when that is full too, [ErrFull].
//
// The static band has min(max(16, size/16), 256) addresses, none if size <= 16, where
// size is 2^hostbits; of n ports it has min(max(16, n/32), 128), none if n <= 16
// (30000-32767: 86). Both are the rules of Kubernetes (KEP-3070, KEP-3668); [StaticSize],
// [StaticPrefixes], [StaticPorts], [Reserve] and [ReservePorts] change them. A dry run
// answers exactly what the next call will: the random start is drawn ahead.
//
// # Types
//
//   - [Range]: the addresses of one prefix.
//   - [Ports]: the ports of one range, of TCP, UDP and SCTP each for itself.
//   - [Ranges]: several ranges of both families at once, which come, drain and go, and
//     may overlap.
//   - [Registry]: addresses and ports by owner, all or nothing, with generations.
//   - [Diff] and [LeakWatch]: what is held against what is desired.
//
// Names are band (static or dynamic part of a range), spill (the engine takes a static
// member), closed (in no band), drain (no more allocation, what is held stays).
//
// # Limits
//
// A prefix may have any length. An IPv6 /64 has 2^64-1 usable addresses and works to its
// last one; untouched it costs under 1 KiB. Beyond that, dynamic addresses come from a
// window of 2^64 addresses that moves when it is full, while any address may be named.
// IPv4-mapped IPv6 addresses and zones are refused everywhere, and ::ffff:0:0/96 is
// handed out to nobody. There may be 4,096 prefixes in all ranges and in each option,
// and 1,024 ports in a request.
//
// # Cost and concurrency
//
// Allocation and release are O(log n) in the size of the range however full it is, and do
// not allocate; statistics are O(1); memory follows what is taken. [Registry] allocates
// for its answers. Every type has one mutex, all methods are safe for concurrent use, and
// no lock is held while a caller's code (a loop over All, a hook) runs.
//
// # Determinism and restart
//
// No clock is read, and randomness is injected ([Random]); the default source is seeded
// by the range itself, so that the same calls give the same answers. MarshalBinary takes
// a snapshot, Restore and its kin bring it back with the value drawn ahead; [OnChange]
// feeds a journal; [Range.Export] and [Range.Import] speak the RangeAllocation of
// Kubernetes. Bytes from elsewhere give an error or a state that passes its Check.
package servicealloc
