// Command calico measures package ipset beside Calico IPAM (projectcalico/calico, libcalico-go/lib/ipam of release-v3.28,
// the newest that is published as a Go module): the same work, in one run.
//
//	calico                    measure and print the tables
//	calico -etcd              also on etcd, which is built the first time
//	calico -readme README.md  and refresh them between the markers in a file
//	calico -only REGEXP       some works, as in engine/32, or of one contestant, as in engine/32@ours
//
// In each pass every contestant does a work once, one after the other; a figure is the median over the passes. Work of one
// caller is timed by the CPU time of the process on one core. That includes the goroutines that a contestant starts, but
// neither other programs nor waiting. Work of many callers, and all work on etcd, is timed by the wall clock on two cores.
// It is repeated if other programs took much of the machine meanwhile. Garbage is collected between the windows, untimed,
// which favours the contestant that makes more garbage. Work done only once is timed by the CPU time of all threads.
//
// The contestants:
//
//   - ours: an engine on [store.Memory].
//   - Calico: its client on an implementation in memory of its backend's interface. That encodes and decodes JSON, as each
//     backend of Calico does and as our engine encodes its records. Its log is off. The pools and reservations are in
//     memory and cost nothing, although Calico's product reads them from the datastore in every call.
//
// The tests run Calico's client and our engine through the same random traces. They compare every answer and every state:
// blocks, their owners, the holders of addresses, the order of free addresses. Both derive the start of their search for a
// free block from the host's name. So a host has two names, chosen to make both searches begin at the same block. The
// table of divergences must contain every difference, and the test must show every row.
package main
