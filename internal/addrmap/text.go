package addrmap

import (
	"bytes"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"strings"
	"unicode/utf8"
)

// View is a way to draw a space.
type View uint8

// The views of a text picture.
const (
	Hilbert View = iota // the cells
	Sizes               // a row for each length, with where such a prefix is free
)

// TextStyle says how a text picture looks. The zero value is Hilbert order in 64 columns of Unicode marks without
// colour.
type TextStyle struct {
	View View
	// Color draws two cells in each character with escape sequences for true colour.
	Color bool
	// ASCII draws with ASCII only.
	ASCII bool
	// Columns is the width that there is, 0 for 100: with less, the prefixes at the sides, and then cells, are
	// left out.
	Columns int
}

// Text writes a picture. It returns an error, with nothing written, if the space does not pass [Space.Check] or
// the prefix is not in the pool, or the error of w.
func Text(w io.Writer, p Picture, style TextStyle) error {
	if err := p.prepare(); err != nil {
		return err
	}
	t := textPicture{Picture: p, style: style}
	fmt.Fprintln(&t.out, p.Space.Headline())
	if style.View == Sizes {
		t.sizes()
	} else {
		t.cells()
		t.legend()
	}
	_, err := w.Write(t.out.Bytes())
	return err
}

type textPicture struct {
	Picture
	style TextStyle
	out   bytes.Buffer
}

func (t *textPicture) columns() int {
	if t.style.Columns == 0 {
		return 100
	}
	return t.style.Columns
}

// order returns log2 of the most cells that fit: 64 columns of them, fewer on a narrow screen. A character
// has the height of two cells and shows two with colour, one without.
func (t *textPicture) order() int {
	k := 6
	for ; k > 2 && 1<<k > t.columns(); k-- {
	}
	if t.style.Color {
		return 2 * k
	}
	return 2*k - 1
}

func (t *textPicture) cells() {
	panel := t.Space.Panel(t.Prefix, t.order(), t.Rows)
	t.panel(&panel)
	fmt.Fprintln(&t.out, "\n"+panel.scale(t.Space))
}

// ascii replaces the signs that are not ASCII, if that was asked for.
func (t *textPicture) ascii(s string) string {
	if t.style.ASCII {
		return strings.NewReplacer("×", "x", "·", ".", "█", "#", "▇", "#", "▆", "#", "▅", "+", "▄", "+", "▃", "-", "▂", "-", "▁", "-").Replace(s)
	}
	return s
}

// panel draws cells, with prefixes at the sides: those of the quarters, or of the rows.
func (t *textPicture) panel(p *Panel) {
	w, h := p.Size()
	grid := make([]*Cell, w*(h+1))
	for i := range p.Cells {
		x, y := p.Place(i)
		grid[y*w+x] = &p.Cells[i]
	}
	step := 1
	if t.style.Color {
		step = 2
	}
	side := max(h/4, step)
	if p.Rows {
		side = step
	}
	label := func(c *Cell) string {
		if c == nil {
			return ""
		}
		if p.Touched {
			return c.Prefix.Addr().String()
		}
		group := side * side
		if p.Rows {
			group = w
		}
		return netip.PrefixFrom(c.Prefix.Addr(), c.Prefix.Bits()-bits.Len(uint(group))+1).Masked().String()
	}
	width := 0
	for y := 0; y < h; y += side {
		width = max(width, len(label(grid[y*w])), len(label(grid[y*w+w-1])))
	}
	labels := t.columns() >= w+2*width+4
	for y := 0; y < h; y += step {
		if labels && y%side == 0 {
			fmt.Fprintf(&t.out, "%*s  ", width, label(grid[y*w]))
		} else if labels {
			fmt.Fprintf(&t.out, "%*s  ", width, "")
		}
		var line strings.Builder
		for x := range w {
			if t.style.Color {
				line.WriteString(t.pair(grid[y*w+x], grid[(y+1)*w+x]))
			} else {
				line.WriteString(t.mark(grid[y*w+x]))
			}
		}
		text := strings.TrimRight(line.String(), " ")
		if t.style.Color {
			text += reset
		}
		if labels && y%side == 0 && !p.Rows {
			text += "  " + label(grid[y*w+w-1])
		}
		fmt.Fprintln(&t.out, text)
	}
}

const reset = "\x1b[0m"

// signs stand for states; used cells show their eighths instead.
var signs = [states]string{"·", "0", "8", "r", "c", "b", "o", "!", "=", "+", "-", "~"}

// mark returns what stands for a cell without colour.
func (t *textPicture) mark(c *Cell) string {
	if c == nil {
		return " "
	}
	switch {
	case t.ByLabel && c.Label != "":
		letter := string(rune('A' + t.class(c.Label)))
		if t.class(c.Label) == maxClasses {
			letter = "*"
		}
		if c.Level <= 4 {
			letter = strings.ToLower(letter)
		}
		return letter
	case c.State == Used:
		return string(rune('0' + c.Level))
	}
	return t.ascii(signs[c.State])
}

// pair returns the character for two cells, one above the other, each in its colour. Where both are in one state that has a sign,
// that is there, too.
func (t *textPicture) pair(upper, lower *Cell) string {
	if upper == nil {
		return "" // behind the last cell
	}
	top, bottom := t.color(upper), t.color(upper)
	if lower != nil {
		bottom = t.color(lower)
	}
	switch {
	case lower == nil:
		return reset + foreground(top) + t.half()
	case upper.State > Used && upper.State == lower.State && !t.ByLabel && top == bottom:
		return background(top) + foreground(contrast(top)) + t.ascii(signs[upper.State])
	case top == bottom:
		return background(top) + " "
	case t.style.ASCII:
		return background(top) + foreground(bottom) + "_"
	}
	return foreground(top) + background(bottom) + "▀"
}

// half is a character of which the upper half has the colour of the foreground.
func (t *textPicture) half() string {
	if t.style.ASCII {
		return "\""
	}
	return "▀"
}

// color returns the colour of a cell on a dark screen.
func (t *textPicture) color(c *Cell) rgb {
	if t.ByLabel && c.Label != "" {
		return classColor(t.class(c.Label)).fade(darkFree, ink(c.Level))
	}
	return stateColor(c.State, c.Level, true)
}

func foreground(c rgb) string { return fmt.Sprintf("\x1b[38;2;%d;%d;%dm", c[0], c[1], c[2]) }
func background(c rgb) string { return fmt.Sprintf("\x1b[48;2;%d;%d;%dm", c[0], c[1], c[2]) }

// legend says what the marks mean, and how many addresses are in each state.
func (t *textPicture) legend() {
	if t.ByLabel {
		t.classLegend()
		return
	}
	present, counts := t.Picture.legend()
	for _, st := range present {
		sign := t.ascii(signs[st])
		if st == Used {
			sign = "1-8"
		}
		if t.style.Color {
			if st == Used {
				sign = ""
				for _, level := range []int{1, 4, 8} {
					sign += background(stateColor(Used, level, true)) + " "
				}
			} else if st == Free || st == Idle {
				sign = background(stateColor(st, 0, true)) + "   "
			} else {
				c := stateColor(st, 8, true)
				sign = background(c) + foreground(contrast(c)) + " " + sign + " "
			}
			sign += reset
		} else {
			sign = strings.Repeat(" ", 3-utf8.RuneCountInString(sign)) + sign
		}
		what := st.String()
		if st == Used {
			what += ", in eighths"
		}
		fmt.Fprintf(&t.out, "%s  %-16s %s\n", sign, what, number(counts[st]))
	}
}

func (t *textPicture) classLegend() {
	line := func(class int, name, n string) {
		sign := string(rune('A' + class))
		if class == maxClasses {
			sign = "*"
		}
		if t.style.Color {
			c := classColor(class)
			sign = background(c) + foreground(contrast(c)) + " " + sign + " " + reset
		}
		fmt.Fprintf(&t.out, "%s  %s  %s\n", sign, printable(name), n)
	}
	for i, label := range t.classes {
		line(min(i, maxClasses), label, number(t.tallies[i]))
	}
	if t.others > 0 {
		line(maxClasses, fmt.Sprintf("%d others", t.others), number(t.rest))
	}
	if n := t.Space.Total()[Reserved]; !t.style.Color && !n.IsZero() {
		fmt.Fprintf(&t.out, "r  reserved  %s\n", number(n))
	}
	if !t.style.Color {
		fmt.Fprintln(&t.out, "small letter: up to half is taken")
	}
}

// sizes draws the view by size.
func (t *textPicture) sizes() {
	const order = 6
	rows := t.rows(order)
	counts, firsts := len("COUNT"), len("FIRST")
	texts := make([]string, len(rows))
	for i, f := range rows {
		texts[i] = "-"
		if f.First.IsValid() {
			texts[i] = f.First.String()
		}
		counts, firsts = max(counts, len(number(f.Count))), max(firsts, len(texts[i]))
	}
	fmt.Fprintf(&t.out, "FITS  %*s  %-*s  WHERE\n", counts, "COUNT", firsts, "FIRST")
	inBlock := false
	for i, f := range rows {
		var strip strings.Builder
		for _, share := range f.Strip {
			strip.WriteString(t.bar(share))
		}
		if t.style.Color {
			strip.WriteString(reset)
		}
		note := ""
		if f.InBlock {
			note, inBlock = "*", true
		}
		fmt.Fprintf(&t.out, "/%-4d %*s  %-*s  %s\n", f.Bits, counts, number(f.Count), firsts, texts[i]+note, strip.String())
	}
	fmt.Fprintf(&t.out, "\none column: a /%d, filled as far as such prefixes are free in it\n", t.Space.Pool.Bits()+min(order, t.Space.width()-t.Space.Pool.Bits()))
	if inBlock {
		fmt.Fprintln(&t.out, "* in a block of a host: reserve it there, or wait until the block is given back")
	}
}

// bar returns a column that is filled to a share.
func (t *textPicture) bar(share float64) string {
	level := 0
	if share > 0 {
		level = max(1, int(share*8))
	}
	s := t.ascii([]string{"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}[level])
	if !t.style.Color {
		return s
	}
	return foreground(classColor(2)) + s
}
