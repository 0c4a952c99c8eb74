// Package controller keeps the records of nodes in step with an allocator of package
// nodeipam: every node gets its prefixes, and an API server records them. The package
// imports nothing of Kubernetes; a [Source] shows the nodes, a [Writer] changes them.
//
// # What it does
//
// [Controller.Run] starts the source, loads all nodes into the allocator and only then
// allocates. It works from the names of nodes that may need something, never from the
// contents of an event: a worker looks at the view and at the allocator and does what is
// missing. No two workers process one node at the same time.
//
// The controller observes a node that has prefixes. For a node without any it allocates
// prefixes and writes them. A terminating node keeps its prefixes and gets no others. The
// prefixes of a node that is gone are released. Another UID under the same name is a new
// node; the old one is treated as gone first.
//
// # Failures
//
// A write is attempted a few times in a row. If every attempt was refused, the prefixes
// are free again and the node waits. If the outcome of one is unknown, the node is
// unsettled: it keeps its prefixes and the same ones are written again, until the view
// or a live read shows what the node has. A read that finds nothing counts only
// Config.RequestLife after the last unknown outcome, because the request may be carried
// out until then; refusals of later attempts do not shorten that. If the node is gone,
// its prefixes are free at once.
// The view alone never frees the prefixes of an unsettled node, because it may be older
// than the write. If an answer names a delay, the node keeps its prefixes and waits that
// long; its changes do not shorten the wait.
//
// A node for which the allocator is full waits with growing pauses, and is tried as soon
// as another one gives space back. A node that no entry matches waits until it changes
// or [Controller.Retry] is called.
//
// # Where a cloud assigns the prefixes
//
// Config.Choose and the two interfaces cover the modes of the controller in Kubernetes; the
// program examples/embed/cloud has them with a fake cloud:
//
//   - RangeAllocator: the defaults. Routes of a cloud may follow the records.
//   - CloudAllocator: Choose asks the cloud for the ranges of the machine and claims them by
//     Occupy, from pools that contain whatever the cloud assigns.
//   - IPAMFromCloud: the same with the pools of the cluster.
//   - IPAMFromCluster: no Choose. The Writer assigns the prefixes to the machine before it
//     writes the record, and the Source lists the range of a machine as the record of its
//     node.
//
// # Limits and cost
//
// A node costs one write, and one read per unknown outcome. The queue remembers each node
// at most once, in some 150 bytes.
//
// # Restart
//
// A Controller runs once. Start the next one, with a new allocator, only when no request
// of the previous one can still be carried out. It loads the nodes from the source.
package controller
