package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
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
			row = append(row, orDash(ok, duration(v)))
		}
		bytes, ok := w.cell(ours).median(func(s sample) float64 { return s.bytes })
		allocs, _ := w.cell(ours).median(func(s sample) float64 { return s.allocs })
		row = append(row, orDash(ok, count(bytes)+", "+count(allocs)))
		v, ok := t.ratio(w.id, theirs, ours)
		row = append(row, orDash(ok, times(v)))
		if uncoded {
			v, ok = t.ratio(w.id, copies, ours)
			row = append(row, orDash(ok, times(v)))
		}
		rows = append(rows, row)
	}
	return aligned(rows)
}

// countLines returns what was counted as the lines of a Markdown table.
func (t *table) countLines() []string {
	rows := [][]string{{"", "ours", "Calico", "Calico / ours"}}
	for _, f := range t.counts {
		row := []string{f.title}
		for _, c := range columns[:2] {
			v, ok := f.values[c.name]
			row = append(row, orDash(ok, f.format(v)))
		}
		x, y := f.values[theirs], f.values[ours]
		rows = append(rows, append(row, orDash(x > 0 && y > 0, times(x/y))))
	}
	return aligned(rows)
}

// aligned lays rows out as a Markdown table, the first of them its head.
func aligned(rows [][]string) []string {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, s := range row {
			width[i] = max(width[i], utf8.RuneCountInString(s))
		}
	}
	line := func(row []string) string {
		var b strings.Builder
		for i, s := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(s))
			if i == 0 {
				b.WriteString("| " + s + pad)
			} else {
				b.WriteString(" | " + pad + s)
			}
		}
		return b.String() + " |"
	}
	rule := "|" + strings.Repeat("-", width[0]+2)
	for _, w := range width[1:] {
		rule += "|" + strings.Repeat("-", w+1) + ":"
	}
	lines := []string{line(rows[0]), rule + "|"}
	for _, row := range rows[1:] {
		lines = append(lines, line(row))
	}
	return lines
}

func orDash(ok bool, s string) string {
	if !ok {
		return "-"
	}
	return s
}

// significant formats v with about three digits.
func significant(v float64) string {
	if v == 0 {
		return "0"
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'e', 2, 64), 64) // 0.9996 is 1.00
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', min(digits, 3), 64)
}

// duration formats nanoseconds.
func duration(ns float64) string {
	switch {
	case ns < 999.5:
		return significant(ns) + " ns"
	case ns < 999.5e3:
		return significant(ns/1e3) + " us"
	case ns < 999.5e6:
		return significant(ns/1e6) + " ms"
	}
	return significant(ns/1e9) + " s"
}

// size formats bytes.
func size(v float64) string {
	switch {
	case v < 1e3:
		return significant(v) + " B"
	case v < 1e6:
		return significant(v/1e3) + " kB"
	case v < 1e9:
		return significant(v/1e6) + " MB"
	}
	return significant(v/1e9) + " GB"
}

// whole formats a count of things.
func whole(v float64) string { return grouped(fmt.Sprintf("%.0f", v)) }

// count formats bytes or allocations of an operation. What the measurement itself allocates in a window, a few
// objects, is not shown.
func count(v float64) string {
	if v < 0.005 {
		return "0"
	}
	if v >= 1000 {
		return whole(v)
	}
	return significant(v)
}

// times formats a ratio.
func times(v float64) string {
	if v >= 1000 {
		return whole(v) + "x"
	}
	return significant(v) + "x"
}

// grouped puts commas into a number.
func grouped(s string) string {
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
