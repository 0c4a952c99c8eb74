package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Both axes are logarithmic: up the time, across the part that is free, which becomes less.
const (
	leastNS, mostNS     = 10, 100_000
	leastFree, mostFree = 0.01, 100 // per cent
)

// The picture in pixels. The names of lines stand in the margin at the right.
const (
	width, height = 640, 300
	left, top     = 70, 40
	right, bottom = 130, 50
	lineHeight    = 14 // of a name

	grey = "#868e96"
)

// colours are readable on a light and on a dark page.
var colours = []string{"#d9480f", "#1c7ed6", grey}

func x(taken float64) float64 {
	return left + (width-left-right)*(math.Log((100-taken)/mostFree)/math.Log(leastFree/float64(mostFree)))
}

func y(ns float64) float64 {
	return top + (height-top-bottom)*(1-math.Log(ns/leastNS)/math.Log(mostNS/leastNS))
}

// draw returns the picture as SVG. The same lines give the same bytes.
func draw(lines []line) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n", width, height, width, height)
	text := func(x, y float64, anchor, colour, s string) {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, colour, s)
	}
	text(left, top-18, "start", grey, "time of one release and one allocation, 2^16 prefixes")
	for ns := float64(leastNS); ns <= mostNS; ns *= 10 {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="%s" stroke-opacity=".35"/>`+"\n", left, y(ns), width-right, grey)
		text(left-8, y(ns)+4, "end", grey, label(ns))
	}
	for _, at := range lines[0].at {
		text(x(at.taken), height-bottom+20, "middle", grey, fmt.Sprintf("%v %%", at.taken))
	}
	text(float64(left+width-right)/2, height-8, "middle", grey, "taken")
	names := names(lines)
	for i, l := range lines {
		var path strings.Builder
		for j, at := range l.at {
			fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[j == 0], x(at.taken), y(at.ns))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x(at.taken), y(at.ns), colours[i])
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), colours[i])
		last := l.at[len(l.at)-1]
		text(x(last.taken)+10, names[i], "start", colours[i], l.name+" "+label(last.ns))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// names returns the height of each line's name: that of its end, moved down where a name above is in the way.
func names(lines []line) []float64 {
	at, order := make([]float64, len(lines)), make([]int, len(lines))
	for i, l := range lines {
		at[i], order[i] = y(l.at[len(l.at)-1].ns)+4, i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(at[i], at[j]) })
	for k := 1; k < len(order); k++ {
		at[order[k]] = max(at[order[k]], at[order[k-1]]+lineHeight)
	}
	return at
}

func label(ns float64) string {
	if ns >= 1000 {
		return fmt.Sprintf("%.3g us", ns/1000)
	}
	return fmt.Sprintf("%.3g ns", ns)
}
