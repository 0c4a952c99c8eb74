package main

import (
	"fmt"
	"strings"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// text is the state in a line.
func (s state) text() string {
	return fmt.Sprintf("%d pods, %d addresses (%d leaked), %d records, heap %s, %d blocks for %d, %.1f %% borrowed, %d without owner",
		s.Pods, s.Held, s.Leaked, s.Records, report.Size(float64(s.Heap)), s.Blocks, s.Needed, 100*s.borrowed(), s.Orphans)
}

func (s state) borrowed() float64 { return over(s.Borrowed, s.Held) }

func over(a, b int) float64 { return float64(a) / float64(max(1, b)) }

// total sums up rows.
func total(rows []row) (sum row) {
	for _, r := range rows {
		for k := range r.Uses {
			sum.Uses[k].Add(r.Uses[k])
		}
		sum.Pods, sum.Held, sum.Leaked = sum.Pods+r.Pods, sum.Held+r.Held, sum.Leaked+r.Leaked
		sum.Records, sum.Bytes, sum.Heap, sum.File = sum.Records+r.Records, sum.Bytes+r.Bytes, sum.Heap+r.Heap, sum.File+r.File
		sum.Blocks, sum.Needed, sum.Orphans = sum.Blocks+r.Blocks, sum.Needed+r.Needed, sum.Orphans+r.Orphans
		sum.Used, sum.Borrowed = sum.Used+r.Used, sum.Borrowed+r.Borrowed
	}
	return sum
}

// ends returns the sums of the first and of the last days, up to 28 each: four of the periods in which zones fail. Day 0 fills the
// pools and does not count.
func ends(rows []row) (first, last row, days int) {
	rows = rows[1:]
	days = min(28, len(rows)/2)
	return total(rows[:days]), total(rows[len(rows)-days:]), days
}

// cost is a figure that should not grow: of a call, or of the state.
type cost struct {
	what, unit  string
	first, last float64
	format      func(float64) string
}

// grown is how much a figure may differ between the first days and the last ones.
const grown = 1.2

// costs returns what is counted of each kind of call, and of the state.
func costs(first, last row) (calls, states []cost) {
	for k := range kinds {
		a, b := first.Uses[k], last.Uses[k]
		if a.Calls == 0 || b.Calls == 0 {
			continue
		}
		for _, f := range []struct {
			unit string
			of   func(usage) int
		}{
			{"round trips", usage.Trips},
			{"bytes", func(u usage) int { return u.BytesRead + u.BytesWritten }},
		} {
			calls = append(calls, cost{kindNames[k], f.unit, over(f.of(a), a.Calls), over(f.of(b), b.Calls), report.Count})
		}
	}
	share := func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
	return calls, []cost{
		{"records an address", "", over(first.Records, first.Held), over(last.Records, last.Held), report.Significant},
		{"bytes of records an address", "", over(first.Bytes, first.Held), over(last.Bytes, last.Held), report.Size},
		{"memory of the process an address", "", over(first.Heap, first.Held), over(last.Heap, last.Held), report.Size},
		{"blocks in use for one that is needed", "", over(first.Blocks, first.Needed), over(last.Blocks, last.Needed), report.Significant},
		{"addresses that are borrowed", "", first.borrowed(), last.borrowed(), share},
		{"blocks without owner", "", over(first.Orphans, first.Blocks), over(last.Orphans, last.Blocks), share},
	}
}

// grows reports whether a figure is larger in the last days by more than chance. A share of less than a hundredth is none.
func (c cost) grows() bool { return c.last > c.first*grown+0.01 }

// tables returns the two tables and a sentence that says what grows.
func tables(rows []row) []string {
	if len(rows) < 3 {
		return single(rows[len(rows)-1])
	}
	first, last, days := ends(rows)
	calls, states := costs(first, last)
	head := []string{fmt.Sprintf("a call, mean of days 1 to %d, then of the last %d", days, days), "calls a day", "round trips", "then", "bytes read and written", "then", "CPU", "then", "conflicts"}
	lines := [][]string{head}
	for i := 0; i < len(calls); i += 2 {
		trips, bytes := calls[i], calls[i+1]
		var a, b usage
		for k, name := range kindNames {
			if name == trips.what {
				a, b = first.Uses[k], last.Uses[k]
			}
		}
		cpu := func(u usage) string { return report.Duration(float64(u.CPU) / float64(u.Calls)) }
		lines = append(lines, []string{trips.what, report.Count(over(b.Calls, days)), trips.format(trips.first), trips.format(trips.last), bytes.format(bytes.first), bytes.format(bytes.last), cpu(a), cpu(b), fmt.Sprintf("%.1f %%", 100*over(b.Conflicts, b.Commits))})
	}
	out := append(report.Aligned(lines), "")
	lines = [][]string{{"at midnight", fmt.Sprintf("days 1 to %d", days), fmt.Sprintf("the last %d", days)}}
	for _, c := range states {
		lines = append(lines, []string{c.what, c.format(c.first), c.format(c.last)})
	}
	out = append(append(out, report.Aligned(lines)...), "")
	return append(out, verdict(append(calls, states...)))
}

// single is the table of a run that is too short to compare days.
func single(r row) []string {
	lines := [][]string{{fmt.Sprintf("a call on day %d", r.Day), "calls", "round trips", "bytes read and written", "CPU", "conflicts"}}
	for k, u := range r.Uses {
		if u.Calls > 0 {
			lines = append(lines, []string{kindNames[k], report.Whole(float64(u.Calls)), report.Count(over(u.Trips(), u.Calls)), report.Count(over(u.BytesRead+u.BytesWritten, u.Calls)),
				report.Duration(float64(u.CPU) / float64(u.Calls)), fmt.Sprintf("%.1f %%", 100*over(u.Conflicts, u.Commits))})
		}
	}
	return append(report.Aligned(lines), "", "At the end of the day: "+r.state.text()+".")
}

// verdict says what grows.
func verdict(all []cost) string {
	var list []string
	for _, c := range all {
		if c.grows() {
			list = append(list, fmt.Sprintf("%s (%s to %s)", strings.TrimSpace(c.what+" "+c.unit), c.format(c.first), c.format(c.last)))
		}
	}
	if list == nil {
		return fmt.Sprintf("Flat: nothing that is counted is more than %.0f %% higher in the last days than in the first.", 100*(grown-1))
	}
	return "Grows: " + strings.Join(list, "; ") + "."
}
