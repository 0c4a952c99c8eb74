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
			row = append(row, orDash(ok, duration(v)))
		}
		bytes, ok := w.cell(ours).median(func(s sample) float64 { return s.bytes })
		allocs, _ := w.cell(ours).median(func(s sample) float64 { return s.allocs })
		row = append(row, orDash(ok, count(bytes)+", "+count(allocs)))
		rows = append(rows, append(row, t.factor(w.id, kubernetes, ours), t.factor(w.id, ours, flat)))
	}
	for _, f := range t.memory {
		if f.system != system {
			continue
		}
		row := []string{f.title}
		for _, c := range columns {
			v, ok := f.bytes[c.name]
			row = append(row, orDash(ok, fmt.Sprintf("%.4f B", v)))
		}
		rows = append(rows, append(row, "", "", ""))
	}
	return aligned(rows)
}

func (t *table) factor(id, a, b string) string {
	v, ok := t.ratio(id, a, b)
	return orDash(ok, times(v))
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

// count formats bytes or allocations of an operation. What the measurement itself
// allocates in a window, a few objects, is not shown.
func count(v float64) string {
	if v < 0.005 {
		return "0"
	}
	return significant(v)
}

// times formats a ratio.
func times(v float64) string {
	if v >= 1000 {
		s := fmt.Sprintf("%.0f", v)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s + "x"
	}
	return significant(v) + "x"
}
