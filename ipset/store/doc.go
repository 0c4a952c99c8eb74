// Package store defines the contract between package ipset and a database, and
// implements it in memory.
//
//	s := store.NewMemory()
//	rev, err := s.Commit(ctx, []store.Op{
//		{Kind: store.Put, Key: "a", Value: "1"},               // "a" must not exist
//		{Kind: store.Guard, Key: "b", Expect: 7},              // "b" must be at revision 7
//		{Kind: store.Delete, Key: "c", Expect: store.AnyRevision},
//	})
//
// Terms: a record is a key with a value. Its revision is the revision of the commit that last wrote it; 0 means that it does
// not exist. A commit writes several records, all or none, if each has the revision that the caller expects. It may guard
// records that it does not write. It has four possible outcomes:
//
//	nil                          made, and as durable as the store
//	ipalloc.ErrConflict          not made: a record has another revision; [ConflictKey] names it
//	ipalloc.ErrUnknownOutcome    made, not made, or made later: the outcome never arrived
//	anything else                not made
//
// Revisions of a store only grow. [Store.Watch] delivers the commits in the order of
// their revisions.
//
// Stores: [Memory] here, boltstore in one file, etcdstore in an etcd cluster, sqlstore in SQLite or PostgreSQL, kubestore in
// a Kubernetes API server, each in a separate module. [Copy] moves the records from one to another. To write another store,
// implement [Store] and run the suite of package storetest. README.md compares the stores, and describes the records that
// package ipset keeps in them.
//
// [Space] returns a part of a store as a separate store, for a tenant, a VRF or a network. Keys that begin with an upper-case
// letter are for other programs, in a store and in each of its spaces. Package ipset does not read, report or remove such
// records.
//
// [NewOverlay] shows a store with commits that are kept in memory only, for what-if questions.
// [Together] combines the commits of calls, also of different packages, into one.
//
// Errors: every error is, or wraps, an *ipalloc.Error. Errors of a context and of a
// backend match no sentinel of package ipalloc; the cause is wrapped.
//
// Limits: [Memory] has none. The others report theirs by [Store.Limits].
//
// Complexity of [Memory]: a record is found in O(log n); a commit of k records takes
// O(k log n); a list copies the records that it returns. A snapshot takes O(n).
//
// Concurrency: every store is safe for concurrent use. Restart: [Memory] keeps nothing;
// [Memory.MarshalBinary] and [RestoreMemory] save and load all of it.
package store
