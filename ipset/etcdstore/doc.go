// Package etcdstore keeps the records of package ipset in an etcd cluster: any number of
// engines, on any number of machines, share the pools under one prefix.
//
//	s, err := etcdstore.Open(ctx, client, "/ipam/", etcdstore.Options{})
//	engine, err := ipset.New(s, ipset.Options{})
//
// Terms: the prefix is what all keys of a store begin with; the space is where its records
// are; the format record says what is under the prefix, in which version, and in which
// cluster it was made; a member is one server of the cluster; a lane chains the commits of
// one process.
//
//	<prefix>format        the format record
//	<prefix>data/<key>    the records, under the keys of package ipset
//	<prefix>past/<id>     a lane: its revision is that of the commit that last wrote it
//
// Other keys under the prefix are neither read nor written. A prefix inside the space of
// another store is refused. The revision of a record is etcd's mod revision, and that of a
// commit is the cluster's.
//
// # Policy
//
// A commit is one transaction. It compares the mod revision of the format record and of
// every record that it relies on, and the past, and then writes the records and a lane. If
// a comparison fails, the transaction returns those revisions instead, so a conflict names
// its record in the same round trip.
// A commit that may have been made is never sent again. The etcd client repeats calls that
// were cancelled on the way, transactions included; the store prevents that. Interceptors
// that you install in the client must not repeat transactions either.
//
// Reads are linearizable, and compare the format record as commits do. A read of several
// round trips shows the revision of the first; if a compaction removes that revision in
// the middle, the read begins again. A read that no member could answer is repeated for
// some seconds, and so is a commit that no connection accepted. A commit that a member
// refused because it knows of no leader is sent twice more. Nothing else is repeated.
//
// # Outcomes
//
// A commit that failed left no trace, unless its error matches ipalloc.ErrUnknownOutcome.
// It left none if no connection accepted it, if a server refused it before proposing it to
// the cluster, or if all members refuse it alike: too large, no permission, a bad token,
// too many requests, no leader. Its outcome is unknown if, after it was sent, the
// connection broke, the context ended, or the call was cancelled on the way; and after
// "request timed out", "leader changed", "server stopped" and "database space exceeded",
// because the member that first exceeds its quota makes the commit and still answers so.
//
// [store.Retryable] reports of every error whether trying again can help.
//
// # Requirements
//
// Every answer names its cluster, and a revision that never falls. An answer from another
// cluster is ipalloc.ErrMismatch. [ipalloc.ErrReplaced] is the answer of every read, watch and
// commit when the format record is not the one that Open found, and when the past of the
// cluster lacks a commit that this process saw, as after restoring a snapshot under running
// clients. Removing, adopting or converting a store therefore shuts out every client that had
// opened it: a wiped store never reads as an empty one.
//
// The value of a record ends with the random id of its commit's lane, 8 bytes. Every
// transaction compares the lane of the newest record that the process saw: it must have that
// record's revision at least, however many commits others made since. A commit that only
// removes writes no lane, because it must succeed in a full database. If only such commits
// were lost, that is noticed only while the cluster is at a lower revision. When there are
// more than 16,384 lanes, Open removes those written least recently. A process that needs a
// removed lane reads its old revision. If that was compacted too, the revisions that the
// process returns from then on are larger by 2^48: what its callers remember conflicts, and
// they read again.
//
// Servers must be of etcd 3.4.36, 3.5.18, 3.6.0 or newer. Older ones can lose events of a watch:
// before 3.4.36 and 3.5.18 the removal of a key if the watch starts at a revision that is being
// compacted, before 3.4.31 and 3.5.13 events after a compaction. Before 3.4.25 and 3.5.8 a progress
// notification can overtake events; a watch of several prefixes that notices this ends with an
// error, possibly after it yielded a part of a commit. Open asks the member that answers it for its
// release and refuses an older one, unless OldServers of [Options] is set. Other members, and members
// that are replaced later, are not asked: upgrade all of them first. TLS,
// users and keep-alive are the client's. The store uses the connection of the client, not its
// KV field: a namespace or an ordering wrapped around KV has no effect. A user needs read and
// write permission on the range of the prefix, or read permission for a store that is only
// read; to open a prefix with "/data/" in it, also read permission on the format record of the
// store that could contain it.
//
// # Limits
//
// One commit holds 125 records written, as many expected, and about 500 KB of keys and
// values, in servers with the default limits; see [Options] for others. A prefix has 2 to
// 256 bytes. A watch of several prefixes holds events in memory until the server confirms
// that they are complete; a watch from far in the past holds all of them.
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
//	Open                    2, 3 if it makes the store; 1 less with OldServers
//
// The servers walk the index of the whole range for a list, however few records it returns.
//
// Concurrency: a [Store] is safe for concurrent use. Restart: it holds no state; what was
// committed is as durable as etcd is.
package etcdstore
