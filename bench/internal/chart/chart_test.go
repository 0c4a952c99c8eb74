package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// A picture is well-formed, its axes reach from edge to edge, and no name covers another.
func TestSVG(t *testing.T) {
	p := Panel{
		Title: "a < b", Below: "days", Margin: 100,
		Across: Axis{Least: 0, Most: 10, Ticks: []Tick{{0, "0"}}}, Up: Axis{Least: 1, Most: 100, Log: true, Ticks: []Tick{{10, "ten"}}},
		Lines: []Line{
			{Name: "rises", At: []Point{{0, 1}, {10, 100}}, Dots: true},
			{Name: "falls", At: []Point{{0, 100}, {10, 1}}},
			{Name: "too", At: []Point{{0, 100}, {10, 1}}},
		},
	}
	for d, s := xml.NewDecoder(strings.NewReader(SVG(p, p))), ""; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if strings.Count(s, "a < b") != 2 || strings.Count(s, "ten") != 2 {
				t.Errorf("the texts are %q", s)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := token.(xml.CharData); ok {
			s += string(c)
		}
	}
	for _, c := range []struct{ got, want float64 }{
		{p.x(0), left}, {p.x(10), width - 100}, {p.y(1), height - bottom}, {p.y(100), top}, {p.y(10), (top + height - bottom) / 2},
	} {
		if c.got != c.want {
			t.Errorf("drawn at %v, want %v", c.got, c.want)
		}
	}
	if y := p.names(); y[0] != top+4 || y[1] != height-bottom+4 || y[2] != y[1]+lineHeight {
		t.Errorf("names at %v", y)
	}
	if !p.Inside(Point{10, 100}) || p.Inside(Point{10, 101}) || p.Inside(Point{-1, 10}) {
		t.Error("Inside is wrong about an edge")
	}
}
