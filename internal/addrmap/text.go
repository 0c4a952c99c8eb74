package addrmap

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"strings"
)

// Text writes a picture made of characters. It is columns wide; 0 means 100. With fewer columns Text omits the prefixes at the
// sides, and then cells. If the prefix is not in the pool, it returns an error and writes nothing; otherwise it returns the error
// of w.
func Text(w io.Writer, p Picture, columns int) error {
	if err := p.prepare(); err != nil {
		return err
	}
	t := textPicture{Picture: p, columns: cmp.Or(columns, 100)}
	fmt.Fprintln(&t.out, p.Space.Headline())
	t.cells()
	t.legend()
	_, err := w.Write(t.out.Bytes())
	return err
}

type textPicture struct {
	Picture
	columns int
	out     bytes.Buffer
}

// order returns log2 of the most cells that fit: 64 columns of them, fewer on a narrow screen. A character has the height of two cells.
func (t *textPicture) order() int {
	k := 6
	for ; k > 2 && 1<<k > t.columns; k-- {
	}
	return 2*k - 1
}

func (t *textPicture) cells() {
	panel := t.Space.Panel(t.Prefix, t.order(), t.Rows)
	t.panel(&panel)
	fmt.Fprintln(&t.out, "\n"+panel.scale(t.Space))
}

// panel draws cells, with prefixes at the sides: those of the quarters, or of the rows.
func (t *textPicture) panel(p *Panel) {
	w, h := p.Size()
	grid := make([]*Cell, w*h)
	for i := range p.Cells {
		x, y := p.Place(i)
		grid[y*w+x] = &p.Cells[i]
	}
	side := max(h/4, 1)
	if p.Rows {
		side = 1
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
	labels := t.columns >= w+2*width+4
	for y := range h {
		if labels && y%side == 0 {
			fmt.Fprintf(&t.out, "%*s  ", width, label(grid[y*w]))
		} else if labels {
			fmt.Fprintf(&t.out, "%*s  ", width, "")
		}
		var line strings.Builder
		for x := range w {
			line.WriteString(t.mark(grid[y*w+x]))
		}
		text := strings.TrimRight(line.String(), " ")
		if labels && y%side == 0 && !p.Rows {
			text += "  " + label(grid[y*w+w-1])
		}
		fmt.Fprintln(&t.out, text)
	}
}

// signs stand for states; used cells show their eighths instead.
var signs = [states]string{"·", "0", "8", "r", "c", "b", "o", "!", "=", "+", "-", "~"}

// mark returns what stands for a cell.
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
	return signs[c.State]
}

// legend says what the marks mean, and how many addresses are in each state.
func (t *textPicture) legend() {
	if t.ByLabel {
		t.classLegend()
		return
	}
	present, counts := t.Picture.legend()
	for _, st := range present {
		sign := signs[st]
		if st == Used {
			sign = "1-8"
		}
		what := st.String()
		if st == Used {
			what += ", in eighths"
		}
		fmt.Fprintf(&t.out, "%3s  %-16s %s\n", sign, what, Number(counts[st]))
	}
}

func (t *textPicture) classLegend() {
	line := func(class int, name, n string) {
		sign := string(rune('A' + class))
		if class == maxClasses {
			sign = "*"
		}
		fmt.Fprintf(&t.out, "%s  %s  %s\n", sign, Printable(name), n)
	}
	for i, label := range t.classes {
		line(min(i, maxClasses), label, Number(t.tallies[i]))
	}
	if t.others > 0 {
		line(maxClasses, fmt.Sprintf("%d others", t.others), Number(t.rest))
	}
	if n := t.Space.Total()[Reserved]; !n.IsZero() {
		fmt.Fprintf(&t.out, "r  reserved  %s\n", Number(n))
	}
	fmt.Fprintln(&t.out, "small letter: up to half is taken")
}
