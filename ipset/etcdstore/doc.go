// Package etcdstore keeps the records of package ipset in an etcd cluster: any number of
// engines, on any number of machines, share the pools under one prefix.
//
//	s, err := etcdstore.Open(ctx, client, "/ipam/", etcdstore.Options{})
//	engine, err := ipset.New(s, ipset.Options{})
//
// Terms: all keys of a store begin with its prefix; the space holds its records. The format record
// names the kind of store, its version, and the cluster that it was created in. A member is one
// server of the cluster. A lane chains the commits of one process.
//
//	<prefix>format        the format record
//	<prefix>data/<key>    the records, under the keys of package ipset
//	<prefix>past/<id>     a lane: its revision is that of the commit that last wrote it
//
// Other keys under the prefix are neither read nor written. A prefix inside the space of
// another store is refused. The revision of a record is etcd's mod revision; the revision of a
// commit is the cluster's.
//
// # Policy
//
// A commit is one transaction. It compares the past and the mod revisions of the format record and
// of every record that it relies on. Then it writes the records and a lane. If a comparison fails,
// the transaction returns those revisions instead, so a conflict names its record in the same round
// trip. A commit that may have been made is never sent again. The etcd client repeats calls that
// were cancelled in flight, transactions included; the store prevents that. Interceptors that you
// install in the client must not repeat transactions either.
//
// Reads are linearizable, and compare the format record as commits do. A read with more than one
// round trip shows the revision of the first. If a compaction removes that revision meanwhile, the
// read begins again. A read that no member could answer is repeated for some seconds, and so is a
// commit that no connection accepted. A commit that a member refused because it knows no leader is
// sent twice more. Nothing else is repeated.
//
// # Outcomes
//
// A commit that failed left no trace, unless its error matches ipalloc.ErrUnknownOutcome.
// It left no trace if no connection accepted it, or if a server refused it before proposing it to
// the cluster. The same holds for refusals that all members share: too large, no permission, a bad
// token, too many requests, no leader. The outcome is unknown if the connection broke, the context
// ended, or the call was cancelled in flight. It is also unknown after "request timed out", "leader
// changed", "server stopped" and "database space exceeded". The last one is included because the
// member that first exceeds its quota makes the commit and still answers so.
//
// [store.Retryable] reports of every error whether trying again can help.
//
// # Requirements
//
// Every answer names its cluster, and a revision that never falls. An answer from another cluster
// is ipalloc.ErrMismatch. Every read, watch and commit fails with [ipalloc.ErrReplaced] in two
// cases. The format record has changed since Open read it; or the cluster lacks a commit that this
// process saw, as after a restore under running clients. Removing, adopting or converting a store
// therefore shuts out every client that had opened it. A wiped store never reads as an empty one.
//
// The value of a record ends with the random id of its commit's lane, 8 bytes. Every transaction
// compares the lane of the newest record that the process saw: the lane must have at least that
// record's revision, after any number of other commits. A commit that only removes writes no lane,
// because it must succeed in a full database. If only such commits were lost, the loss is noticed
// only while the cluster is at a lower revision. If there are more than 16,384 lanes, Open removes
// the least recently written lanes. A process that needs a removed lane reads its old revision. If
// that was compacted too, the process adds 2^48 to all revisions that it returns from then on. So
// cached revisions of its callers conflict, and the callers read again.
//
// Servers must be of etcd 3.4.36, 3.5.18, 3.6.0 or newer. Older servers can lose events of a watch.
// Before 3.4.36 and 3.5.18 they can lose the removal of a key if the watch starts at a revision
// that is being compacted. Before 3.4.31 and 3.5.13 they can lose events after a compaction. Before
// 3.4.25 and 3.5.8 a progress notification can overtake events. If a watch of more than one prefix
// notices this, it ends with an error, possibly after it yielded a part of a commit. Open reads the
// release of the member that answers it and refuses an older one, unless OldServers of [Options] is
// set. It does not check other members, or members that are replaced later: upgrade all of them
// first. TLS, users and keep-alive belong to the client. The store uses the connection of the
// client, not its KV field: a namespace or an ordering wrapped around KV has no effect. A user
// needs read and write permission on the range of the prefix, or read permission for a store that
// is only read. To open a prefix with "/data/" in it, the user also needs read permission on the
// format record of the store that could contain it.
//
// # Limits
//
// One commit holds 125 records written, as many expected, and about 500 KB of keys and
// values, in servers with the default limits; see [Options] for others. A prefix has 2 to
// 256 bytes. A watch of more than one prefix holds events in memory until the server confirms that
// they are complete. A watch from far in the past holds all events since.
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
// For a list, the servers walk the index of the whole range, even if it returns few records.
//
// Concurrency: a [Store] is safe for concurrent use. Restart: it holds no state; commits are as
// durable as etcd.
package etcdstore
