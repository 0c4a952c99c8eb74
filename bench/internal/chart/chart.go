// Package chart draws lines as SVG: one or several panels below each other, each with two axes and the name of a line at its end.
// Colours are readable on a light and on a dark page. The same panels give the same bytes.
package chart

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The picture in pixels. The names of lines stand in the margin at the right.
const (
	width, height = 640, 300 // of a panel
	left, top     = 70, 40
	bottom        = 50
	lineHeight    = 14 // of a name
)

// A Panel is one pair of axes and its lines.
type Panel struct {
	Title, Below string // Below names what is across
	Across, Up   Axis
	Lines        []Line
	Margin       int // pixels for the names of lines
}

// An Axis begins with Least and ends with Most; values fall along it if Most is the smaller one.
type Axis struct {
	Least, Most float64
	Log         bool
	Ticks       []Tick
}

// A Tick is a value with a label.
type Tick struct {
	At    float64
	Label string
}

// A Line is points in order. Name stands at its end.
type Line struct {
	Name string
	At   []Point
	Dots bool // mark each point
}

// A Point has a place on both axes.
type Point struct{ Across, Up float64 }

const grey = "#868e96"

var colours = []string{"#d9480f", "#1c7ed6", grey, "#2f9e44", "#9c36b5", "#e8a200"}

// Inside reports whether a point lies within the axes.
func (p Panel) Inside(at Point) bool {
	return p.Across.within(at.Across) && p.Up.within(at.Up)
}

// within holds for an axis whose values fall, too.
func (a Axis) within(v float64) bool {
	return min(a.Least, a.Most) <= v && v <= max(a.Least, a.Most)
}

// part returns how far along the axis a value is, from 0 to 1.
func (a Axis) part(v float64) float64 {
	if a.Log {
		return math.Log(v/a.Least) / math.Log(a.Most/a.Least)
	}
	return (v - a.Least) / (a.Most - a.Least)
}

func (p Panel) x(v float64) float64 { return left + float64(width-left-p.Margin)*p.Across.part(v) }
func (p Panel) y(v float64) float64 { return top + (height-top-bottom)*(1-p.Up.part(v)) }

// SVG draws panels below each other.
func SVG(panels ...Panel) string {
	var b strings.Builder
	all := height * len(panels)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n", width, all, width, all)
	for i, p := range panels {
		if len(panels) > 1 {
			fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", i*height)
		}
		p.draw(&b)
		if len(panels) > 1 {
			b.WriteString("</g>\n")
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (p Panel) draw(b *strings.Builder) {
	text := func(x, y float64, anchor, colour, s string) {
		fmt.Fprintf(b, `<text x="%.0f" y="%.0f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, colour, escape.Replace(s))
	}
	text(left, top-18, "start", grey, p.Title)
	for _, t := range p.Up.Ticks {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="%s" stroke-opacity=".35"/>`+"\n", left, p.y(t.At), width-p.Margin, grey)
		text(left-8, p.y(t.At)+4, "end", grey, t.Label)
	}
	for _, t := range p.Across.Ticks {
		text(p.x(t.At), height-bottom+20, "middle", grey, t.Label)
	}
	text(float64(left+width-p.Margin)/2, height-8, "middle", grey, p.Below)
	names := p.names()
	for i, l := range p.Lines {
		colour := colours[i%len(colours)]
		var path strings.Builder
		for j, at := range l.At {
			command := "L"
			if j == 0 {
				command = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command, p.x(at.Across), p.y(at.Up))
			if l.Dots {
				fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", p.x(at.Across), p.y(at.Up), colour)
			}
		}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), colour)
		text(p.x(l.At[len(l.At)-1].Across)+10, names[i], "start", colour, l.Name)
	}
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;")

// names returns the height of each line's name: that of its end, moved down where a name above is in the way.
func (p Panel) names() []float64 {
	end := func(i int) float64 { return p.y(p.Lines[i].At[len(p.Lines[i].At)-1].Up) + 4 }
	order := make([]int, len(p.Lines))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(end(i), end(j)) })
	y := make([]float64, len(order))
	for k, i := range order {
		y[i] = end(i)
		if k > 0 {
			y[i] = max(y[i], y[order[k-1]]+lineHeight)
		}
	}
	return y
}
