package main

import (
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// table holds what one run measured.
type table struct {
	works  []*work
	counts []fact
}

// A fact is a row of the table of what is counted once, not timed.
type fact struct {
	id, title string
	values    map[string]float64 // by contestant
	format    func(float64) string
}

// A column of a table is a contestant.
type column struct{ name, title string }

var columns = []column{{ours, "ours"}, {theirs, "Calico"}, {copies, "Calico, uncoded"}}

const sectionCounts = "Counted"

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

// fact returns a counted value.
func (t *table) fact(id, contestant string) (float64, bool) {
	for _, f := range t.counts {
		if f.id == id {
			v, ok := f.values[contestant]
			return v, ok
		}
	}
	return 0, false
}

// sections returns the tables, each under its name.
func (t *table) sections() (list []string) {
	var names []string
	for _, w := range t.works {
		if !slices.Contains(names, w.section) {
			names = append(names, w.section)
		}
	}
	for _, name := range names {
		list = append(list, "**"+name+"**\n\n"+strings.Join(t.lines(name), "\n"))
	}
	if len(t.counts) > 0 {
		list = append(list, "**"+sectionCounts+"**\n\n"+strings.Join(t.countLines(), "\n"))
	}
	return list
}

// lines returns a section as the lines of a Markdown table.
func (t *table) lines(section string) []string {
	var shown []column
	for _, c := range columns {
		if slices.ContainsFunc(t.works, func(w *work) bool { return w.section == section && w.cell(c.name) != nil }) {
			shown = append(shown, c)
		}
	}
	head := []string{"time of"}
	for _, c := range shown {
		head = append(head, c.title)
	}
	rows := [][]string{append(head, "ours: B, allocs", "Calico / ours")}
	uncoded := slices.ContainsFunc(shown, func(c column) bool { return c.name == copies })
	if uncoded {
		rows[0] = append(rows[0], "uncoded / ours")
	}
	for _, w := range t.works {
		if w.section != section {
			continue
		}
		row := []string{w.title}
		for _, c := range shown {
			v, ok := w.cell(c.name).ns()
			row = append(row, report.OrDash(ok, report.Duration(v)))
		}
		bytes, ok := w.cell(ours).median(func(s sample) float64 { return s.bytes })
		allocs, _ := w.cell(ours).median(func(s sample) float64 { return s.allocs })
		row = append(row, report.OrDash(ok, report.Count(bytes)+", "+report.Count(allocs)))
		v, ok := t.ratio(w.id, theirs, ours)
		row = append(row, report.OrDash(ok, report.Times(v)))
		if uncoded {
			v, ok = t.ratio(w.id, copies, ours)
			row = append(row, report.OrDash(ok, report.Times(v)))
		}
		rows = append(rows, row)
	}
	return report.Aligned(rows)
}

// countLines returns what was counted as the lines of a Markdown table.
func (t *table) countLines() []string {
	rows := [][]string{{"", "ours", "Calico", "Calico / ours"}}
	for _, f := range t.counts {
		row := []string{f.title}
		for _, c := range columns[:2] {
			v, ok := f.values[c.name]
			row = append(row, report.OrDash(ok, f.format(v)))
		}
		x, y := f.values[theirs], f.values[ours]
		rows = append(rows, append(row, report.OrDash(x > 0 && y > 0, report.Times(x/y))))
	}
	return report.Aligned(rows)
}
