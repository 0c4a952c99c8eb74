// Package clustercidr gives each node the prefixes for its workloads, out of one of
// several pools, which it chooses by the labels of the node: large prefixes for
// large machines, routable ones for one zone, a new pool when the old one is full.
//
// # Terms
//
// An entry is a [ClusterCIDR]: a name, a pool of one or both address families, the
// size of what a node gets from it, and a selector that says which nodes it is for.
// One without a selector is a default entry. A child is one of the equal prefixes
// of a pool that a node can get. Pools of different entries may overlap, also with
// children of different size. A claim is a prefix that a node holds or that is
// reserved.
//
// # Order
//
// Of the entries that match a node, the first of this order serves it:
//
//  1. those with a selector before the default ones;
//  2. more of the node's labels met by positive requirements: In, Exists, Gt, Lt,
//     and In on the name; of OR-ed terms the matching one that needs the most;
//  3. fewer children in all, taken ones included, in the family that has fewer;
//  4. fewer addresses for a node;
//  5. the labels met, as text, lower;
//  6. lower base address, as a number, IPv4 before IPv6;
//  7. longer prefix;
//  8. lower name.
//
// The order in which entries were added does not matter. [Allocator.Explain] says
// for any node where each entry stands, and why.
//
// # Policy
//
// An entry that has no free child in one of its families is skipped; the next one
// serves the node, in all families, or none does. A child is free if no claim of
// whatever length overlaps it. An entry hands out its children in turn, see
// [LowestFirst]. A node keeps what it has until it is released, whatever happens to
// its labels; an entry that is deleted serves nobody any more, and is gone with its
// last node. If no entry matches, or none has room, the [*Error] holds a channel
// that says when to ask again.
//
// # Limits
//
// None on the size of pools: an IPv6 /32 in children of /112 is like any other.
// Entries are compared one by one with each node, so there should be hundreds of
// them, not millions.
//
// # Cost
//
// Allocate and Release look at O(log n) nodes of the index of n claims: for two
// overlapping pools, an allocation looks at no more than 33, 45 and 54 of them when
// 1,000, 10,000 and 100,000 nodes are there. The index never grows deeper than an
// address has bits. A claim takes two nodes of it, of 40 bytes each, at most.
// Allocate compares the node with every entry besides.
//
// # Concurrency
//
// All methods are safe for concurrent use. One mutex guards an allocator; it is
// never held while the caller's code runs, be it the body of a loop over an iterator
// or the function given to [OnChange].
//
// # Restart
//
// Record with each node what [Allocator.Allocate] returns, the entry included. Then
// an allocator is built anew from what is recorded, in this order:
//
//   - [New], with the reservations;
//   - [Allocator.Add], every entry, those that are being deleted included;
//   - [Allocator.Load], every node; it does not fail, it lists problems;
//   - [Allocator.Delete], the entries that are being deleted.
//
// The new one has the same state as the old one: the same nodes hold the same from
// the same entries, the same is free, the same is terminating. Only where each entry
// goes on is not recorded; with [LowestFirst] there is no such thing.
// [Allocator.MarshalBinary] and [Restore] carry that too.
//
// # The index
//
// There is one index of claims for each address family, shared by all entries, and
// it knows nothing of entries: a path-compressed trie of prefixes, in which each
// node has the size of the largest free block inside it. A bitmap, which the other
// packages of this module stand on, needs a grid: one size of child, one pool, known
// beforehand. Here pools overlap in several sizes, come and go, and nodes arrive
// with prefixes of any length from anywhere. With the trie, two neighbours that each
// hold a part of a child need no counting; a reservation applies to entries added
// later because it is in the index already; so does the prefix of a node that no
// entry accounts for; adding an entry builds nothing; and there are no spaces too
// large.
//
// # Origin
//
// The entries and rules are those of ClusterCIDR, or ClusterCIDRConfig: of a
// Kubernetes enhancement (KEP-2593), of the node-ipam-controller that came of it,
// and of a cloud provider. Where these contradict each other or leave something open,
// the test TestAmbiguities says what is decided here and why. The package has no
// Kubernetes import.
package clustercidr
