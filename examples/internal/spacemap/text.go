package spacemap

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// TextStyle says how a text picture looks. The zero value is 64 columns, at most 16 rows, shades of
// Unicode blocks, no colour.
type TextStyle struct {
	Columns int  // cells in a row, rounded down to a power of two; 0 means at most 64, as fits the pool, and fewer than 8 count as 8
	Rows    int  // most rows, rounded down to a power of two; 0 means 16
	ASCII   bool // draw with . - + * # in place of the Unicode shades
	Letters bool // draw each cell that is wholly taken as a capital letter, one that is partly taken as a small one: A for the first layer
	Color   bool // colour each cell by its layer with ANSI escape sequences
	Unfold  bool // print every row, also where three or more in a row are wholly free, or wholly one layer's
}

const (
	textRows = 16
	minFold  = 3 // a fold takes a line itself: two rows are as short without it
)

// shades are the marks of the levels 0 to 4. Free space is a dot, not a blank, so that the extent
// of the pool can be seen and no line ends in white space.
var (
	shades      = [levels]string{"·", "░", "▒", "▓", "█"}
	shadesASCII = [levels]string{".", "-", "+", "*", "#"}
)

// ansiColors are the foreground colours of the layers, in turn: those that are readable on a dark
// and on a light background.
var ansiColors = [...]string{"36", "33", "35", "32", "34", "31", "96", "95"}

// Text writes d as lines of cells, each row with its first address in front and its use behind, and
// a legend. It returns an error that wraps ErrBadDrawing, with nothing written, when d is not
// sound, or the error of w.
func Text(w io.Writer, d Drawing, style TextStyle) error {
	g, err := newGrid(d, style.Columns, orDefault(style.Rows, textRows))
	if err != nil {
		return err
	}
	t := textPicture{grid: g, style: style, shades: &shades}
	if style.ASCII {
		t.shades = &shadesASCII
	}
	t.head()
	t.body()
	t.legend()
	_, err = w.Write(t.out.Bytes())
	return err
}

// orDefault returns n, or def where n is zero.
func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// textPicture is a text picture in the making.
type textPicture struct {
	*grid
	style  TextStyle
	shades *[levels]string
	out    bytes.Buffer
}

func (t *textPicture) head() {
	if t.drawing.Title != "" {
		fmt.Fprintln(&t.out, printable(t.drawing.Title))
	}
	fmt.Fprintf(&t.out, "%v: %v taken\n", t.drawing.Pool, t.total)
}

func (t *textPicture) body() {
	width := 0
	for r := range t.rows() {
		width = max(width, len(t.address(r*t.columns).String()))
	}
	for r := 0; r < t.rows(); {
		n := t.alike(r)
		if n < minFold || t.style.Unfold {
			n = 1
		}
		t.row(r, width)
		if n > 1 {
			t.fold(r+1, n-1, width)
		}
		r += n
	}
}

// alike returns how many rows from r on look the same because each is wholly free, or wholly of the
// same layer; 1 where r is neither.
func (t *textPicture) alike(r int) int {
	first := t.cells[r*t.columns]
	if level := t.share(r * t.columns).level(); level != 0 && level != levels-1 {
		return 1
	}
	i := r * t.columns
	for i < len(t.cells) && t.cells[i] == first {
		i++
	}
	return max(1, i/t.columns-r)
}

func (t *textPicture) row(r, width int) {
	fmt.Fprintf(&t.out, "%-*s  ", width, t.address(r*t.columns))
	color := t.color(free)
	for i := r * t.columns; i < (r+1)*t.columns; i++ {
		if c := t.color(t.cells[i].layer); c != color {
			t.out.WriteString(c)
			color = c
		}
		t.out.WriteString(t.mark(i))
	}
	if color != t.color(free) {
		t.out.WriteString(t.color(free))
	}
	fmt.Fprintf(&t.out, " %8s\n", t.rowShare(r))
}

// mark returns what stands for cell i.
func (t *textPicture) mark(i int) string {
	s, layer := t.share(i), t.cells[i].layer
	switch {
	case !t.style.Letters || s.none:
		return t.shades[s.level()]
	case s.all:
		return letter(layer)
	default:
		return strings.ToLower(letter(layer))
	}
}

// letter returns the capital that stands for a layer; after Z comes A again.
func letter(layer int) string { return string(rune('A' + layer%26)) }

// fold stands for the n rows from r on.
func (t *textPicture) fold(r, n, width int) {
	mark := "⋮"
	if t.style.ASCII {
		mark = ":"
	}
	what := "free"
	if l := t.cells[r*t.columns].layer; l != free {
		what = "taken by " + printable(t.drawing.Layers[l].Label)
	}
	fmt.Fprintf(&t.out, "%-*s  %d more rows, all %s, to %v\n", width, mark, n, what, t.lastAddress((r+n)*t.columns-1))
}

func (t *textPicture) legend() {
	s := t.shades
	fmt.Fprintf(&t.out, "\n%s\n", t.scale())
	if t.style.Letters {
		fmt.Fprintf(&t.out, "%s free   small letter: partly taken   capital: all taken\n", s[0])
	} else {
		fmt.Fprintf(&t.out, "%s free   %s below 1/3   %s below 2/3   %s more   %s all taken\n", s[0], s[1], s[2], s[3], s[4])
	}
	width, numbers := 0, 0
	for i, l := range t.drawing.Layers {
		width = max(width, utf8.RuneCountInString(printable(l.Label)))
		numbers = max(numbers, len(prefixes(t.tallies[i].prefixes)))
	}
	for i, l := range t.drawing.Layers {
		label := printable(l.Label)
		pad := strings.Repeat(" ", width-utf8.RuneCountInString(label))
		mark := ""
		switch {
		case t.style.Letters:
			mark = t.color(i) + letter(i) + t.color(free) + " "
		case t.style.Color:
			mark = t.color(i) + t.shades[levels-1] + t.color(free) + " "
		}
		fmt.Fprintf(&t.out, "%s%s%s  %*s  %8s\n", mark, label, pad, numbers, prefixes(t.tallies[i].prefixes), t.tallies[i].share)
	}
}

// color returns the escape sequence that switches to the colour of a layer, or back for free.
// Without colour that is nothing.
func (t *textPicture) color(layer int) string {
	switch {
	case !t.style.Color:
		return ""
	case layer == free:
		return "\x1b[0m"
	default:
		return "\x1b[" + ansiColors[layer%len(ansiColors)] + "m"
	}
}

// prefixes counts prefixes in words.
func prefixes(n int) string {
	if n == 1 {
		return "1 prefix"
	}
	return fmt.Sprintf("%d prefixes", n)
}

// printable returns s with everything that is not a printable character replaced, since labels are
// names that others chose: an escape sequence in one must not reach a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
