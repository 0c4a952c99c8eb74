package addrmap

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// SVGStyle is the style of an SVG picture.
type SVGStyle struct {
	// Limit is the largest size in bytes, 1,000,000 by default: the cells become larger until the picture fits.
	Limit int
	// Width is the total width of the cells in pixels, 768 by default.
	Width int
	// Bare leaves out the colours, for a page that has [StyleSheet].
	Bare bool
}

const (
	svgMargin  = 16
	svgMinCell = 2
	svgMaxCell = 24
	svgText    = 13
	svgLine    = 20
	svgStart   = 16 // log2 of the most cells
	svgLeast   = 4  // log2 of the cells of a picture that is drawn whatever its size
	svgSquare  = 70 // bytes that every square takes
	svgPattern = 6  // least width of a cell in which a pattern can be seen
)

// SVG writes pictures one below the other, without scripts. Each square has a title: prefix, state, count and
// holder. The colours follow the reader's preference for light or dark.
func SVG(w io.Writer, style SVGStyle, pictures ...Picture) error {
	for i := range pictures {
		if err := pictures[i].prepare(); err != nil {
			return err
		}
	}
	limit := cmp.Or(style.Limit, 1_000_000)
	style.Width = min(max(cmp.Or(style.Width, 768), 256), 4096)
	var out []byte
	for order := svgStart; order >= svgLeast; order-- {
		if out = render(style, order, limit, pictures); out != nil && len(out) <= limit {
			break
		}
	}
	_, err := w.Write(out)
	return err
}

// render draws with at most 2^order cells in a picture. It returns nil if that is larger than limit, as far as it
// can tell before it has drawn all, except at the coarsest order.
func render(style SVGStyle, order, limit int, pictures []Picture) []byte {
	s := &svg{y: svgMargin, limit: limit, most: style.Width}
	if order == svgLeast {
		s.limit = math.MaxInt
	}
	for i := range pictures {
		if s.picture(&pictures[i], order); s.over {
			return nil
		}
		s.y += svgLine
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %[1]d %[2]d\" "+
		"font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"%[3]d\">\n", s.width+svgMargin, s.y+svgMargin, svgText)
	if !style.Bare {
		out.WriteString("<style>" + StyleSheet() + "</style>\n")
	}
	out.WriteString("<defs>\n" + defs() + "</defs>\n")
	out.WriteString("<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n")
	out.Write(s.out.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// StyleSheet returns the colours for light and dark, for a page that shows pictures and allows no styles in them.
func StyleSheet() string {
	var light, dark strings.Builder
	rule := func(class string, l, d rgb) {
		fmt.Fprintf(&light, ".%s{fill:%v}", class, l)
		fmt.Fprintf(&dark, ".%s{fill:%v}", class, d)
	}
	rule("bg", hex(0xffffff), hex(0x17191c))
	rule("tx", hex(0x1c1e21), hex(0xe4e6e9))
	for level := 1; level <= 8; level++ {
		rule(fmt.Sprintf("u%d", level), stateColor(Used, level, false), stateColor(Used, level, true))
	}
	for st := range states {
		rule(fmt.Sprintf("s%d", st), stateColor(st, 8, false), stateColor(st, 8, true))
	}
	for i, c := range classColors {
		rule(fmt.Sprintf("c%d", i), c, c)
	}
	return light.String() + ".ln{stroke:#0006;fill:none}.qt{fill:#000b;stroke:#fffc;stroke-width:3px;paint-order:stroke;font-size:10px}" +
		"@media (prefers-color-scheme:dark){" + dark.String() + ".ln{stroke:#fff6}.qt{fill:#fffd;stroke:#000c}}"
}

// defs returns the patterns by which states differ besides.
func defs() string {
	var lines []string
	for st, d := range patterns {
		lines = append(lines, fmt.Sprintf("<pattern id=\"p%d\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><rect class=\"s%[1]d\" width=\"8\" height=\"8\"/>"+
			"<path d=\"%s\" stroke=\"#000\" fill=\"none\" stroke-width=\".8\"/></pattern>\n", st, d))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// patterns are what is drawn over the colour of a state.
var patterns = map[State]string{
	Reserved: "M0 8L8 0",
	Cooling:  "M0 4H8",
	Borrowed: "M4 0V8",
	Orphan:   "M4 2A2 2 0 1 0 4 6A2 2 0 1 0 4 2",
	Leaked:   "M0 0L8 8M0 8L8 0",
	Added:    "M4 1V7M1 4H7",
	Removed:  "M1 4H7",
	Changed:  "M0 8L8 0",
}

// svg is a picture in the making.
type svg struct {
	out      bytes.Buffer
	y, width int
	most     int // width of the cells
	limit    int
	over     bool // the picture will be larger than limit
}

// text writes a line and moves down.
func (s *svg) text(x int, attributes, text string) {
	s.at(x, attributes, text)
	s.y += svgLine
}

// at writes text on the present line.
func (s *svg) at(x int, attributes, text string) {
	fmt.Fprintf(&s.out, "<text class=\"tx\" x=\"%d\" y=\"%d\"%s>%s</text>\n", x, s.y+svgText, attributes, escape(text))
	s.width = max(s.width, x+textWidth(text))
}

// textWidth is how much room a text takes.
func textWidth(s string) int { return utf8.RuneCountInString(s) * svgText * 62 / 100 }

// escape returns s as the text of an XML element.
func escape(s string) string {
	return escaper.Replace(Printable(s))
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\"", "&quot;")

func (s *svg) picture(p *Picture, order int) {
	s.text(svgMargin, " font-size=\"15\" font-weight=\"bold\"", p.Space.Headline())
	s.y += 4
	panel := p.Space.Panel(p.Prefix, order, p.Rows)
	if s.panel(p, &panel); s.over {
		return
	}
	scale := panel.scale(p.Space)
	if !panel.Rows {
		scale = "Hilbert order from the upper left; " + scale
	}
	s.text(svgMargin, "", scale)
	s.legend(p)
}

// panel draws cells.
func (s *svg) panel(p *Picture, panel *Panel) {
	w, h := panel.Size()
	px := min(max(s.most/w, svgMinCell), svgMaxCell)
	x0, y0 := svgMargin, s.y
	byLook := map[string][]Square{}
	squares := panel.Squares(p.ByLabel)
	if s.out.Len()+svgSquare*len(squares) > s.limit {
		s.over = true
		return
	}
	for _, q := range squares {
		k := attributes(p, &q.Cell, q.W*px)
		byLook[k] = append(byLook[k], q)
	}
	if panel.Rows {
		x0 += s.ruler(panel, px)
	}
	looks := make([]string, 0, len(byLook))
	for k := range byLook {
		looks = append(looks, k)
	}
	slices.Sort(looks)
	for _, k := range looks {
		fmt.Fprintf(&s.out, "<g%s>\n", k)
		for _, q := range byLook[k] {
			fmt.Fprintf(&s.out, "<path d=\"M%d %dh%dv%dh-%[3]dz\"><title>%[5]s</title></path>\n", x0+q.X*px, y0+q.Y*px, q.W*px, q.H*px, escape(q.title()))
		}
		s.out.WriteString("</g>\n")
	}
	if !panel.Rows {
		s.quarters(panel, px)
	}
	s.y += h*px + 8
	s.width = max(s.width, x0+w*px)
}

// ruler names the first addresses of rows at the left, as far as there is room, and returns its width.
func (s *svg) ruler(p *Panel, px int) (width int) {
	w, h := p.Size()
	for y := 0; y < h; y += (svgText + px - 1) / px {
		name := p.Cells[y*w].Prefix.Addr().String()
		fmt.Fprintf(&s.out, "<text class=\"tx\" x=\"%d\" y=\"%d\">%s</text>\n", svgMargin, s.y+y*px+svgText-2, name)
		width = max(width, textWidth(name)+8)
	}
	return width
}

// attributes returns how a square of a width in pixels is filled.
func attributes(p *Picture, c *Cell, px int) string {
	switch {
	case p.ByLabel && c.Label != "":
		return fmt.Sprintf(" class=\"c%d\" fill-opacity=\"%.2f\"", p.class(c.Label), 0.3+0.7*float64(c.Level)/8)
	case c.State == Used:
		return fmt.Sprintf(" class=\"u%d\"", c.Level)
	}
	fill := fmt.Sprintf(" class=\"s%d\"", c.State)
	if patterns[c.State] != "" && px >= svgPattern {
		fill = fmt.Sprintf(" fill=\"url(#p%d)\"", c.State)
	}
	if c.State > Used && c.State.urgency() == 0 && c.Level < 8 {
		fill += fmt.Sprintf(" fill-opacity=\"%.2f\"", ink(c.Level))
	}
	return fill
}

// quarters draws lines around the quarters of the quarters, and names them.
func (s *svg) quarters(p *Panel, px int) {
	w, h := p.Size()
	side := h / 4
	if side*px < 48 {
		side = h / 2
	}
	if side < 2 || side*px < 48 {
		return
	}
	var lines strings.Builder
	for x := side; x < w; x += side {
		fmt.Fprintf(&lines, "M%d %dv%d", svgMargin+x*px, s.y, h*px)
	}
	for y := side; y < h; y += side {
		fmt.Fprintf(&lines, "M%d %dh%d", svgMargin, s.y+y*px, w*px)
	}
	fmt.Fprintf(&s.out, "<g pointer-events=\"none\"><path class=\"ln\" d=\"%s\"/>\n", lines.String())
	n := side * side
	for lo := 0; lo < len(p.Cells); lo += n {
		x, y := p.Place(lo)
		c := p.Cells[lo].Prefix
		bits := c.Bits()
		for k := n; k > 1; k /= 2 {
			bits--
		}
		name := netip.PrefixFrom(c.Addr(), bits).String()
		if utf8.RuneCountInString(name)*6 < side*px {
			fmt.Fprintf(&s.out, "<text class=\"qt\" x=\"%d\" y=\"%d\">%s</text>\n", svgMargin+x/side*side*px+3, s.y+y/side*side*px+11, name)
		}
	}
	s.out.WriteString("</g>\n")
}

// swatch draws a sample.
func (s *svg) swatch(x int, attributes string) {
	fmt.Fprintf(&s.out, "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\"%s/>\n", x, s.y+2, attributes)
}

func (s *svg) legend(p *Picture) {
	if p.ByLabel {
		for i, label := range p.classes {
			s.swatch(svgMargin, fmt.Sprintf(" class=\"c%d\"", min(i, maxClasses)))
			s.text(svgMargin+22, "", fmt.Sprintf("%s  %s", label, Number(p.tallies[i])))
		}
		if p.others > 0 {
			s.swatch(svgMargin, fmt.Sprintf(" class=\"c%d\"", maxClasses))
			s.text(svgMargin+22, "", fmt.Sprintf("%d others  %s", p.others, Number(p.rest)))
		}
		return
	}
	present, counts := p.legend()
	x := svgMargin
	for _, st := range present {
		label := fmt.Sprintf("%v %s", st, Number(counts[st]))
		n := 1
		if st == Used {
			n, label = 8, fmt.Sprintf("used %s, in eighths", Number(counts[st]))
		}
		if width := n*14 + 8 + textWidth(label) + 20; x > svgMargin && x+width > svgMargin+s.most {
			x = svgMargin
			s.y += svgLine
		}
		for i := range n {
			s.swatch(x, attributes(p, &Cell{State: st, Level: i + 9 - n}, 14))
			x += 14
		}
		s.at(x+8, "", label)
		x += 8 + textWidth(label) + 20
	}
	s.y += svgLine
}
