package frame

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// Table holds what one run measured.
type Table struct {
	Layout
	Works []*Work
	Facts []Fact
}

// A Layout describes the columns of a table.
type Layout struct {
	Columns []Column // contestants; the ones that did nothing in a section are left out
	Ratios  []Ratio  // columns after those
	Ours    string   // the contestant whose bytes and allocations are shown
}

// A Column is a contestant.
type Column struct{ Name, Title string }

// A Ratio is a column: the time of contestant A divided by the time of B.
type Ratio struct{ Title, A, B string }

// A Fact is a row that is counted once, not timed.
type Fact struct {
	Section, ID, Title string
	Values             map[string]float64 // by contestant
	Format             func(float64) string
}

// Value returns the median time of an operation, or a counted value.
func (t *Table) Value(id, contestant string) (float64, bool) {
	for _, w := range t.Works {
		if w.ID == id {
			return w.Cell(contestant).ns()
		}
	}
	for _, f := range t.Facts {
		if f.ID == id {
			v, ok := f.Values[contestant]
			return v, ok
		}
	}
	return 0, false
}

// sections returns the tables, each under its name.
func (t *Table) sections() (list []string) {
	var names []string
	for _, w := range t.Works {
		names = append(names, w.Section)
	}
	for _, f := range t.Facts {
		names = append(names, f.Section)
	}
	for i, name := range names {
		if slices.Index(names, name) == i {
			list = append(list, "**"+name+"**\n\n"+strings.Join(t.lines(name), "\n"))
		}
	}
	return list
}

// row is a work or a fact.
type row struct {
	id, title, costs string
	has              func(contestant string) bool
	format           func(float64) string
}

// rows returns the works and facts of a section, and whether there is a work.
func (t *Table) rows(section string) (rows []row, timed bool) {
	for _, w := range t.Works {
		if w.Section == section {
			bytes, ok := w.Cell(t.Ours).median(func(s Sample) float64 { return s.Bytes })
			allocs, _ := w.Cell(t.Ours).median(func(s Sample) float64 { return s.Allocs })
			rows = append(rows, row{w.ID, w.Title, report.OrDash(ok, report.Count(bytes)+", "+report.Count(allocs)),
				func(c string) bool { return w.Cell(c) != nil }, report.Duration})
			timed = true
		}
	}
	for _, f := range t.Facts {
		if f.Section == section {
			rows = append(rows, row{f.ID, f.Title, "", func(c string) bool { _, ok := f.Values[c]; return ok }, f.Format})
		}
	}
	return rows, timed
}

// lines returns a section as the lines of a Markdown table.
func (t *Table) lines(section string) []string {
	rows, timed := t.rows(section)
	has := func(c string) bool { return slices.ContainsFunc(rows, func(r row) bool { return r.has(c) }) }
	head := []string{""}
	if timed {
		head[0] = "time of"
	}
	var shown []Column
	for _, c := range t.Columns {
		if has(c.Name) {
			shown, head = append(shown, c), append(head, c.Title)
		}
	}
	if timed {
		head = append(head, "ours: B, allocs")
	}
	var ratios []Ratio
	for _, q := range t.Ratios {
		if has(q.A) && has(q.B) {
			ratios, head = append(ratios, q), append(head, q.Title)
		}
	}
	text := [][]string{head}
	for _, r := range rows {
		line := []string{r.title}
		for _, c := range shown {
			v, ok := t.Value(r.id, c.Name)
			line = append(line, report.OrDash(ok, r.format(v)))
		}
		if timed {
			line = append(line, r.costs)
		}
		for _, q := range ratios {
			v, ok := t.ratio(r.id, q.A, r.id, q.B)
			line = append(line, report.OrDash(ok, report.Times(v)))
		}
		text = append(text, line)
	}
	return report.Aligned(text)
}

// ratio returns how many times as long as b at its work a takes at its own.
func (t *Table) ratio(idA, a, idB, b string) (float64, bool) {
	x, ok := t.Value(idA, a)
	y, ok2 := t.Value(idB, b)
	return x / y, ok && ok2 && y > 0
}

// A Target is a limit on something that one run measures. Ratios hold on any machine.
type Target struct {
	Text  string
	Got   func(t *Table) (float64, bool)
	Limit float64
	Least bool // the limit is a lower one
	Unit  string
}

// RatioOf compares two contestants at one work.
func RatioOf(id, a, b string) func(*Table) (float64, bool) {
	return func(t *Table) (float64, bool) { return t.ratio(id, a, id, b) }
}

// Over compares two works of one contestant.
func Over(a, b, contestant string) func(*Table) (float64, bool) {
	return func(t *Table) (float64, bool) { return t.ratio(a, contestant, b, contestant) }
}

// ValueOf returns the time of a work in nanoseconds, or the value of a fact.
func ValueOf(id, contestant string) func(*Table) (float64, bool) {
	return func(t *Table) (float64, bool) { return t.Value(id, contestant) }
}

// met reports whether v meets the target.
func (g *Target) met(v float64) bool {
	return !math.IsNaN(v) && (g.Least && v >= g.Limit || !g.Least && v <= g.Limit)
}

// verdicts returns a line for each target. A target whose works were not measured is neither met nor missed.
func (t *Table) verdicts(targets []Target) (lines []string) {
	for _, g := range targets {
		v, ok := g.Got(t)
		if !ok {
			lines = append(lines, "----  "+g.Text+": not measured")
			continue
		}
		word, sign := "pass", "<="
		if !g.met(v) {
			word = "MISS"
		}
		if g.Least {
			sign = ">="
		}
		lines = append(lines, fmt.Sprintf("%s  %s: %s%s (%s %s%s)", word, g.Text, report.Significant(v), g.Unit, sign, report.Significant(g.Limit), g.Unit))
	}
	return lines
}

// misses lists the targets that a run missed, for a reader of the tables alone.
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
