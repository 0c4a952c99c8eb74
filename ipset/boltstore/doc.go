// Package boltstore keeps the records of package ipset in one bbolt file: for one machine,
// durable, without a server beside the program.
//
//	s, err := boltstore.Open(ctx, "/var/lib/ipam/store.db", boltstore.Options{})
//	engine, err := ipset.New(s, ipset.Options{})
//
// Terms: a transaction is a bbolt transaction; it makes the commits of all waiting callers. The meta pages
// are the first two pages of the file; transactions write them alternately. A table is a separate, named set
// of records in the file ([Store.OpenTable]); package journal keeps allocators of cidrset and servicealloc in
// tables.
//
// # Guarantees
//
// An acknowledged commit survives a crash of the process, and a crash of the machine if the disk keeps synced
// data. With Options.NoSync it survives only a crash of the process. A commit is made wholly or not at all.
//
// A file that was cut off, torn or overwritten, or that has pages older than the rest, fails with
// [ipalloc.ErrCorrupt]. It is never changed or taken as empty. In bbolt only the meta pages have a checksum.
// Here each record has a checksum of its key, revision and value, and each transaction writes the number of
// records and the sum of their checksums. Open always verifies the branch pages, and all checksums if
// [Verify] says so. Otherwise each read verifies the record that it finds or, if it finds none, the records
// next to its place. A damaged record fails only the calls that read it.
//
// A full disk fails the commit with [ErrNoSpace] and changes nothing; commits succeed again
// when there is room. A second process waits or gets [ErrLocked], which names the first.
//
// # No guarantee
//
// If the newer meta page is damaged in a file that was not closed, the older one shows the state before the
// last transaction. That transaction may hold acknowledged commits of many callers. Open finds its pages and
// refuses the file; [Salvage] saves the whole transaction, and Options.AcceptOlder opens the file without it.
// If the disk loses the newer meta page and keeps an older version, Open does not notice, because an
// interrupted commit looks the same. Open also refuses a file that lost no acknowledged commit if two things
// happened. A process was killed between writing the pages of a transaction and its meta page, and then the
// older meta page was damaged. AcceptOlder opens such a file. Without verification, a page that the disk
// lost, or kept in an older version, can stay undetected.
//
// # Another file
//
// If the file of an open store is moved, removed, replaced, cut off or overwritten, the store ends: the next
// call, and every later one, fails with ipalloc.ErrReplaced. Each call compares the two meta pages with the
// last commit, when it begins and when it ends. If older bytes overwrite the file during a commit, the commit
// is not acknowledged; during a read, the read returns no records.
//
// This comparison cannot detect an overwrite that leaves both meta pages unchanged. One example is older
// bytes behind the meta pages. Another is a copy of the last commit that is written over the file just before
// the meta page of the next commit. Checksums detect most of the damage, as ipalloc.ErrCorrupt. Verification
// of the file finds an older version of a whole page.
//
// Damage fails a call and not the process, with one exception. Branch pages that refer back to themselves end
// the process, because bbolt follows page numbers without a bound. Open finds them in a file of any size. In
// an open file they can still end the process if they appear without a change of the meta pages. They can
// also do so in the microseconds between the comparison and the use of the page. A commit repeats the
// comparison every 64 records, a list every 1,024.
//
// A network file system may neither lock nor sync; use a local one. After a failed sync, the state of the
// disk is unknown: commits fail with [ErrFailed] until the file is opened again. A file never shrinks by
// itself; see [Store.Compact].
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
// Get and List each show one state. They do not wait for commits, with one exception: a file that outgrows
// its mapping (1 GiB at first, more for a larger file) is mapped again. That commit waits until no read is in
// flight, and later reads wait for the commit. Reads may show a commit whose sync is still in flight. During
// a long backup or list, the file grows by all writes, because their old pages are not reused.
//
// # Backup, restore, moving
//
// [Snapshot] copies a file that another process has, without a lock.
// [Store.Backup] writes a copy while the store is in use, and [Restore] makes a file of it
// and verifies it. Copying the file itself is safe only while no process has it open.
// [Salvage] saves the readable records of a refused file. [store.Copy] moves the records between stores of
// any kind.
//
// # Limits
//
// A key has at most 32 KiB, a value 64 MiB, a commit 256 MiB. [Options].MaxSize bounds the
// file.
//
// # Complexity
//
// A transaction costs two syncs of the disk and writes some five pages of 4 KiB. Rates were measured on 2
// shared cores with a disk that takes 3 ms for a sync (go test -run '^$' -bench Commit). One caller makes 160
// commits/s, 8 make 2,300, and 64 make 10,000, with 27 commits for each sync. With NoSync one caller makes
// 27,000. A store of 100,000 blocks opens and assigns its first address in 9 ms, or with full verification in
// 90 to 180 ms (go test -bench Restart).
//
// Concurrency: all methods are safe for concurrent use. Restart: memory holds only the commits that watches
// may ask for. A goroutine exists only while a commit is in flight.
package boltstore
