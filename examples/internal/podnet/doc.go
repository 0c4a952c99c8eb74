// Package podnet gives the pods of a trace their addresses out of pools that are divided into blocks,
// as the network plugins of a cluster's nodes would, over any [store.Store].
//
// A pod that comes to a node gets one address of each family, from the node's own blocks while they
// have room; one that goes gives them back; blocks that have been empty for a while go back to the
// pool. The clock is that of the trace: a day of it passes as fast as the store allows.
//
// A [Network] keeps nothing that it could not find again in the store. It can be stopped anywhere,
// killed as well, and [Open] goes on: a pod's handle says how far the trace had come, and what was
// under way is simply asked for once more. The pod's name is the key of that request, so that the
// same question gets the same answer, and a pod never has two addresses of a family.
//
// network.go is the work with package ipset, verify.go compares with what follows from the trace
// alone, summary.go tells what came of it.
package podnet
