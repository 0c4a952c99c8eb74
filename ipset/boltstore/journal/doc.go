// Package journal keeps allocators of packages cidrset and servicealloc in the file of a boltstore.Store. Even after
// a crash they never assign the same prefix, address or port twice.
//
//	s, err := boltstore.Open(ctx, "/var/lib/ipam/store.db", boltstore.Options{})
//	nodes, err := journal.OpenSet(ctx, s, "nodes", pool, 24)
//	prefix, err := journal.Do(ctx, nodes, (*cidrset.Set).AllocateNext) // in the file when it returns
//
// Terms: a journal is one allocator in the file, under a name. A batch is the set of changes that one commit adds to
// its log. A snapshot replaces the log from time to time.
//
// Policy: the allocator changes within [Journal.Do] alone. Do returns when the change is
// in the file. If the change cannot be written, the allocator is rebuilt from the file,
// and Do returns the error. Calls of one journal run one after the other; callers share
// transactions with each other and with everything else that is written to the store.
//
// Limits: a name has 1 to 1,000 bytes. One process at a time can have the file, and a journal is open once. A
// snapshot replaces the log after 4,096 batches, or when the log is larger than 64 KiB and twice the last snapshot.
// If the file has no room for a snapshot, the log keeps growing. If it has none for the log either, the log is merged
// into the snapshot in small steps, in room that the journal reserves (128 kB and more). Until that room can be
// reserved again, allocations fail and releases succeed. The room can be too small if other writers fill the file
// after it was opened, or if a batch changes most of a large snapshot. Releases then fail too. A snapshot of any size
// is kept, in parts; one batch has at most 64 MiB.
//
// Complexity: a change writes its batch only, however large the allocator is; snapshots
// add an amortised constant factor. Opening reads the snapshot and replays the log.
//
// Concurrency: all methods are safe for concurrent use. A goroutine exists while changes
// are being written, and at no other time. Restart: open the store and the journal again.
// Within a process, close a journal to open it again, for example with other options.
// A servicealloc.Tx that outlives its registry, because a write failed or the journal was
// closed, ends with ipalloc.ErrClosed. A journal of another version of the format is refused with ipalloc.ErrVersion.
package journal
