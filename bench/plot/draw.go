package main

import (
	"fmt"

	"github.com/ipalloc/ipalloc/bench/internal/chart"
)

// Both axes are logarithmic: up the time, across the part that is free, which becomes less.
const (
	leastNS, mostNS     = 10, 100_000
	leastFree, mostFree = 0.01, 100 // per cent
)

// panel is the picture of some lines.
func panel(lines []line) chart.Panel {
	p := chart.Panel{
		Title: "time of one release and one allocation, 2^16 prefixes", Below: "taken", Margin: 130,
		Across: chart.Axis{Least: mostFree, Most: leastFree, Log: true},
		Up:     chart.Axis{Least: leastNS, Most: mostNS, Log: true},
	}
	for ns := float64(leastNS); ns <= mostNS; ns *= 10 {
		p.Up.Ticks = append(p.Up.Ticks, chart.Tick{At: ns, Label: label(ns)})
	}
	for _, at := range lines[0].at {
		p.Across.Ticks = append(p.Across.Ticks, chart.Tick{At: 100 - at.taken, Label: fmt.Sprintf("%v %%", at.taken)})
	}
	for _, l := range lines {
		drawn := chart.Line{Name: l.name + " " + label(l.at[len(l.at)-1].ns), Dots: true}
		for _, at := range l.at {
			drawn.At = append(drawn.At, chart.Point{Across: 100 - at.taken, Up: at.ns})
		}
		p.Lines = append(p.Lines, drawn)
	}
	return p
}

// draw returns the picture as SVG. The same lines give the same bytes.
func draw(lines []line) string { return chart.SVG(panel(lines)) }

func label(ns float64) string {
	if ns >= 1000 {
		return fmt.Sprintf("%.3g us", ns/1000)
	}
	return fmt.Sprintf("%.3g ns", ns)
}
