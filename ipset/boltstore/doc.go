// Package boltstore keeps the records of package ipset in one bbolt file: for one machine, durable, with nothing to run beside the
// program. It also keeps a journal of the allocators of packages cidrset and servicealloc, so that no crash makes them hand
// out again what they had handed out.
//
//	s, err := boltstore.Open(ctx, "/var/lib/ipam/store.db", boltstore.Options{})
//	engine, err := ipset.New(s, ipset.Options{})
//
//	nodes, err := boltstore.OpenSet(ctx, s, "nodes", pool, 24)
//	prefix, err := boltstore.Do(ctx, nodes, (*cidrset.Set).AllocateNext) // in the file when it returns
//
// # What is promised, and which test shows it
//
//   - What was acknowledged is there, whenever the process dies: bench/torture, TestKillStorm. The same of the machine, as far as
//     its disk keeps what it was told to sync; not with Options.NoSync, which is safe from the death of the process alone.
//   - A commit is made wholly or not at all: TestConformance, TestAgainstAMap, TestKillStorm.
//   - A file that was cut off, torn, overwritten, or that has pages older than the rest, is refused or has everything. It is never
//     taken as empty, and never changed: TestTruncated, TestTornPages, TestLostWrites, TestBadFiles. bbolt checks its two
//     meta pages alone; here each record has a checksum, and each commit writes how many records there are and the sum of
//     these. When opening reads all that: [Verify]. What it leaves out is noticed at the record: TestTornPagesUnverified.
//   - A full disk fails the commit with [ErrNoSpace], changes nothing, and when there is room commits go on: TestNoSpace, and on a
//     real one bench/torture, TestFullDisk.
//   - Callers that commit at once share a sync, and one that is alone waits for nobody: TestCallersShareASync.
//   - A second process gets an error that says who has the file, or waits: TestLocked.
//   - A journal answers after a crash as before it: TestJournalOfASet, TestJournalOfServices.
//   - The first allocation after a restart reads a few records, whatever the size: TestRestartReadsLittle.
//   - A file that is cut off while it is open gives errors, not a crash: TestCutWhileOpen.
//
// # What is not
//
// Damage that hits just the newer one of both meta pages, in a file that was not closed, takes the store one commit back, because
// nothing tells it from a commit that was cut short: TestTornPagesAfterKill. The log of Options.Logger says so. A file system
// over the network may neither lock nor sync; use a local one. After a sync that failed, what the disk has is unknown:
// commits fail with [ErrFailed] until the file is opened again. A file never shrinks by itself: [Store.Compact].
//
// # Watches
//
// One process at a time has the file, so a watch sees all commits there are. It can begin at the last Options.History ones since the
// file was opened; store.ErrCompacted otherwise, as after every restart.
//
// # Reading
//
// Get and List show one state each, and do not wait for commits nor these for them, with one exception: a file that outgrows what
// it has mapped (1 GiB at first, more for a larger file) is mapped anew, for which that commit waits until no one reads, and
// later readers for the commit. What they show may be a commit whose sync is still under way. A store that is backed up, or listed
// for long, grows by what is written meanwhile.
//
// # Backup, restore, moving
//
// [Store.Backup] writes a copy while the store is in use, [Restore] makes a file of it and verifies it; copying the file itself is
// safe only while no process has it open. [Salvage] saves what is readable of a file that is refused. store.Copy moves the
// records between stores of any kind, from memory to a file to an etcd.
//
// # Cost
//
// A transaction of bbolt is two syncs, and writes some five pages of 4 KiB. On a disk that takes 3 ms for a sync, one caller makes
// 160 commits/s, 8 make 2,300, 64 make 10,000 (27 commits for each sync); with NoSync one makes 27,000 (2 cores, under load;
// go test -run '^$' -bench Commit). A store of 100,000 blocks is open and has handed out its first address in 9 ms, in 90 to
// 180 ms if all of it is verified (go test -run '^$' -bench Restart).
//
// # Concurrency, restart
//
// Everything is safe for concurrent use. Nothing is held in memory but the watches' history, and of a journal its allocator. A goroutine
// lives while there is something to commit, and at no other time.
package boltstore
