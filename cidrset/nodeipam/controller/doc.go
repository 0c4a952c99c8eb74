// Package controller keeps the records of nodes in step with an allocator of package
// nodeipam. Every node gets its prefixes, and an API server records them. The package
// imports nothing of Kubernetes; a [Source] shows the nodes, and a [Writer] changes them.
//
// # Behaviour
//
// [Controller.Run] starts the source, loads all nodes into the allocator and only then
// allocates. It works from the names of nodes that may need work, never from the contents
// of an event. A worker looks at the view and at the allocator, and makes the missing
// changes. No two workers process one node at the same time.
//
// The controller observes a node that has prefixes; for a node without prefixes it
// allocates and writes them. A terminating node keeps its prefixes and gets no others.
// When a node is deleted, its prefixes are released. Another UID under the same name is a
// new node; the old one is treated as deleted first.
//
// # Failures
//
// A write is attempted a few times in a row. If every attempt was refused, the controller
// frees the prefixes and the node waits. If the outcome of a write is unknown, the node
// is unsettled. It keeps its prefixes, and the controller writes the same ones again,
// until the view or a live read shows the node's prefixes. A read that finds none is
// conclusive only Config.RequestLife after the last unknown outcome, because the request
// may be carried out until then. Refusals of later attempts do not shorten that time. If
// the node has been deleted, its prefixes are free at once. The view alone never frees
// the prefixes of an unsettled node, because it may be older than the write. If an answer
// names a delay, the node keeps its prefixes and waits that long; a change of the node
// does not shorten the wait.
//
// If the allocator is full for a node, the node waits with growing pauses, and is tried
// as soon as another node releases space. A node that no entry matches waits until the
// node changes or [Controller.Retry] is called.
//
// # Where a cloud assigns the prefixes
//
// Config.Choose and the two interfaces cover the modes of the controller in Kubernetes.
// The program examples/embed/cloud shows them with a fake cloud:
//
//   - RangeAllocator: the defaults. Routes of a cloud may follow the records.
//   - CloudAllocator: Choose asks the cloud for the ranges of the machine and claims them
//     by Occupy. The pools must contain every range that the cloud assigns.
//   - IPAMFromCloud: the same with the pools of the cluster.
//   - IPAMFromCluster: no Choose. The Writer assigns the prefixes to the machine before it
//     writes the record, and the Source lists the range of a machine as the record of its
//     node.
//
// # Limits and cost
//
// A node costs one write, and one read for each unknown outcome. The queue remembers each
// node at most once, in some 150 bytes.
//
// # Restart
//
// A Controller runs once. Start the next one, with a new allocator, only when no request
// of the previous one may still be carried out. It loads the nodes from the source.
package controller
