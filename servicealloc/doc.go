// Package servicealloc hands out the addresses of one range and numbers of ports, in memory:
// of a subnet, or of the services of a Kubernetes cluster.
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
// The range never hands out 192.0.2.0 and 192.0.2.255, the network and the broadcast address. LowestFirst picks the
// lowest free address; without it the search begins at a random one. StaticBand(0) lets the range pick from all
// addresses; without it, the lowest 16 are left to callers that name an address, until the rest is taken. To survive a
// restart, open the range with journal.OpenRange of package ipset/boltstore/journal, or save it with MarshalBinary.
//
// # Types
//
// A range is a prefix and its usable addresses, a band a part of them. A grant is what one owner holds; its generation
// distinguishes it from the owner's next grant, so a step planned for one is never applied to the other.
//
//   - [Range] and [Ports]: one prefix, one range of ports, without owners. Both are a
//     [Pool].
//   - [Registry]: addresses of both families and ports by owner, all or nothing, from
//     several ranges that come, drain and go. It replaces Kubernetes' ipallocator,
//     portallocator and their repair loops.
//
// # Which address an allocation gets
//
// The usable addresses of a prefix are all but network and broadcast (IPv4) or
// all but the base address (IPv6); [FirstAddress], [LastAddress] and [Between] say otherwise.
// The lowest of them are the static band, the rest is the dynamic band:
//
//	prefix          static band                 dynamic band                 addresses
//	10.96.0.0/28    none                        10.96.0.1 - 10.96.0.14         0 +    14
//	10.96.0.0/27    10.96.0.1 - 10.96.0.16      10.96.0.17 - 10.96.0.30       16 +    14
//	10.96.0.0/24    10.96.0.1 - 10.96.0.16      10.96.0.17 - 10.96.0.254      16 +   238
//	10.96.0.0/20    10.96.0.1 - 10.96.1.0       10.96.1.1 - 10.96.15.254     256 +  3838
//	10.96.0.0/16    10.96.0.1 - 10.96.1.0       10.96.1.1 - 10.96.255.254    256 + 65278
//	fd00::/64       fd00::1 - fd00::100         fd00::101 - the last one     256 + 2^64-257
//
// An address that the caller names is given if it is free, in either band. In the static band a well-known address,
// such as cluster DNS at 10.96.0.10, stays free until it is asked for.
//
// Otherwise a [Range] gives the next free address of the dynamic band at or after a random start, and wraps at its end.
// A [Registry] picks among the free addresses of all ranges, each with the same probability. With [LowestFirst] both
// give the lowest free one. When the dynamic band is full, both use the static band and report spilled. With
// [NeverSpill], or if the static band is full too, the call fails with [ipalloc.ErrFull].
//
// The static band has min(max(16, size/16), 256) addresses, none if size <= 16, where
// size is 2^hostbits, or the length of the run of [Between]; of n ports it has min(max(16, n/32), 128), none if n <= 16
// (30000-32767: 86). Both are the rules of Kubernetes (KEP-3070, KEP-3668).
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
// An IPv6 /64 has 2^64-1 usable addresses and works to its last one; untouched it costs
// under 1 KiB. A wider prefix is refused. IPv4-mapped IPv6 addresses and zones are
// refused everywhere, and ::ffff:0:0/96 is never handed out. There may be 4,096 prefixes
// in all ranges, and 1,024 ports in a request.
//
// # Errors
//
// Every error is an [*ipalloc.Error] that matches one sentinel of package ipalloc. After
// an error the state is what it was before the call. A full [Range] or [Ports] returns
// the same error each time, which costs no allocation.
//
// # Cost and concurrency
//
// Allocation and release take O(log n) in the size of the range however full it is;
// statistics are O(1); memory follows what is taken. Range and Ports do not allocate
// memory, Registry does for its answers. Every type has one mutex, all methods are safe
// for concurrent use, and no caller's code (a loop over All, a receiver of [OnChange], a
// clock) runs with it held.
//
// # Determinism and restart
//
// The random generator is seeded by the range, or by [Random], so the same calls give
// the same answers, and a dry run gives exactly the answer of the next call.
// MarshalBinary takes a snapshot of all three types, [Restore] brings it back with the
// state of the generator, and OnChange feeds a journal from which Registry.Apply rebuilds a
// registry. Package rangealloc reads and
// writes the RangeAllocation of Kubernetes.
package servicealloc
