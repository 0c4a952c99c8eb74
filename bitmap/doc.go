// Package bitmap is a set of ordinals [0, n), for n from 0 to 2^64, built for
// allocators: it finds the next clear ordinal, or the best-fitting aligned run
// of clear ordinals, in a number of steps that does not depend on how full the
// set is.
//
// # Terms
//
// An ordinal is a uint64 position. Polarity: a set bit is a taken ordinal, a
// clear bit a free one. Ranges are closed, [lo, hi], because a half-open range
// cannot end at 2^64. An aligned run of order k is 2^k ordinals whose first is
// a multiple of 2^k. Counts are uint64 and saturate at [math.MaxUint64]; only
// the count of a whole 2^64 space that is wholly set can reach that, and
// [Bitmap.Full] tells it apart.
//
// # Structure
//
// The set is a radix tree of fan-out 64. A leaf is a page of 4,096 ordinals: 64
// words and two summary words, which say which of the 64 words have a clear bit
// ("room") and which have a set bit ("some"). An inner node has the same two
// summary words over its 64 slots, a count for each slot, and a child for each
// slot that is mixed. A slot that is wholly clear or wholly set is two bits in
// its parent and nothing else, so memory follows what is touched and not n. A
// chain of nodes in which only one slot is mixed is not kept either: a child
// may be smaller than its slot, and then remembers whether the rest of the slot
// is clear or set. A space of at most 4,096 ordinals is one page.
//
// # Cost
//
//	Test, Set, Clear, NextSet, NextClear, Rank, Select    O(log64 n)
//	SetRange, ClearRange                                   O(log64 n), and what they cut
//	BestFit, NextRun, MaxClearOrder                        O(log n), amortised over flips
//	Count, Empty, Full                                     O(1)
//	All, Zeros, Runs, ZeroRuns                           O(1) amortised for each result
//
// Searching never looks at the full words in between: a page's summary word
// leads to the next word with room, a node's to the next slot. Order summaries,
// which BestFit and its kin need, are built when first asked for and refreshed
// lazily: a flip marks its word stale, one OR for each level.
//
// In steady state nothing allocates: up to 64 pages that became wholly clear or
// wholly set stay where they are, or in reserve, for the next flip. A churn in
// which the number of mixed pages goes up and down by more than that does.
//
// # Memory
//
// A page is 576 bytes (1.13 bits for each ordinal of a dense set; 1.25 with order
// summaries), an inner node 1,088 bytes, and the first node is part of the Bitmap. A
// dense set takes at most 1.3 bits an ordinal and 1 KiB; one of two to eight pages,
// n from 4,097 to about 40,000, up to 0.9 KiB more, because its first node has a whole
// array of children. An isolated ordinal in a sparse set costs one page and, at
// worst, one inner node. A set whose n is not a power of two also keeps the path to
// n once it is touched, at most one inner node for each 6 bits of n.
//
// # Errors and concurrency
//
// An ordinal out of range, lo > hi, and a negative order panic, as a slice
// index does: they are mistakes of the program, never of its input. Only
// [Bitmap.UnmarshalBinary] and [Bitmap.BitSet] return errors. A Bitmap is not
// safe for concurrent use; the allocators above lock.
package bitmap
