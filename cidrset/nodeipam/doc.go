// Package nodeipam gives every node of a cluster its prefixes, one for each address
// family, and remembers which node holds what. Package
// [github.com/ipalloc/ipalloc/cidrset/nodeipam/controller] keeps an [Allocator] and the
// records of an API server in step.
//
//	a, err := nodeipam.New(nodeipam.Config{Slots: []nodeipam.Slot{
//		{Bits: 24, Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}},
//		{Bits: 64, Pools: []netip.Prefix{netip.MustParsePrefix("fd00::/48")}},
//	}})
//	if err != nil {
//		return err
//	}
//	as, err := a.Allocate(nodeipam.Node{Name: "node-1"})  // 10.0.0.0/24 fd00::/64
//	as, err = a.Allocate(nodeipam.Node{Name: "node-2"})   // 10.0.1.0/24 fd00:0:0:1::/64
//	as, err = a.Allocate(nodeipam.Node{Name: "node-1"})   // again 10.0.0.0/24 fd00::/64
//	as, held := a.Release("node-2")
//
// Each slot gives a node one prefix. A node that has its prefixes gets the same ones
// again, and keeps them until it is released. If one family is full, the node gets
// nothing.
//
// # Terms
//
// A child is a prefix of the length that nodes get from a pool. A reservation is a prefix
// that no node can take or free, such as a service CIDR. A prefix is held if it was
// allocated to a node or is recorded with one. The cursor of a pool is the child where
// the next search for a free one begins.
//
// # Policies
//
// By slots, a node gets one child for each [Slot], in the order of its podCIDRs, from the
// first pool of the slot that has room. Pools never overlap; they can be added, grown,
// drained and removed at any time.
//
// By labels, a node gets one child of each family of one [Entry], chosen by the node's
// labels. Pools of entries may overlap, also with children of different size. Of the
// entries that match a node, the first one in this order that has room in all its
// families serves it:
//
//  1. entries with a selector, before the default entries;
//  2. more labels met by positive requirements: In, Exists, Gt, Lt, and In on the name;
//     if several OR-ed terms match, the highest of their counts;
//  3. fewer children in all, taken ones included, in the family that has fewer;
//  4. fewer addresses for each node;
//  5. the labels met, as text ascending by key, the lower text first;
//  6. the lower base address, as a number, IPv4 before IPv6;
//  7. the longer prefix;
//  8. the lower name.
//
// The ranking does not depend on the order of the AddEntry calls. [Allocator.Explain]
// shows it for any node.
//
// # Rules of both policies
//
// A child is free if no held or reserved prefix of any size overlaps it. Prefixes outside
// every pool stay taken too, also for pools that are added later. [Allocator.Occupy]
// takes the prefixes that the caller names, and refuses wrong ones. [Allocator.Observe]
// and [Allocator.Load] record the prefixes that nodes have, right or wrong, and report
// the problems. [Allocator.Release] frees the prefixes that the allocator holds for a
// node, not those in the node's record.
//
// # Errors
//
// Every error is an [*ipalloc.Error] that names node, field, pool and prefix. After an
// error nothing has changed.
//
// # Cost
//
// Allocate, Release, Occupy and Observe take O(log n) steps for a prefix, however full a pool
// is. By labels, each call also compares the node with every entry, so add hundreds of entries,
// not millions. A node costs its name, some 210 bytes, and at most 80 bytes of the index for
// each prefix. A pool of any size costs the same.
//
// # Concurrency
//
// All methods are safe for concurrent use. One mutex guards an allocator; it is never
// held while the caller's code runs, such as the receiver of [OnChange] or the body of
// a loop.
//
// # Restart
//
// Record with each node what Allocate returns. To start, call [New], add all entries,
// terminating ones included, call Load with the full list of nodes, and then delete the
// entries that are being deleted. The nodes then hold the same prefixes as before; only
// the cursors are reset. [Restore] of a snapshot, or a journal of changes replayed with
// [Allocator.Apply], also preserves the cursors. If you call Load after Restore, Release
// the nodes that are not in its list.
//
// # Origin
//
// Slots follow the range allocator of the Kubernetes node IPAM controller; entries follow
// ClusterCIDR of KEP-2593. The package differs where these leak, assign twice or do not
// start. A failing dual-stack allocation takes nothing, prefixes have owners,
// reservations cannot be freed, and a bad record is only reported.
package nodeipam
