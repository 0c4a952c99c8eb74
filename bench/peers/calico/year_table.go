package main

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// all returns the sum of the kinds.
func (d yearDay) all() (sum yearUse) {
	for _, u := range d.uses {
		sum.add(u)
	}
	return sum
}

// yearTables returns what calls cost, and the state, of both. As in bench/scale the first days stand beside the last, up to 28
// each, without day 0, which fills the pools.
func yearTables(us, them *yearRun) string {
	days := min(28, (len(us.days)-1)/2)
	var first, last, whole [2]yearDay
	for i, y := range []*yearRun{us, them} {
		for n, d := range y.days {
			whole[i].add(d)
			if n > 0 && n <= days {
				first[i].add(d)
			}
			if n >= len(y.days)-days {
				last[i].add(d)
			}
		}
	}
	over := func(a, b int) float64 { return float64(a) / float64(max(1, b)) }
	lines := [][]string{{fmt.Sprintf("a call, mean of days 1 to %d, then of the last %d", days, days), "calls a day", "round trips", "then", "bytes read and written", "then", "CPU", "then"}}
	add := func(name string, of func(yearDay) yearUse) {
		for i := range first {
			a, b := of(first[i]), of(last[i])
			row := []string{name + ", " + columns[i].title, report.Count(over(b[calls], days))}
			for _, f := range []int{trips, moved} {
				row = append(row, report.Count(over(a[f], a[calls])), report.Count(over(b[f], b[calls])))
			}
			lines = append(lines, append(row, report.Duration(over(a[cpu], a[calls])), report.Duration(over(b[cpu], b[calls]))))
		}
	}
	for k, name := range yearNames {
		add(name, func(d yearDay) yearUse { return d.uses[k] })
	}
	add("any of them", yearDay.all)

	then := fmt.Sprintf("the last %d", days)
	states := [][]string{{"at midnight", fmt.Sprintf("ours, days 1 to %d", days), then, fmt.Sprintf("Calico, days 1 to %d", days), then}}
	share := func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
	for _, s := range []struct {
		what    string
		of, per int
		format  func(float64) string
	}{
		{"blocks in use for one that is needed", blocks, needed, report.Significant},
		{"addresses that are borrowed", borrowed, held, share},
		{"blocks of no host, or of one that is gone", orphans, blocks, share},
		{"records an address", records, held, report.Significant},
		{"bytes of records an address", size, held, report.Size},
	} {
		row := []string{s.what}
		for _, d := range []yearDay{first[0], last[0], first[1], last[1]} {
			row = append(row, s.format(over(d.state[s.of], d.state[s.per])))
		}
		states = append(states, row)
	}
	head := fmt.Sprintf("%d days of %s: %s assignments. All calls took %s of CPU time here and %s with Calico; %s, %s, commit %s; %s.",
		len(us.days), us.about, report.Whole(float64(whole[0].uses[yearAssign][calls])), report.Duration(float64(whole[0].all()[cpu])),
		report.Duration(float64(whole[1].all()[cpu])), runtime.Version(), report.CPUModel(), report.Commit(),
		strings.Join(report.Versions("github.com/projectcalico/calico"), ", "))
	faults := "No call of either failed, and none gave an address twice or released another one."
	if len(them.faults) > 0 {
		var list []string
		for _, what := range slices.Sorted(maps.Keys(them.faults)) {
			list = append(list, fmt.Sprintf("%s (%d)", what, them.faults[what]))
		}
		faults = "Faults of Calico: " + strings.Join(list, ", ") + "."
	}
	return strings.Join(slices.Concat([]string{head, ""}, report.Aligned(lines), []string{""}, report.Aligned(states), []string{"", faults}), "\n")
}
