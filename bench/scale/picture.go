package main

import (
	"fmt"
	"math"

	"github.com/ipalloc/ipalloc/bench/internal/chart"
)

// drawn are the calls in the picture.
var drawn = []int{assign, release, removeHost, sweep}

// panels draws the days after the first. Weeks are averaged where there are many.
func panels(rows []row) []chart.Panel {
	span := 1
	if len(rows) > 60 {
		span = 7
	}
	var sums []row
	for rest := rows[min(1, len(rows)-1):]; len(rest) >= span; rest = rest[span:] {
		sum := total(rest[:span])
		sum.Day = rest[span-1].Day
		sums = append(sums, sum)
	}
	calls := func(title string, of func(usage) int) chart.Panel {
		p := chart.Panel{Title: title}
		for _, k := range drawn {
			p.Lines = append(p.Lines, line(sums, kindNames[k], func(r row) float64 { return over(of(r.Uses[k]), r.Uses[k].Calls) }))
		}
		p.Up = powers(p.Lines)
		return p
	}
	shares := chart.Panel{Title: "per cent of the addresses, or of the blocks, at midnight", Lines: []chart.Line{
		line(sums, "borrowed", func(r row) float64 { return 100 * r.borrowed() }),
		line(sums, "blocks not needed", func(r row) float64 { return 100 * (1 - over(r.Needed, r.Blocks)) }),
		line(sums, "without owner", func(r row) float64 { return 100 * over(r.Orphans, r.Blocks) }),
	}}
	shares.Up = chart.Axis{Most: 100, Ticks: []chart.Tick{{At: 0, Label: "0 %"}, {At: 50, Label: "50 %"}, {At: 100, Label: "100 %"}}}
	size := chart.Panel{Title: "size, the first week is 1", Lines: []chart.Line{
		line(sums, "memory", func(r row) float64 { return over(r.Heap, sums[0].Heap) }),
		line(sums, "records", func(r row) float64 { return over(r.Records, sums[0].Records) }),
		line(sums, "their bytes", func(r row) float64 { return over(r.Bytes, sums[0].Bytes) }),
	}}
	size.Up = chart.Axis{Most: 2, Ticks: []chart.Tick{{At: 0, Label: "0"}, {At: 1, Label: "1"}, {At: 2, Label: "2"}}}
	for _, l := range size.Lines {
		for _, at := range l.At {
			size.Up.Most = max(size.Up.Most, at.Up)
		}
	}
	out := []chart.Panel{
		calls("round trips of one call", usage.Trips),
		calls("bytes read and written by one call", func(u usage) int { return u.BytesRead + u.BytesWritten }),
		shares, size,
	}
	for i := range out {
		out[i].Below, out[i].Margin, out[i].Across = "day", 150, days(sums)
	}
	return out
}

func line(rows []row, name string, of func(row) float64) chart.Line {
	l := chart.Line{Name: name}
	for _, r := range rows {
		l.At = append(l.At, chart.Point{Across: float64(r.Day), Up: of(r)})
	}
	return l
}

// days is the axis of the days.
func days(rows []row) chart.Axis {
	a := chart.Axis{Least: 0, Most: float64(max(1, rows[len(rows)-1].Day))}
	step := 1.0
	for a.Most/step > 13 {
		step *= 30
		if step == 900 {
			break
		}
	}
	for at := 0.0; at <= a.Most; at += step {
		a.Ticks = append(a.Ticks, chart.Tick{At: at, Label: fmt.Sprintf("%.0f", at)})
	}
	return a
}

// powers is a logarithmic axis for lines, from a power of ten to another one.
func powers(lines []chart.Line) chart.Axis {
	least, most := math.Inf(1), 1.0
	for _, l := range lines {
		for i, at := range l.At {
			if at.Up <= 0 {
				l.At[i].Up = 0.1
			}
			least, most = min(least, l.At[i].Up), max(most, at.Up)
		}
	}
	a := chart.Axis{Least: math.Pow(10, math.Floor(math.Log10(least))), Most: math.Pow(10, math.Ceil(math.Log10(most*1.01))), Log: true}
	for at := a.Least; at <= a.Most*1.01; at *= 10 {
		a.Ticks = append(a.Ticks, chart.Tick{At: at, Label: fmt.Sprintf("%g", at)})
	}
	return a
}
