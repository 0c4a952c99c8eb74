package main

import (
	"fmt"
	"math"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// A target is a limit on something that one run measures. All but one are ratios,
// so that they hold on any machine.
type target struct {
	text  string
	got   func(t *table) (float64, bool)
	limit float64
	// least says that the limit is a lower one.
	least bool
	unit  string
}

// referenceFloor is the floor of a pair, in nanoseconds, on the machine for which
// the target of mixed lengths was set.
const referenceFloor = 25

var cidrsetTargets = []target{
	{text: "pair, 50 % of 2^16: Kubernetes / ours", got: ratioOf("pair/2^16/50", kubernetes, ours), limit: 20, least: true},
	{text: "pair, 99.99 % of 2^16: Kubernetes / ours", got: ratioOf("pair/2^16/99.99", kubernetes, ours), limit: 240, least: true},
	{text: "pair, 50 % of 2^16: ours / bitset", got: ratioOf("pair/2^16/50", ours, flat), limit: 1.4},
	{text: "pair, 99 % of 2^16: ours / bitset", got: ratioOf("pair/2^16/99", ours, flat), limit: 1.4},
	{text: "pair, 99.99 % of 2^16: ours / bitset", got: ratioOf("pair/2^16/99.99", ours, flat), limit: 1.1},
	{text: "pair, 50 % of 2^20: ours / bitset", got: ratioOf("pair/2^20/50", ours, flat), limit: 1.4},
	{text: "pair, 99 % of 2^20: ours / bitset", got: ratioOf("pair/2^20/99", ours, flat), limit: 1.4},
	{text: "pair, 99.99 % of 2^20: ours / bitset", got: ratioOf("pair/2^20/99.99", ours, flat), limit: 1.1},
	{text: "pair, 50 % of 2^24: ours / bitset", got: ratioOf("pair/2^24/50", ours, flat), limit: 1.4},
	{text: "pair, 99 % of 2^24: ours / bitset", got: ratioOf("pair/2^24/99", ours, flat), limit: 1.4},
	{text: "pair, 99.99 % of 2^24: ours / bitset", got: ratioOf("pair/2^24/99.99", ours, flat), limit: 1.1},
	{text: "one free at the far end of 2^24: bitset / ours", got: ratioOf("far/2^24", flat, ours), limit: 1000, least: true},
	{text: "one free at the far end of 2^16 / pair at 50 %", got: oursOver("far/2^16", "pair/2^16/50"), limit: 3},
	{text: "one free at the far end of 2^20 / pair at 50 %", got: oursOver("far/2^20", "pair/2^20/50"), limit: 3},
	{text: "one free at the far end of 2^24 / pair at 50 %", got: oursOver("far/2^24", "pair/2^24/50"), limit: 3},
	{text: "pair, 50 %: 2^24 / 2^16", got: oursOver("pair/2^24/50", "pair/2^16/50"), limit: 2},
	{text: "pair, 99 %: 2^24 / 2^16", got: oursOver("pair/2^24/99", "pair/2^16/99"), limit: 2},
	{text: "pair, 99.99 %: 2^24 / 2^16", got: oursOver("pair/2^24/99.99", "pair/2^16/99.99"), limit: 2},
	{text: "AllocateNext alone, 2^16 / floor", got: overFloor("alone/2^16"), limit: 2},
	{text: "AllocateNext alone, 2^20 / floor", got: overFloor("alone/2^20"), limit: 2},
	{text: "AllocateNext alone, 2^24 / floor", got: overFloor("alone/2^24"), limit: 2},
	{text: "AllocateN of 64: 32 goroutines / 1", got: oursOver("batch/g32", "batch/g1"), limit: 1.4},
	{text: "ReleaseN + AllocateN of 64: 32 goroutines / 1", got: oursOver("batchpair/g32", "batchpair/g1"), limit: 1.4},
	{text: "Occupy + Release of 2^20 children", got: nsOf("range/2^20", ours), limit: 3000, unit: " ns"},
	{text: "Occupy + Release of 2^20 children: Kubernetes / ours", got: ratioOf("range/2^20", kubernetes, ours), limit: 10000, least: true},
	{text: "mixed lengths, 10,000 live, as if the floor were 25 ns", got: scaled("mixed/10000"), limit: 150, unit: " ns"},
	{text: "mixed lengths: 10,000 live / 100", got: oursOver("mixed/10000", "mixed/100"), limit: 1.5},
}

func ratioOf(id, a, b string) func(*table) (float64, bool) {
	return func(t *table) (float64, bool) { return t.ratio(id, a, b) }
}

func nsOf(id, contestant string) func(*table) (float64, bool) {
	return func(t *table) (float64, bool) { return t.ns(id, contestant) }
}

// oursOver compares two works of ours.
func oursOver(a, b string) func(*table) (float64, bool) {
	return func(t *table) (float64, bool) {
		x, ok := t.ns(a, ours)
		y, ok2 := t.ns(b, ours)
		return x / y, ok && ok2 && y > 0
	}
}

// overFloor compares a work of ours with the sum of the parts of the floor.
func overFloor(id string) func(*table) (float64, bool) {
	return func(t *table) (float64, bool) {
		x, ok := t.ns(id, ours)
		floor := 0.0
		for _, part := range []string{floorLock, floorFind, floorPrefix} {
			ns, measured := t.ns(part, null)
			floor += ns
			ok = ok && measured
		}
		return x / floor, ok && floor > 0
	}
}

// scaled returns the time of a work of ours on a machine with the reference floor.
func scaled(id string) func(*table) (float64, bool) {
	return func(t *table) (float64, bool) {
		x, ok := t.ns(id, ours)
		y, ok2 := t.ns(floorPair, null)
		return x / y * referenceFloor, ok && ok2 && y > 0
	}
}

// met reports whether v meets the target.
func (g *target) met(v float64) bool {
	if math.IsNaN(v) {
		return false
	}
	if g.least {
		return v >= g.limit
	}
	return v <= g.limit
}

// verdicts returns those on the targets of all systems and how many were missed.
func (t *table) verdicts() (lines []string, missed int) {
	for _, sys := range systems {
		l, n := verdicts(t, sys.targets)
		lines, missed = append(lines, l...), missed+n
	}
	return lines, missed
}

// verdicts returns a line for each target and how many were missed. A target whose
// works were not measured is neither met nor missed.
func verdicts(t *table, targets []target) (lines []string, missed int) {
	for _, g := range targets {
		v, ok := g.got(t)
		word, sign := "pass", "<="
		switch {
		case !ok:
			lines = append(lines, "----  "+g.text+": not measured")
			continue
		case !g.met(v):
			word = "MISS"
			missed++
		}
		if g.least {
			sign = ">="
		}
		unit := g.unit
		if unit == "" {
			unit = "x"
		}
		lines = append(lines, fmt.Sprintf("%s  %s: %s%s (%s %s%s)", word, g.text, report.Significant(v), unit, sign, report.Significant(g.limit), unit))
	}
	return lines, missed
}
