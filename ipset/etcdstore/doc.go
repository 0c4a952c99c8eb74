// Package etcdstore keeps the records of package ipset in an etcd cluster: any number of engines, on any number of
// machines, share the pools under one prefix. It is an [store.Store].
//
// Terms: the prefix is what all keys of a store begin with; the space is where its records are; the format record says
// what is under the prefix, in which version, and in which cluster it was made; a member is one server of the cluster.
//
//	<prefix>format        the format record
//	<prefix>data/<key>    the records, under the keys that ipset documents
//
// Other keys under the prefix are neither read nor written. The revision of a record is etcd's mod revision, and that of a
// commit is the cluster's.
//
// # Policy
//
// A commit is one transaction: a comparison of the mod revision of every record it relies upon, and of the format record's,
// then the writes; else the question for those revisions, so that a conflict names its record in the same round trip. One that
// may have been made is never sent again. The etcd client repeats a call that somebody on the way has cancelled, a
// transaction as well; the store keeps it from doing so. What the client is given to intercept calls must not repeat them either.
//
// Reads are linearizable. Those that take several round trips show the revision of the first; if a compaction removes that in the
// middle, they begin anew. A read that no member could answer is repeated for some seconds, a commit that a member refused because it
// knows of no leader twice. Nothing else is.
//
// # Outcomes
//
// A commit that failed left no trace, unless its error is ipalloc.ErrUnknownOutcome. It left none if it was handed to no connection,
// and if a server refused it before proposing it to the cluster or all members refuse it alike: too large, no permission, a bad
// token, too many requests, no leader. Its outcome is unknown if the connection broke, the context ended or the call was
// cancelled on the way after it was sent, and after "request timed out", "leader changed", "server stopped" and
// "database space exceeded": the member that first exceeds its quota makes the commit and answers so.
//
// [Retryable] says of every error whether trying again can help. An unknown outcome is settled by repeating the call of the
// engine with its request key.
//
// # What the cluster owes
//
// Every answer names its cluster, and a revision that never falls. An answer from another cluster is refused ([ErrCluster]), and one
// from an earlier state of this one, such as a snapshot restored under running clients ([ErrRollback]). A commit that
// finds another format record than Open did is refused ([ErrReplaced]): whoever removes, adopts or converts a store shuts out
// those who had opened it.
//
// Servers must be of etcd 3.4.25, 3.5.8 or newer: in older ones a progress notification can overtake events, and a watch of several
// prefixes that notices ends with an error. TLS, users and keep-alive are the client's. A user needs read and write
// permission on the range of the prefix, or read permission for a store that is only looked at.
//
// # Limits
//
// One commit: 127 records written and as many expected, about 500 KB of keys and values, in servers with the default limits;
// see [Options] for others. A prefix is 2 to 256 bytes. A watch of several prefixes holds what has arrived until the
// server confirms that it is whole: from far in the past, that is the whole of it.
//
// # Complexity
//
// In round trips:
//
//	Commit                  1
//	Get                     1 for each 128 records
//	List                    1 for each page of 4 MB, 256 records the first
//	List, reverse, limited  2
//	Watch                   1 for each commit that it yields, none with one prefix; nothing for other commits
//	Open                    1, 2 if it makes the store
//
// The servers walk the index of the whole range for a list, however few records it returns.
//
// Concurrency: a [Store] is safe for concurrent use. Restart: it holds nothing; what was committed is as durable as etcd is.
package etcdstore
