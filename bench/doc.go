// Package bench holds the benchmarks of this module's packages bitmap, cidrset, nodeipam,
// servicealloc, ipset and prefixes, and the guard that detects a loss of speed. It exports
// nothing. The module bench/peers compares the allocators with other projects, and
// bench/torture/scale measures the cost of calls of package ipset as a cluster ages.
//
// # Running
//
//	make bench                                    all, to standard output
//	make bench BENCH='Pair/size=2.16' COUNT=10    those that match, ten times each
//	go test -run '^$' -bench . -benchtime 10ms ./bench    all, roughly, in half a minute
//
// BENCH is the regular expression of go test -bench, split at each slash. Write a dot for the ^
// of a name like size=2^16, because ^ is an anchor.
//
// Set-up is not timed, seeds are fixed, and a driver holds no more than 4,096
// prefixes, so that its own memory stays in cache. The time of the driver, a few
// nanoseconds, is part of every figure.
//
// # Comparing two commits
//
// make tools builds benchstat into internal/tools/bin. Run both commits on the same
// idle machine, one after the other, at least ten times each:
//
//	git switch --detach main && make bench BENCH=Pair COUNT=10 >old.out
//	git switch - && make bench BENCH=Pair COUNT=10 >new.out
//	internal/tools/bin/benchstat old.out new.out
//
// Git ignores files named *.out. Since names are made of key=value, benchstat can also
// compare within a run: benchstat -col /full new.out.
//
// # Names
//
// A name is the work, then its parameters, as /key=value. Names are stable: a work that changes
// gets a new name. The parameter size is the number of children of a set (of ordinals, in
// package bitmap). The parameter full is the percentage of children taken, at random places.
//
//	Pair/size/full            Release of a random child, and AllocateNext
//	Far/size                  the same with one free child, the last, and the cursor on the first
//	Fill/size                 AllocateNext until the set is full, which empties it
//	Full/size                 AllocateNext of a full set: ErrFull
//	Has/size                  Has of a taken child, half full
//	All/size                  iteration over all taken children, half full; ns/child
//	Stats/size                a pair at 99 %, and Stats
//	Range/size/children       Occupy and Release of a prefix of so many children
//	Batch/work=fill           AllocateN of 64 until the set is full, per child
//	Batch/work=pair           ReleaseN of 64 and AllocateN of 64, per child
//	Mixed/live                Release, and Allocate of another length from /20 to /28
//	New/size                  New, for IPv6 from 2^40 on
//	Memory/size/state         time: making a set in that state; B/set, B/child, bits/child: its memory
//	MemoryIsolated/size       4,096 children scattered over an IPv6 pool; B/taken
//	Snapshot/size/state       AppendBinary; B/snapshot
//	Restore/size/state        Restore
//	ParallelPair/.../goroutines, ParallelBatch, ParallelHas
//	                          the same from so many goroutines on one set (a writer beside those of Has)
//	IPv6Pair/size             Pair in an IPv6 pool of which all but 2^16 children are occupied for good
//	IPv6Far, IPv6Range        as above
//	IPv6Sparse/size           Release and Occupy of one of 4,096 scattered children
//	BitmapFlip/size/full      Clear and Set of a set ordinal
//	BitmapNextClear, BitmapRank, BitmapSelect, BitmapSelectClear
//	                          one call at a random ordinal, or of a random rank
//	BitmapBestFit/size/full/order   BestFit of that order after a flip
//	Row/registry, Row/nodeipam, Row/ipset, Row/prefixes
//	                          the rows of guard_rows_test.go: a pair of calls beside so many owners
//	                          or nodes, of an engine and of prefixes on a store in memory
//
// A state is empty, sparse (one child in 4,096 taken, at random), half (at random) or
// full.
//
// # The guard
//
// make bench-guard runs the tests named TestGuard, and so does CI. None of them looks at
// an absolute time:
//
//   - TestGuardInstructions counts the instructions of an operation with callgrind, without
//     the set-up. So it also sees code that counts no steps: a second
//     look-up, a loop over the words of a page, a lock taken twice, a scan. A bound is 2 %
//     above the count in guard_rows_test.go. The counts are for one version of Go on amd64.
//     With another version, or without valgrind, the test is skipped and says so.
//     In the rows that lock it counts atomic instructions too: a mutex takes one to lock and one
//     to unlock. A bound is 1 above the count.
//   - TestGuardTrips counts the calls of the store in a pair of calls of ipset and of prefixes,
//     their operations, and the allocations of the pair.
//   - TestGuardSteps, with the tag invariants, counts the words and nodes that the works
//     look at. It is exact: a bound is at most 10 % above the count.
//   - TestGuardAllocations fails if a hot path allocates in steady state. TestGuardMemory
//     checks the documented memory of sets. Both are part of every go test.
//   - TestGuardInlining names the functions that the compiler must inline.
//   - TestGuardRatios compares two works of the same kind: on another size or fullness, or
//     beside a plain bitset behind the same mutex and codec. It runs both in turn, nine
//     times, by the CPU time of the thread, and takes the median of the quotients. A comparison
//     fails only if it exceeds its bound eight times in a row. File guard_test.go has the
//     bounds, 25 to 55 % above the values measured when they were set. The test runs with the
//     flag -ratios only, and not with the race detector, assertions or coverage. The
//     linker's order of the functions moves a ratio by up to 0.1. So the guard also runs the
//     test in a second order, with -ldflags=-randlayout=LAYOUT, and each bound holds in both.
//
// Medians of a pair beside the bitset, over three runs in each of the two orders on a busy
// machine (TestGuardRatios -v; make bench-guard LAYOUT=1):
//
//	size   50 %   99 %   99.99 %
//	2^16   1.14   1.09   0.88
//	2^20   1.19   1.15   1.19
//	2^24   1.15   1.35   1.48
//
// On a quiet machine a ratio is higher: see bench/peers, which measures one order.
//
// The command make bench-planted plants thirteen regressions, each in a separate build, and
// fails if the guard misses any.
//
// When a change makes a work faster, lower its bound.
package bench
