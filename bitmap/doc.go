// Package bitmap implements a set of ordinals [0, n), for n from 0 to 2^64, for use in
// allocators. It finds the next clear ordinal, or the best-fitting aligned run of clear
// ordinals. The number of steps does not depend on the fill level of the set.
//
//	b := bitmap.New(1 << 16)
//	b.SetRange(0, 99)                // [0, 99] are taken
//	x, ok := b.SetNextClear(50)      // 100: the first free ordinal from 50 on, now taken
//	b.Clear(7)
//	x, ok = b.SetNextClear(0)        // 7
//	fmt.Println(b.Count())           // 101
//
// To hand out addresses or prefixes, use package servicealloc or cidrset, which build on
// this package and add a lock.
//
// # Terms
//
// An ordinal is a uint64 position. A set bit is a taken ordinal, a clear bit a free one.
// Ranges are closed, [lo, hi], because a half-open range cannot end at 2^64. An aligned run of
// order k is 2^k consecutive ordinals from a multiple of 2^k. Counts are uint64 and saturate
// at [math.MaxUint64]. Only the count of a 2^64 space that is wholly set is larger;
// [Bitmap.Full] distinguishes it.
//
// # Structure
//
// The set is a radix tree of fan-out 64. A leaf is a page of 4,096 ordinals: 64 words and
// two summary words. One summary word marks the words with a clear bit ("room"), the
// other the words with a set bit ("some"). An inner node has the same two summary words
// over its 64 slots, a count for each slot, and a child for each mixed slot. A slot that
// is wholly clear or wholly set is two bits in its parent, so memory depends on the
// touched pages, not on n. Paths are compressed: a child may be smaller than its slot,
// and records whether the rest of the slot is clear or set. A space of at most 4,096
// ordinals is one page. Up to 2^24 ordinals, the children of all nodes above pages lie in
// one array, so a flip reads one word to find its page.
//
// # Cost
//
//	Test, Set, Clear, NextSet, NextClear, Rank, Select    O(log64 n)
//	SetNextClear, SetNextN                                 O(log64 n) for each word
//	SetRange, ClearRange                                   O(log64 n) plus the nodes they discard
//	BestFit, MaxClearOrder                                 O(log n), amortised over flips
//	Count, Empty, Full                                     O(1)
//	All, Zeros, Runs, ZeroRuns                             O(1) amortised for each result
//
// A search skips full words: the summary word of a page shows the next word with room,
// and the summary word of a node the next slot. BestFit and MaxClearOrder build order
// summaries on their first call and refresh them lazily: a flip marks its word stale,
// which is one OR for each level.
//
// Steady state does not allocate: up to 64 pages that became wholly clear or wholly set
// are kept for the next flip. A workload whose number of partly filled pages swings by
// more than 64 still allocates.
//
// # Memory
//
// A page takes 576 bytes (1.13 bits for each ordinal of a dense set; 1.25 with order
// summaries), an inner node 1,088 bytes. The first node is part of the Bitmap. A dense
// set takes at most 1.3 bits an ordinal plus 1 KiB. With two to eight pages (n from 4,097
// to about 40,000) it takes up to 0.9 KiB more, because its first node has a full array
// of children. An isolated ordinal in a sparse set takes one page and at most one inner
// node. If the array of children exists, a node takes up to 1.5 KiB more. That array
// takes at most 32 KiB. It is made when a quarter of its slots has a node, and kept at
// least until the last of these nodes is dropped. For example, two ordinals in each of 16
// slots of 2^24 take 2,058 bytes each, and the last of them keeps the array. If n is not
// a power of two, the set also keeps the path to n once it is touched. The path has at
// most one inner node for each 6 bits of n.
//
// # Errors and concurrency
//
// An ordinal out of range, lo > hi and a negative order panic, as a slice index does.
// They are mistakes in the program, not in its input. Only [Bitmap.UnmarshalBinary]
// returns errors. A Bitmap is not safe for concurrent use; the allocators built on it
// lock.
package bitmap
