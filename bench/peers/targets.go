package main

import (
	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

var cidrsetTargets = []frame.Target{
	// Kubernetes takes no less than 450 ns for a pair; ours is 25 to 30 ns, of which a mutex that costs 5 ns is 10.
	{Text: "pair, 50 % of 2^16: Kubernetes / ours", Got: frame.RatioOf("pair/2^16/50", kubernetes, ours), Limit: 15, Least: true},
	{Text: "pair, 99.99 % of 2^16: Kubernetes / ours", Got: frame.RatioOf("pair/2^16/99.99", kubernetes, ours), Limit: 200, Least: true},
	// The floor of a pair is the bitset behind the same mutex: two locks and a word, about 20 ns where a lock costs 5. Ours reads
	// where the page is and the summaries of the page besides, and keeps two or three counts: 5 to 8 ns more at 50 %, at every size.
	// At 99.99 % the bitset reads some 150 words in a row, which the processor fetches ahead. Of ours, two pages in three are full
	// and not there: a pair makes one and lets go of one, in memory that at 2^24 is in no cache. In return no set is slow (far/*),
	// where the bitset is 1,400 times.
	{Text: "pair, 50 % of 2^16: ours / bitset", Got: frame.RatioOf("pair/2^16/50", ours, flat), Limit: 1.4},
	{Text: "pair, 99 % of 2^16: ours / bitset", Got: frame.RatioOf("pair/2^16/99", ours, flat), Limit: 1.25},
	{Text: "pair, 99.99 % of 2^16: ours / bitset", Got: frame.RatioOf("pair/2^16/99.99", ours, flat), Limit: 1.25},
	{Text: "pair, 50 % of 2^20: ours / bitset", Got: frame.RatioOf("pair/2^20/50", ours, flat), Limit: 1.6},
	{Text: "pair, 99 % of 2^20: ours / bitset", Got: frame.RatioOf("pair/2^20/99", ours, flat), Limit: 1.3},
	{Text: "pair, 99.99 % of 2^20: ours / bitset", Got: frame.RatioOf("pair/2^20/99.99", ours, flat), Limit: 1.7},
	{Text: "pair, 50 % of 2^24: ours / bitset", Got: frame.RatioOf("pair/2^24/50", ours, flat), Limit: 1.6},
	{Text: "pair, 99 % of 2^24: ours / bitset", Got: frame.RatioOf("pair/2^24/99", ours, flat), Limit: 1.5},
	{Text: "pair, 99.99 % of 2^24: ours / bitset", Got: frame.RatioOf("pair/2^24/99.99", ours, flat), Limit: 1.85},
	{Text: "one free at the far end of 2^24: bitset / ours", Got: frame.RatioOf("far/2^24", flat, ours), Limit: 1000, Least: true},
	{Text: "one free at the far end of 2^16 / pair at 50 %", Got: frame.Over("far/2^16", "pair/2^16/50", ours), Limit: 3},
	{Text: "one free at the far end of 2^20 / pair at 50 %", Got: frame.Over("far/2^20", "pair/2^20/50", ours), Limit: 3},
	{Text: "one free at the far end of 2^24 / pair at 50 %", Got: frame.Over("far/2^24", "pair/2^24/50", ours), Limit: 3},
	// A page is found by one load at both sizes. At 2^24 the pages are out of the caches.
	{Text: "pair, 50 %: 2^24 / 2^16", Got: frame.Over("pair/2^24/50", "pair/2^16/50", ours), Limit: 1.5},
	{Text: "pair, 99 %: 2^24 / 2^16", Got: frame.Over("pair/2^24/99", "pair/2^16/99", ours), Limit: 1.75},
	{Text: "pair, 99.99 %: 2^24 / 2^16", Got: frame.Over("pair/2^24/99.99", "pair/2^16/99.99", ours), Limit: 2.5},
	{Text: "AllocateN of 64: 32 goroutines / 1", Got: frame.Over("batch/g32", "batch/g1", ours), Limit: 1.4},
	{Text: "Occupy + Release of 2^20 children", Got: frame.ValueOf("range/2^20", ours), Limit: 3000, Unit: " ns"},
	{Text: "Occupy + Release of 2^20 children: Kubernetes / ours", Got: frame.RatioOf("range/2^20", kubernetes, ours), Limit: 10000, Least: true},
}
