package main

import (
	"fmt"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// text is the state in a line.
func (s state) text() string {
	return fmt.Sprintf("%d pods, %d addresses (%d leaked), %d records, heap %s, %d blocks for %d, %.1f %% borrowed, %d without owner",
		s.Pods, s.Held, s.Leaked, s.Records, report.Size(float64(s.Heap)), s.Blocks, s.Needed, 100*over(s.Borrowed, s.Held), s.Orphans)
}

func over(a, b int) float64 { return float64(a) / float64(max(1, b)) }

// total sums up rows.
func total(rows []row) (sum row) {
	for _, r := range rows {
		for k := range r.Uses {
			sum.Uses[k].Add(r.Uses[k])
		}
		sum.Pods, sum.Held, sum.Leaked = sum.Pods+r.Pods, sum.Held+r.Held, sum.Leaked+r.Leaked
		sum.Records, sum.Bytes, sum.Heap = sum.Records+r.Records, sum.Bytes+r.Bytes, sum.Heap+r.Heap
		sum.Blocks, sum.Needed, sum.Orphans = sum.Blocks+r.Blocks, sum.Needed+r.Needed, sum.Orphans+r.Orphans
		sum.Used, sum.Borrowed = sum.Used+r.Used, sum.Borrowed+r.Borrowed
	}
	return sum
}

// ends returns the sums of the first and of the last days, up to 28 each: four of the periods in which zones fail. Day 0 fills the
// pools and does not count, unless there are no more than two.
func ends(rows []row) (first, last row, days int) {
	if len(rows) > 2 {
		rows = rows[1:]
	}
	days = min(28, (len(rows)+1)/2)
	return total(rows[:days]), total(rows[len(rows)-days:]), days
}

// cost is a figure that should not grow: of a call, or of the state.
type cost struct {
	what        string
	first, last float64
	format      func(float64) string
}

// costs returns what is counted of each kind of call, round trips and bytes, and of the state.
func costs(first, last row) (trips, bytes, states []cost) {
	for k, name := range kindNames {
		a, b := first.Uses[k], last.Uses[k]
		trips = append(trips, cost{name, over(a.Trips, a.Calls), over(b.Trips, b.Calls), report.Count})
		bytes = append(bytes, cost{name, over(a.Bytes, a.Calls), over(b.Bytes, b.Calls), report.Count})
	}
	share := func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
	return trips, bytes, []cost{
		{"records an address", over(first.Records, first.Held), over(last.Records, last.Held), report.Significant},
		{"bytes of records an address", over(first.Bytes, first.Held), over(last.Bytes, last.Held), report.Size},
		{"memory of the process an address", over(first.Heap, first.Held), over(last.Heap, last.Held), report.Size},
		{"blocks in use for one that is needed", over(first.Blocks, first.Needed), over(last.Blocks, last.Needed), report.Significant},
		{"addresses that are borrowed", over(first.Borrowed, first.Held), over(last.Borrowed, last.Held), share},
		{"blocks without owner", over(first.Orphans, first.Blocks), over(last.Orphans, last.Blocks), share},
	}
}

// tables returns the lines of the two tables.
func tables(rows []row) []string {
	first, last, days := ends(rows)
	trips, bytes, states := costs(first, last)
	calls := [][]string{{fmt.Sprintf("a call, mean of the first %d days, then of the last %d", days, days),
		"calls a day", "round trips", "then", "bytes read and written", "then", "conflicts"}}
	for k, name := range kindNames {
		if u := last.Uses[k]; u.Calls > 0 {
			calls = append(calls, []string{name, report.Count(over(u.Calls, days)), trips[k].format(trips[k].first), trips[k].format(trips[k].last),
				bytes[k].format(bytes[k].first), bytes[k].format(bytes[k].last), fmt.Sprintf("%.1f %%", 100*over(u.Conflicts, u.Commits))})
		}
	}
	midnight := [][]string{{"at midnight", fmt.Sprintf("the first %d days", days), fmt.Sprintf("the last %d", days)}}
	for _, c := range states {
		midnight = append(midnight, []string{c.what, c.format(c.first), c.format(c.last)})
	}
	return append(append(report.Aligned(calls), ""), report.Aligned(midnight)...)
}
