package main

import (
	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

// referenceFloor is the floor of a pair, in nanoseconds, on the machine for which
// the target of mixed lengths was set.
const referenceFloor = 25

var cidrsetTargets = []frame.Target{
	{Text: "pair, 50 % of 2^16: Kubernetes / ours", Got: frame.RatioOf("pair/2^16/50", kubernetes, ours), Limit: 20, Least: true},
	{Text: "pair, 99.99 % of 2^16: Kubernetes / ours", Got: frame.RatioOf("pair/2^16/99.99", kubernetes, ours), Limit: 240, Least: true},
	{Text: "pair, 50 % of 2^16: ours / bitset", Got: frame.RatioOf("pair/2^16/50", ours, flat), Limit: 1.4},
	{Text: "pair, 99 % of 2^16: ours / bitset", Got: frame.RatioOf("pair/2^16/99", ours, flat), Limit: 1.4},
	{Text: "pair, 99.99 % of 2^16: ours / bitset", Got: frame.RatioOf("pair/2^16/99.99", ours, flat), Limit: 1.1},
	{Text: "pair, 50 % of 2^20: ours / bitset", Got: frame.RatioOf("pair/2^20/50", ours, flat), Limit: 1.4},
	{Text: "pair, 99 % of 2^20: ours / bitset", Got: frame.RatioOf("pair/2^20/99", ours, flat), Limit: 1.4},
	{Text: "pair, 99.99 % of 2^20: ours / bitset", Got: frame.RatioOf("pair/2^20/99.99", ours, flat), Limit: 1.1},
	{Text: "pair, 50 % of 2^24: ours / bitset", Got: frame.RatioOf("pair/2^24/50", ours, flat), Limit: 1.4},
	{Text: "pair, 99 % of 2^24: ours / bitset", Got: frame.RatioOf("pair/2^24/99", ours, flat), Limit: 1.4},
	{Text: "pair, 99.99 % of 2^24: ours / bitset", Got: frame.RatioOf("pair/2^24/99.99", ours, flat), Limit: 1.1},
	{Text: "one free at the far end of 2^24: bitset / ours", Got: frame.RatioOf("far/2^24", flat, ours), Limit: 1000, Least: true},
	{Text: "one free at the far end of 2^16 / pair at 50 %", Got: frame.Over("far/2^16", "pair/2^16/50", ours), Limit: 3},
	{Text: "one free at the far end of 2^20 / pair at 50 %", Got: frame.Over("far/2^20", "pair/2^20/50", ours), Limit: 3},
	{Text: "one free at the far end of 2^24 / pair at 50 %", Got: frame.Over("far/2^24", "pair/2^24/50", ours), Limit: 3},
	{Text: "pair, 50 %: 2^24 / 2^16", Got: frame.Over("pair/2^24/50", "pair/2^16/50", ours), Limit: 2},
	{Text: "pair, 99 %: 2^24 / 2^16", Got: frame.Over("pair/2^24/99", "pair/2^16/99", ours), Limit: 2},
	{Text: "pair, 99.99 %: 2^24 / 2^16", Got: frame.Over("pair/2^24/99.99", "pair/2^16/99.99", ours), Limit: 2},
	{Text: "AllocateNext alone, 2^16 / floor", Got: overFloor("alone/2^16"), Limit: 2},
	{Text: "AllocateNext alone, 2^20 / floor", Got: overFloor("alone/2^20"), Limit: 2},
	{Text: "AllocateNext alone, 2^24 / floor", Got: overFloor("alone/2^24"), Limit: 2},
	{Text: "AllocateN of 64: 32 goroutines / 1", Got: frame.Over("batch/g32", "batch/g1", ours), Limit: 1.4},
	{Text: "ReleaseN + AllocateN of 64: 32 goroutines / 1", Got: frame.Over("batchpair/g32", "batchpair/g1", ours), Limit: 1.4},
	{Text: "Occupy + Release of 2^20 children", Got: frame.ValueOf("range/2^20", ours), Limit: 3000, Unit: " ns"},
	{Text: "Occupy + Release of 2^20 children: Kubernetes / ours", Got: frame.RatioOf("range/2^20", kubernetes, ours), Limit: 10000, Least: true},
	{Text: "mixed lengths, 10,000 live, as if the floor were 25 ns", Got: scaled("mixed/10000"), Limit: 150, Unit: " ns"},
	{Text: "mixed lengths: 10,000 live / 100", Got: frame.Over("mixed/10000", "mixed/100", ours), Limit: 1.5},
}

// overFloor compares a work of ours with the sum of the parts of the floor.
func overFloor(id string) func(*frame.Table) (float64, bool) {
	return func(t *frame.Table) (float64, bool) {
		x, ok := t.Value(id, ours)
		floor := 0.0
		for _, part := range []string{floorLock, floorFind, floorPrefix} {
			ns, measured := t.Value(part, null)
			floor += ns
			ok = ok && measured
		}
		return x / floor, ok && floor > 0
	}
}

// scaled returns the time of a work of ours on a machine with the reference floor.
func scaled(id string) func(*frame.Table) (float64, bool) {
	return func(t *frame.Table) (float64, bool) {
		x, ok := t.Value(id, ours)
		y, ok2 := t.Value(floorPair, null)
		return x / y * referenceFloor, ok && ok2 && y > 0
	}
}
