package spacemap

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// SVGStyle says how an SVG picture looks. The zero value is 64 columns and at most 32 rows for each
// drawing.
type SVGStyle struct {
	Columns int // cells in a row, rounded down to a power of two; 0 means at most 64, as fits the pool, and fewer than 8 count as 8
	Rows    int // most rows, rounded down to a power of two; 0 means 32
}

const svgRows = 32

// Measures of the picture in pixels. A character of the 12 px monospace text is taken as 7.25 wide,
// which fits the usual fonts.
const (
	svgMargin   = 16
	svgPitch    = 12  // height of a row, and least width of a cell
	svgWidth    = 768 // of the cells, where few columns let them be wider
	svgMaxPitch = 24
	svgLine     = 18 // of text
	svgText     = 12
	svgTitle    = 16
	svgCharNum  = 29 // svgCharNum / svgCharDen pixels a character
	svgCharDen  = 4
	svgGap      = 28 // between drawings
)

// svgColors are the colours of the layers, in turn: the palette of Okabe and Ito, which the
// colour-blind can tell apart.
var svgColors = [...]string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7f7f"}

// svgShades are the opacities of the levels 0 to 4.
var svgShades = [levels]string{"0", "0.3", "0.5", "0.75", "1"}

const (
	svgFree = "#eceff1" // colour of free space
	svgInk  = "#263238" // of text, and of a shade that is no layer's
)

// SVG writes the drawings as one SVG picture, one below the other, each with its rows labelled, and
// a legend. Resting the pointer on a run of cells tells its addresses, use and layer. It returns an
// error that wraps ErrBadDrawing, with nothing written, when a drawing is not sound, or the error
// of w.
func SVG(w io.Writer, style SVGStyle, drawings ...Drawing) error {
	var (
		body   bytes.Buffer
		width  int
		bottom = svgMargin
	)
	for i, d := range drawings {
		g, err := newGrid(d, style.Columns, orDefault(style.Rows, svgRows))
		if err != nil {
			return err
		}
		if i > 0 {
			bottom += svgGap
		}
		p := svgPicture{grid: g, out: &body, y: bottom}
		p.draw()
		bottom = p.y
		width = max(width, p.width)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %[1]d %[2]d\" "+
		"font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"%[3]d\" fill=\"%[4]s\">\n", width+svgMargin, bottom+svgMargin, svgText, svgInk)
	fmt.Fprintf(&out, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n")
	out.Write(body.Bytes())
	out.WriteString("</svg>\n")
	_, err := w.Write(out.Bytes())
	return err
}

// svgPicture is one drawing of an SVG picture in the making.
type svgPicture struct {
	*grid
	out   *bytes.Buffer
	y     int // where the next line starts
	width int // the furthest point to the right so far
}

func (p *svgPicture) draw() {
	if p.drawing.Title != "" {
		p.line(svgMargin, fmt.Sprintf("font-size=\"%d\" font-weight=\"bold\"", svgTitle), p.drawing.Title)
		p.width = max(p.width, svgMargin+textWidth(p.drawing.Title)*svgTitle/svgText)
	}
	p.line(svgMargin, "", fmt.Sprintf("%v: %v taken", p.drawing.Pool, p.total))
	p.y += 4
	p.body()
	p.y += 8
	p.legend()
}

// line writes one line of text at x and moves down.
func (p *svgPicture) line(x int, attributes, text string) {
	p.text(x, attributes, text)
	p.y += svgLine
}

// text writes text at x on the line at p.y.
func (p *svgPicture) text(x int, attributes, text string) {
	if attributes != "" {
		attributes = " " + attributes
	}
	fmt.Fprintf(p.out, "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, p.y+svgText, attributes, escape(text))
	p.width = max(p.width, x+textWidth(text))
}

// textWidth is how much room a text takes.
func textWidth(s string) int { return utf8.RuneCountInString(s) * svgCharNum / svgCharDen }

func (p *svgPicture) body() {
	labels := 0
	for r := range p.rows() {
		labels = max(labels, textWidth(p.address(r*p.columns).String()))
	}
	left := svgMargin + labels + 8
	pitch := min(max(svgWidth/p.columns, svgPitch), svgMaxPitch)
	right, top := left+p.columns*pitch, p.y
	fmt.Fprintf(p.out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", left, top, right-left, p.rows()*svgPitch, svgFree)
	for r := range p.rows() {
		y := top + r*svgPitch
		fmt.Fprintf(p.out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" font-size=\"10\">%v</text>\n", left-8, y+svgPitch-2, p.address(r*p.columns))
		fmt.Fprintf(p.out, "<text x=\"%d\" y=\"%d\" font-size=\"10\">%s</text>\n", right+8, y+svgPitch-2, escape(p.rowShare(r).String()))
		p.row(r, left, y, pitch)
	}
	p.lines(left, top, right, pitch)
	p.width = max(p.width, right+8+textWidth("<100.0 %"))
	p.y = top + p.rows()*svgPitch
}

// row draws the taken cells of row r, each run of the same look as one rectangle.
func (p *svgPicture) row(r, left, y, pitch int) {
	end := (r + 1) * p.columns
	for from := r * p.columns; from < end; {
		to := from + 1
		for to < end && p.cells[to] == p.cells[from] {
			to++
		}
		if s := p.share(from); !s.none {
			layer := p.cells[from].layer
			fmt.Fprintf(p.out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"%s><title>%s</title></rect>\n",
				left+(from-r*p.columns)*pitch, y, (to-from)*pitch, svgPitch, layerColor(layer), opacity(s.level()),
				escape(fmt.Sprintf("%v - %v: %v taken, %s", p.address(from), p.lastAddress(to-1), s, p.drawing.Layers[layer].Label)))
		}
		from = to
	}
}

// lines draws the borders of the cells over the rectangles.
func (p *svgPicture) lines(left, top, right, pitch int) {
	var path strings.Builder
	bottom := top + p.rows()*svgPitch
	for c := 1; c < p.columns; c++ {
		fmt.Fprintf(&path, "M%d %dV%d", left+c*pitch, top, bottom)
	}
	for r := 1; r < p.rows(); r++ {
		fmt.Fprintf(&path, "M%d %dH%d", left, top+r*svgPitch, right)
	}
	if path.Len() > 0 {
		fmt.Fprintf(p.out, "<path d=\"%s\" stroke=\"#fff\" fill=\"none\" pointer-events=\"none\"/>\n", path.String())
	}
}

func (p *svgPicture) legend() {
	p.line(svgMargin, "", p.scale())
	x := svgMargin
	for level, what := range [levels]string{"free", "below 1/3", "below 2/3", "more", "all taken"} {
		p.swatch(x, svgInk, level)
		p.text(x+18, "", what)
		x += 18 + textWidth(what) + 20
	}
	p.y += svgLine
	for i, l := range p.drawing.Layers {
		p.swatch(svgMargin, layerColor(i), levels-1)
		p.line(svgMargin+18, "", fmt.Sprintf("%s: %s, %v", printable(l.Label), prefixes(p.tallies[i].prefixes), p.tallies[i].share))
	}
}

// swatch draws a sample cell of a colour and level at x.
func (p *svgPicture) swatch(x int, color string, level int) {
	fmt.Fprintf(p.out, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, p.y+2, svgFree)
	if level > 0 {
		fmt.Fprintf(p.out, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"%s/>\n", x, p.y+2, color, opacity(level))
	}
}

// layerColor returns the colour of a layer.
func layerColor(layer int) string { return svgColors[layer%len(svgColors)] }

// opacity returns the attribute that draws a level; everything taken needs none.
func opacity(level int) string {
	if level == levels-1 {
		return ""
	}
	return fmt.Sprintf(" fill-opacity=\"%s\"", svgShades[level])
}

// escape returns s as the text of an XML element. What is not printable is replaced first, which
// leaves only characters XML allows.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\"", "&quot;").Replace(printable(s))
}
