package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// table holds what one run measured.
type table struct {
	works  []*work
	memory []footprint
}

// footprint is what contestants need for a set in some state.
type footprint struct {
	system, title string
	bytes         map[string]float64 // of live heap, for a child, by contestant
}

// A column of the table is a contestant.
type column struct{ name, title string }

var columns = []column{
	{null, "driver or floor"}, {ours, "ours"}, {flat, "bitset"}, {compressed, "roaring"}, {cilium, "Cilium"}, {kubernetes, "Kubernetes"},
}

// ns returns the median time of an operation.
func (t *table) ns(id, contestant string) (float64, bool) {
	for _, w := range t.works {
		if w.id == id {
			return w.cell(contestant).ns()
		}
	}
	return 0, false
}

// ratio returns how many times as long as b a takes.
func (t *table) ratio(id, a, b string) (float64, bool) {
	x, ok := t.ns(id, a)
	y, ok2 := t.ns(id, b)
	return x / y, ok && ok2 && y > 0
}

// sections returns the table of each system that was measured, under its name.
func (t *table) sections() (list []string) {
	for _, sys := range systems {
		if lines := t.lines(sys.name); len(lines) > 0 {
			list = append(list, "**"+sys.name+"**\n\n"+strings.Join(lines, "\n"))
		}
	}
	return list
}

// contestants returns the columns of those that did something in a system.
func (t *table) contestants(system string) (list []column) {
	for _, c := range columns {
		if slices.ContainsFunc(t.works, func(w *work) bool { return w.system == system && w.cell(c.name) != nil }) {
			list = append(list, c)
		}
	}
	return list
}

// lines returns the table of a system as the lines of a Markdown table, none if it
// was not measured.
func (t *table) lines(system string) []string {
	columns := t.contestants(system)
	if len(columns) == 0 {
		return nil
	}
	head := []string{"time of"}
	for _, c := range columns {
		head = append(head, c.title)
	}
	rows := [][]string{append(head, "ours: B, allocs", "Kubernetes / ours", "ours / bitset")}
	for _, w := range t.works {
		if w.system != system {
			continue
		}
		row := []string{w.title}
		for _, c := range columns {
			v, ok := w.cell(c.name).ns()
			row = append(row, report.OrDash(ok, report.Duration(v)))
		}
		bytes, ok := w.cell(ours).median(func(s sample) float64 { return s.bytes })
		allocs, _ := w.cell(ours).median(func(s sample) float64 { return s.allocs })
		row = append(row, report.OrDash(ok, report.Count(bytes)+", "+report.Count(allocs)))
		rows = append(rows, append(row, t.factor(w.id, kubernetes, ours), t.factor(w.id, ours, flat)))
	}
	for _, f := range t.memory {
		if f.system != system {
			continue
		}
		row := []string{f.title}
		for _, c := range columns {
			v, ok := f.bytes[c.name]
			row = append(row, report.OrDash(ok, fmt.Sprintf("%.4f B", v)))
		}
		rows = append(rows, append(row, "", "", ""))
	}
	return report.Aligned(rows)
}

func (t *table) factor(id, a, b string) string {
	v, ok := t.ratio(id, a, b)
	return report.OrDash(ok, report.Times(v))
}
