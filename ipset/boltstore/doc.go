// Package boltstore keeps the records of package ipset in one bbolt file: for one machine,
// durable, without a server beside the program.
//
//	s, err := boltstore.Open(ctx, "/var/lib/ipam/store.db", boltstore.Options{})
//	engine, err := ipset.New(s, ipset.Options{})
//
// Terms: a transaction is one of bbolt; it makes the commits of all callers that wait. The meta pages
// are the first two pages of the file; each transaction writes one of them in turn. A table is a
// separate, named set of records in the file ([Store.OpenTable]); package journal keeps allocators of
// cidrset and servicealloc in tables.
//
// # Guarantees
//
// An acknowledged commit survives a crash of the process, and a crash of the machine if
// the disk keeps what it has synced. With Options.NoSync it survives the death of the
// process only. A commit is made wholly or not at all.
//
// A file that was cut off, torn or overwritten, or that has pages older than the rest, is refused with
// ipalloc.ErrCorrupt and never changed or taken as empty. bbolt protects its meta pages alone by a
// checksum. Here each record has one, over its key, revision and value, and each transaction writes the
// number of records and the sum of their checksums. Opening verifies the branch pages always, and all of that
// when [Verify] says so.
// Otherwise each read verifies the record that it finds or, if it finds none, the records next to its
// place. A damaged record fails the calls that read it and no other.
//
// A full disk fails the commit with [ErrNoSpace] and changes nothing; commits succeed again
// when there is room. A second process gets [ErrLocked], which names the first, or waits.
//
// # No guarantee
//
// If the newer meta page is damaged in a file that was not closed, the other one shows the state before
// the last transaction, which may hold acknowledged commits of many callers. Open finds that
// transaction's pages and refuses the file; [Salvage] saves it whole, and Options.AcceptOlder opens the
// file without it. A newer meta page that the disk lost altogether, so that an older one stands in its
// place, is not noticed: a commit that was cut short looks the same. Open refuses one kind of file that
// lost nothing acknowledged: a process was killed between writing the pages of a transaction and its
// meta page, and the older meta page was damaged after. AcceptOlder opens it. An unverified file can
// hide a page that was lost as a whole, or that the disk kept in an older version, until it is verified.
//
// # Another file
//
// A file that is moved, removed, replaced, cut off or overwritten while a store is open ends that store: the
// next call, and every later one, fails with ipalloc.ErrReplaced. Each call compares the two meta pages with
// those of the last commit, when it begins and when it ends. So a commit during which older bytes come over
// the file is not acknowledged, and a read during which they come returns no records.
//
// Overwrites that leave both meta pages as they are cannot be detected this way: parts behind the meta pages
// that are older, or a copy of the last commit that comes over the file between the pages and the meta page
// of the next one. Checksums refuse most of what they leave with ipalloc.ErrCorrupt. An older version of a
// whole page is found when the file is verified.
//
// Damage fails a call and not the process, with one exception. bbolt follows page numbers without a bound, so
// branch pages that refer back to themselves end the process. Open finds them in a file of any size. In a
// file that is open they can still end it if they come without a change of the meta pages, or in the
// microseconds between that comparison and the use of the page: a commit repeats the comparison
// every 64 records, a list every 1,024.
//
// A network file system may neither lock nor sync; use a local one. After a sync that
// failed, what the disk has is unknown: commits fail with [ErrFailed] until the file is
// opened again. A file never shrinks by itself; see [Store.Compact].
//
// # Watches
//
// One process at a time has the file, so a watch sees all commits. Package
// [github.com/ipalloc/ipalloc/ipset/store/remote] lets other processes of the machine read and write
// through that process. A watch can begin at any of the last Options.History commits since the file was
// opened; otherwise, as after every restart, it ends with ipalloc.ErrOutOfRange.
//
// # Reading
//
// Get and List each show one state. They do not wait for commits, with one exception: a
// file that outgrows what is mapped (1 GiB at first, more for a larger file) is mapped
// again. That commit waits until no read is in flight, and later reads wait for the
// commit. Reads may show a commit whose sync is still in flight. A store that is backed up
// or listed for long grows by what is written meanwhile.
//
// # Backup, restore, moving
//
// [Snapshot] copies a file that another process has, without a lock.
// [Store.Backup] writes a copy while the store is in use, and [Restore] makes a file of it
// and verifies it. Copying the file itself is safe only while no process has it open.
// [Salvage] saves what is readable of a file that is refused. store.Copy moves the records
// between stores of any kind.
//
// # Limits
//
// A key has at most 32 KiB, a value 64 MiB, a commit 256 MiB. [Options].MaxSize bounds the
// file.
//
// # Complexity
//
// A transaction costs two syncs of the disk and writes some five pages of 4 KiB. Measured
// on 2 shared cores with a disk that takes 3 ms for a sync (go test -run '^$' -bench
// Commit): one caller makes 160 commits/s, 8 make 2,300, 64 make 10,000, with 27 commits
// for each sync; with NoSync one caller makes 27,000. A store of 100,000 blocks opens and
// hands out its first address in 9 ms, and in 90 to 180 ms if all of it is verified (go
// test -run '^$' -bench Restart).
//
// Concurrency: all methods are safe for concurrent use. Restart: in memory there are only
// the commits that watches may ask for. A goroutine exists while there is something to
// commit, and at no other time.
package boltstore
