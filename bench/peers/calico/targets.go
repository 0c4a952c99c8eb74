package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// A target is a limit on something that one run measures.
type target struct {
	text  string
	got   func(t *table) (float64, bool)
	limit float64
	least bool // the limit is a lower one
	unit  string
}

var targets = []target{
	{text: "block, /26 half full", got: nsOf("block/26/32"), limit: 300, unit: " ns"},
	{text: "block, /26 half full: Calico / ours", got: ratioOf("block/26/32"), limit: 50, least: true},
	{text: "engine on a store in memory, /26 half full: Calico / ours", got: ratioOf("engine/32"), limit: 50, least: true},
	{text: "first address of a new host, 10 blocks", got: nsOf("first/10"), limit: 20000, unit: " ns"},
	{text: "first address of a new host, 1,000 blocks", got: nsOf("first/1000"), limit: 20000, unit: " ns"},
	{text: "first address of a new host, 100,000 blocks", got: nsOf("first/100000"), limit: 20000, unit: " ns"},
	{text: "first address of a new host: 100,000 blocks / 10", got: oursOver("first/100000", "first/10"), limit: 2},
	{text: "full pool: 65,536 blocks / 16", got: oursOver("full/65536", "full/16"), limit: 2},
	{text: "borrow: 65,536 blocks / 16", got: oursOver("borrow/65536", "borrow/16"), limit: 3},
	{text: "one etcd, 1 caller: Calico / ours", got: ratioOf("etcd/1"), limit: 2.5, least: true},
	{text: "one etcd, 32 callers of one host: Calico / ours", got: ratioOf("etcd/32"), limit: 8, least: true},
	{text: "AutoAssign: calls to the store", got: factOf("calls/assign"), limit: 1},
	{text: "release: calls to the store", got: factOf("calls/release"), limit: 1},
	{text: "first address of a new host: calls to the store", got: factOf("calls/first"), limit: 3},
	{text: "256 callers of one host: errors", got: factOf("crowd/errors"), limit: 0},
	{text: "256 callers of one host: blocks beyond those needed", got: factOf("crowd/extra"), limit: 0},
	{text: "10,000,000 addresses: live heap as commits leave it", got: factOf("memory/built"), limit: 0.9e9, unit: " B"},
	{text: "10,000,000 addresses: live heap, loaded", got: factOf("memory/heap"), limit: 0.9e9, unit: " B"},
	{text: "10,000,000 addresses: load from a snapshot", got: factOf("memory/load"), limit: 3e9, unit: " ns"},
}

func ratioOf(id string) func(*table) (float64, bool) {
	return func(t *table) (float64, bool) { return t.ratio(id, theirs, ours) }
}

func nsOf(id string) func(*table) (float64, bool) {
	return func(t *table) (float64, bool) { return t.ns(id, ours) }
}

func factOf(id string) func(*table) (float64, bool) {
	return func(t *table) (float64, bool) { return t.fact(id, ours) }
}

// oursOver compares two works of ours.
func oursOver(a, b string) func(*table) (float64, bool) {
	return func(t *table) (float64, bool) {
		x, ok := t.ns(a, ours)
		y, ok2 := t.ns(b, ours)
		return x / y, ok && ok2 && y > 0
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

// verdicts returns a line for each target and how many were missed. A target whose works were not measured is neither
// met nor missed.
func (t *table) verdicts() (lines []string, missed int) {
	for _, g := range targets {
		v, ok := g.got(t)
		if !ok {
			lines = append(lines, "----  "+g.text+": not measured")
			continue
		}
		word, sign, unit := "pass", "<=", g.unit
		if !g.met(v) {
			word = "MISS"
			missed++
		}
		if g.least {
			sign = ">="
		}
		lines = append(lines, fmt.Sprintf("%s  %s: %s%s (%s %s%s)", word, g.text, report.Significant(v), unit, sign, report.Significant(g.limit), unit))
	}
	return lines, missed
}

// misses says which targets a run missed, for those who read only the tables.
func misses(lines []string) string {
	var list strings.Builder
	for _, line := range lines {
		if what, ok := strings.CutPrefix(line, "MISS  "); ok {
			list.WriteString("\n- " + what)
		}
	}
	if list.Len() == 0 {
		return ""
	}
	return "\n\nTargets missed in this run:\n" + list.String()
}
