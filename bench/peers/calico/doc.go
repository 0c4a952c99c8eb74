// Command calico measures package ipset beside Calico IPAM (projectcalico/calico, libcalico-go/lib/ipam of release-v3.28,
// the newest that is published as a Go module): the same work, in one run.
//
//	calico                    measure and print the tables
//	calico -etcd              also on etcd, which is built the first time
//	calico -readme README.md  and refresh them between the markers in a file
//	calico -only REGEXP       some works, as in engine/32, or of one contestant, as in engine/32@ours
//
// In each pass every contestant does a work once, one after the other; a figure is the median over the passes. Work of one
// caller is timed by the CPU time of the process on one core: it includes the goroutines that a contestant starts, and
// neither other programs of the machine nor waiting. Work of several callers, and all work on etcd, is timed by the clock on
// the wall with two cores, and repeated if others took much of the machine meanwhile. Garbage is collected between the
// windows, untimed; that favours who makes more of it. What is loaded once is timed by the CPU time of all threads.
//
// The contestants:
//
//   - ours: an engine on [store.Memory].
//   - Calico: its client on an implementation in memory of its backend's interface, which codes and decodes JSON as each
//     backend of Calico does and as our engine codes its records. Its log is off. The pools and reservations, which
//     Calico's product reads from the datastore in every call, are at hand and cost nothing.
//
// The tests run Calico's client and our engine through the same random traces and compare every answer and every state:
// blocks, whose they are, who has which address, the order of the free ones. A host goes under two names, such that the
// search for a free block, which begins at a place derived from the name by either, begins at the same. What differs must
// be in the table of divergences, and all of that is seen in the test.
package main
