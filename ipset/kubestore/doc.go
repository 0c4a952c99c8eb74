// Package kubestore keeps the records of package ipset in a Kubernetes API server: the replicas of
// a controller share the pools of one store, without their own etcd.
//
//	s, err := kubestore.Open(ctx, config, "default", "pods", kubestore.Options{}) // config: a *rest.Config
//	engine, err := ipset.New(s, ipset.Options{})
//
// It is for controllers with a few replicas. It is not for one engine per node: every process holds
// all records in memory, receives every commit, and competes for the next slot of the log. With one
// engine per node use etcdstore. README.md has the measured rates and the operations: set up, back
// up, move, remove.
//
// Terms: a store is a set of StoreObjects in one namespace, a resource that config/crd.yaml
// defines. The head describes the store; the log is a ring of log objects, its slots; a
// snapshot holds all records, in parts of 768 KB.
//
//	<name>                               the head
//	<name>.log.<slot>                    a log object
//	<name>.snapshot.<generation>.<id>.<part>  a part of a snapshot
//
// # Policy
//
// The API server has no transaction over several objects, but a write of one object depends on its
// resource version. A commit is therefore one write: commit object n replaces commit object n-slots
// in slot n modulo slots. The write succeeds only if the slot still has the resource version of
// object n-slots, so it succeeds once. A process that was overtaken gets a conflict, reads the new
// commit objects, checks the expectations of its commits again, and tries the next slot. Waiting
// callers share one commit object; each gets its own revision.
//
// Processes that contend take turns: each yields to active writers whose last commit is older than
// its own. A process that has not committed yet touches a later slot, and a process that reaches
// that slot pauses.
//
// A log whose objects are created by name and deleted after a snapshot would be unsafe. A process
// that is far behind could create a deleted name again and take that for a commit. So slots are
// never deleted, and the write of such a process fails because its resource version is stale.
//
// Every process holds the records in memory. A read asks the API server for the slot of
// the next commit object. That is a linearizable read; if the slot still holds the old
// object, the records in memory are current. Reads at the same time share one request.
// A process that is further behind than the log reads the newest snapshot.
//
// After every slots/2 commit objects one process writes a snapshot, names it in the head, and
// deletes the previous one. No slot is overwritten before a snapshot has its commits. It may take
// any time: commits that find the log full wait for it. A failed snapshot is continued with the
// parts already written.
//
// # Outcomes
//
// A write whose answer is lost is sent again, for up to 15 seconds. It has a random id and depends
// on a resource version, so it takes effect at most once. Either the second request succeeds, or
// the id in the slot shows whose commit it holds. The outcome is unknown if the API server does not
// answer for 15 seconds, or the caller's context ends while the request is in flight. It is also
// unknown if the whole log is overwritten before an answer arrives.
//
// [store.Retryable] reports of every error whether trying again can help.
//
// If a request that was allowed before is refused (401, 403), it is repeated for 15 seconds,
// because a starting API server refuses requests that its roles allow. A request is also repeated
// if another program than the API server answers it. A server without a trusted certificate is an
// error at once.
//
// Every call fails with [ipalloc.ErrReplaced] once an object of the store is found deleted, created
// again, or older than it was. An object is considered deleted if the API server reports twice that
// it does not exist; a removed label is written back. [ipalloc.ErrReplaced] is also the error when
// the cluster's etcd was set back. To detect that, a process compares the random id of the newest
// commit object that it knows. It does so after an error and after a second without an answer,
// before its next answer or write. Calls fail with [ipalloc.ErrCorrupt] if an object does not
// decode or does not continue the log. Neither is ever taken for an empty store. Deleting the head
// or a slot therefore stops all writers.
//
// # Limits
//
// One commit holds 1,024 records and 512 KB of keys and values, because etcd accepts requests of
// 1.5 MB and JSON turns 3 bytes into 4. All records must fit the memory of every process, and a
// snapshot of them is written every 64 commit objects by default: some megabytes are reasonable.
// Beyond 128 MB of keys and values a commit that adds to them fails with ipalloc.ErrLimit. In etcd
// the log takes the size of 128 commit objects, and as much again for each uncompacted revision.
//
// # Complexity
//
// In requests to the API server:
//
//	Commit    1 write; under contention 1 write and 1 read for each attempt
//	Get       1 read of one object, 3 after a second of silence
//	List      the same
//	Watch     1 watch for each Store and, each minute, 1 list and 1 read; every commit object is sent to it
//	snapshot  4 reads, 3 lists, 1 write of the head, 1 write and 1 deletion for each part
//	Open      2 reads, 1 list for each 64 slots, 1 read for each part
//
// Concurrency: a [Store] is safe for concurrent use. Restart: it holds nothing that must be closed;
// commits are as durable as the cluster's etcd.
package kubestore
