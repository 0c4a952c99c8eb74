package main

import (
	"fmt"
	"math"
	"strings"
)

// The picture in pixels. Both axes are logarithmic: down the time, across the part that is free.
const (
	width, height       = 640, 300
	left, right         = 70, 130
	top, bottom         = 40, 50
	leastNS, mostNS     = 10, 100_000
	leastFree, mostFree = 0.01, 100 // per cent
)

func across(taken float64) float64 {
	return left + (width-left-right)*math.Log(mostFree/(100-taken))/math.Log(mostFree/leastFree)
}

func down(ns float64) float64 {
	return top + (height-top-bottom)*math.Log(mostNS/ns)/math.Log(float64(mostNS)/leastNS)
}

// colours are readable on a light and on a dark page.
var colours = []string{"#d9480f", "#1c7ed6", "#868e96"}

// draw returns the picture as SVG. The same lines give the same bytes.
func draw(lines []line) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n", width, height, width, height)
	text := func(x, y float64, anchor, colour, s string) {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, colour, s)
	}
	const grey = "#868e96"
	text(left, top-18, "start", grey, "time of one release and one allocation, 2^16 prefixes")
	for ns := float64(leastNS); ns <= mostNS; ns *= 10 {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="%s" stroke-opacity=".35"/>`+"\n", left, down(ns), width-right, grey)
		text(left-8, down(ns)+4, "end", grey, label(ns))
	}
	for _, p := range lines[0].at {
		text(across(p.taken), height-bottom+20, "middle", grey, fmt.Sprintf("%v %%", p.taken))
	}
	text((left+width-right)/2, height-8, "middle", grey, "taken")
	for i, l := range lines {
		var path strings.Builder
		for j, p := range l.at {
			command := "L"
			if j == 0 {
				command = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command, across(p.taken), down(p.ns))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", across(p.taken), down(p.ns), colours[i])
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), colours[i])
		last := l.at[len(l.at)-1]
		text(across(last.taken)+10, down(last.ns)+nudge(lines, i), "start", colours[i], l.name+" "+label(last.ns))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// nudge moves the label of a line that ends beside another one, the slower line's up and the other one's down.
func nudge(lines []line, i int) float64 {
	end := func(l line) float64 { return down(l.at[len(l.at)-1].ns) }
	for j := range lines {
		if j == i || math.Abs(end(lines[j])-end(lines[i])) > 14 {
			continue
		}
		if end(lines[i]) < end(lines[j]) || end(lines[i]) == end(lines[j]) && i < j {
			return -4
		}
		return 12
	}
	return 4
}

func label(ns float64) string {
	if ns >= 1000 {
		return fmt.Sprintf("%.3g us", ns/1000)
	}
	return fmt.Sprintf("%.3g ns", ns)
}
