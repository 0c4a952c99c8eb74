package spacemap

import (
	"bytes"
	"encoding/xml"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"
)

// element is what the tests look at in an SVG element.
type element struct {
	XMLName  xml.Name
	X        int       `xml:"x,attr"`
	Y        int       `xml:"y,attr"`
	Width    string    `xml:"width,attr"`
	Height   string    `xml:"height,attr"`
	FontSize int       `xml:"font-size,attr"`
	Anchor   string    `xml:"text-anchor,attr"`
	Title    string    `xml:"title"`
	Text     string    `xml:",chardata"`
	Children []element `xml:",any"`
}

func parseSVG(t *testing.T, style SVGStyle, drawings ...Drawing) element {
	t.Helper()
	var out bytes.Buffer
	if err := SVG(&out, style, drawings...); err != nil {
		t.Fatal(err)
	}
	var root element
	if err := xml.Unmarshal(out.Bytes(), &root); err != nil {
		t.Fatal(err)
	}
	return root
}

// number reads a length in pixels.
func number(t *testing.T, s string) int {
	t.Helper()
	n := 0
	for _, r := range s {
		if r < '0' || r > '9' {
			t.Fatalf("%q is no length", s)
		}
		n = n*10 + int(r-'0')
	}
	return n
}

// Everything drawn lies inside the picture, whichever part is the widest.
func TestSVGExtent(t *testing.T) {
	small := Drawing{Pool: netip.MustParsePrefix("192.0.2.0/32")}
	titled := small
	titled.Title = strings.Repeat("a long title ", 20)
	labelled := small
	labelled.Layers = []Layer{{strings.Repeat("a long label ", 20), nil}}
	for name, drawings := range map[string][]Drawing{
		"wide first":  {block(), small},
		"wide last":   {small, block()},
		"long title":  {titled, small},
		"long label":  {small, labelled},
		"long pool":   {site(), small},
		"no drawings": nil,
	} {
		root := parseSVG(t, SVGStyle{}, drawings...)
		width, height := number(t, root.Width), number(t, root.Height)
		for _, e := range root.Children {
			right, bottom := 0, 0
			switch {
			case e.XMLName.Local == "rect" && e.Width != "100%":
				right, bottom = e.X+number(t, e.Width), e.Y+number(t, e.Height)
			case e.XMLName.Local == "text":
				size := e.FontSize
				if size == 0 {
					size = svgText
				}
				right, bottom = e.X, e.Y
				if e.Anchor == "" {
					right += utf8.RuneCountInString(e.Text) * size * 6 / 10 // an em is 0.6 wide
				}
			}
			if right > width || bottom > height {
				t.Errorf("%s: %s %q ends at %d, %d, the picture at %d, %d", name, e.XMLName.Local, e.Text, right, bottom, width, height)
			}
		}
	}
}

// Neighbours of one layer are one rectangle only where they are equally full.
func TestSVGRuns(t *testing.T) {
	root := parseSVG(t, SVGStyle{Columns: 8, Rows: 1}, Drawing{
		Pool: netip.MustParsePrefix("192.0.2.0/24"),
		Layers: []Layer{
			{"a", parse("192.0.2.0/26", "192.0.2.64/28", "192.0.2.96/29")},
			{"b", parse("192.0.2.128/29", "192.0.2.160/29")},
		},
	})
	var got []string
	for _, e := range root.Children {
		if e.Title != "" {
			got = append(got, e.Title)
		}
	}
	want := []string{
		"192.0.2.0 - 192.0.2.63: 100 % taken, a",
		"192.0.2.64 - 192.0.2.95: 50.0 % taken, a",
		"192.0.2.96 - 192.0.2.127: 25.0 % taken, a",
		"192.0.2.128 - 192.0.2.191: 25.0 % taken, b",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
