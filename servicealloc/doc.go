// Package servicealloc allocates the addresses of one range, and port numbers, in memory.
// The range may be a subnet or the services of a Kubernetes cluster.
//
//	r, err := servicealloc.NewRange(netip.MustParsePrefix("192.0.2.0/24"),
//		servicealloc.LowestFirst(), servicealloc.StaticBand(0))
//	if err != nil {
//		return err
//	}
//	gateway := netip.MustParseAddr("192.0.2.1")
//	err = r.Allocate(gateway)       // a named address
//	ip, _, err := r.AllocateNext()  // 192.0.2.2
//	ip, _, err = r.AllocateNext()   // 192.0.2.3
//	r.Release(ip)
//	fmt.Println(r.Free())           // 252
//
// The range never allocates 192.0.2.0 and 192.0.2.255, the network and the broadcast
// address. LowestFirst picks the lowest free address; without it the search begins at a
// random address. StaticBand(0) lets the range pick from all addresses. Without it, the
// range keeps the lowest 16 for callers that name an address, until all others are taken.
// To survive a restart, open the range with journal.OpenRange of package
// ipset/boltstore/journal, or save it with MarshalBinary.
//
// # Types
//
// A range is a prefix and its usable addresses; a band is a part of them. A grant is the
// addresses and ports that one owner holds. Its generation distinguishes it from the
// owner's next grant, so a step planned for one is never applied to the other.
//
//   - [Range] and [Ports]: one prefix, one range of ports, without owners. Both are a
//     [Pool].
//   - [Registry]: addresses of both families and ports by owner, all or nothing, from
//     several ranges that can be added, drained and removed. It replaces Kubernetes'
//     ipallocator, portallocator and their repair loops.
//
// # Which address an allocation gets
//
// The usable addresses of a prefix are all but network and broadcast (IPv4) or all but
// the base address (IPv6); [FirstAddress], [LastAddress] and [Between] change that. The
// lowest of them are the static band, the others are the dynamic band:
//
//	prefix          static band                 dynamic band                 addresses
//	10.96.0.0/28    none                        10.96.0.1 - 10.96.0.14         0 +    14
//	10.96.0.0/27    10.96.0.1 - 10.96.0.16      10.96.0.17 - 10.96.0.30       16 +    14
//	10.96.0.0/24    10.96.0.1 - 10.96.0.16      10.96.0.17 - 10.96.0.254      16 +   238
//	10.96.0.0/20    10.96.0.1 - 10.96.1.0       10.96.1.1 - 10.96.15.254     256 +  3838
//	10.96.0.0/16    10.96.0.1 - 10.96.1.0       10.96.1.1 - 10.96.255.254    256 + 65278
//	fd00::/64       fd00::1 - fd00::100         fd00::101 - the last one     256 + 2^64-257
//
// An address that the caller names is allocated if it is free, in either band. A
// well-known address in the static band, such as cluster DNS at 10.96.0.10, stays free
// until a caller names it.
//
// Otherwise a [Range] allocates the next free address of the dynamic band at or after a
// random start, wrapping at its end. A [Registry] picks among the free addresses of all
// ranges, each with the same probability. With [LowestFirst] both allocate the lowest
// free one. When the dynamic band is full, both use the static band and report spilled.
// With [NeverSpill], or if the static band is full too, the call fails with
// [ipalloc.ErrFull].
//
// The static band of addresses has min(max(16, size/16), 256) members, none if size <=
// 16; size is 2^hostbits, or the length of the run of [Between]. The static band of n
// ports has min(max(16, n/32), 128) members, none if n <= 16. For 30000-32767 that is 86.
// Both are the rules of Kubernetes (KEP-3070, KEP-3668).
//
// # An API server's registry
//
//	start      Load what is recorded, before anything else
//	ranges     SetRange for each ServiceCIDR and for each reservation, RemoveRange
//	write      Begin, write the object, then Commit or Rollback
//	no write   Allocate, Release
//	repair     Diff, Plan, Apply of package repair, every few minutes; they use Move
//	questions  Get, OwnerOf, Usable, All, Stats, Ranges, Ports, Allocate with DryRun
//
// # Limits
//
// An IPv6 /64 has 2^64-1 usable addresses, and all of them can be allocated; untouched it
// costs under 1 KiB. A wider prefix is refused. IPv4-mapped IPv6 addresses and zones are
// refused everywhere, and ::ffff:0:0/96 is never allocated. All ranges together may have
// 4,096 prefixes, and a request 1,024 ports.
//
// # Errors
//
// Every error is an [*ipalloc.Error] that matches one sentinel of package ipalloc. A
// failed call changes nothing. A full [Range] or [Ports] returns the same error each
// time, which costs no allocation.
//
// # Cost and concurrency
//
// Allocation and release take O(log n) in the size of the range, however full it is.
// Statistics are O(1). Memory grows with the taken members. Range and Ports do not
// allocate memory; Registry allocates its answers. All methods are safe for concurrent
// use; every type has one mutex. It is not held while the caller's code runs: the body of
// a loop over All, a receiver of [OnChange], a clock.
//
// # Determinism and restart
//
// The random generator is seeded by the range, or by [Random], so the same calls give the
// same answers. A dry run gives exactly the answer of the next call. MarshalBinary takes
// a snapshot of any of the three types, and [Restore] restores it with the state of the
// generator. OnChange feeds a journal, and Registry.Apply rebuilds a registry from it.
// Package rangealloc reads and writes the RangeAllocation of Kubernetes.
package servicealloc
