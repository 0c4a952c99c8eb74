package main

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/addrmap"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

var formats = []string{"table", "json", "yaml", "name", "csv"}

func checkFormat(f string) error {
	if !slices.Contains(formats, f) {
		return fail(exitUsage, "-o %s: the formats are %s", f, strings.Join(formats, ", "))
	}
	return nil
}

// listing is the answer of a command.
type listing struct {
	columns []string
	rows    []row
	// single is the answer of a command that shows one thing: JSON and YAML are one object, and the table stands on end.
	single bool
	// detail follows the table of a single answer.
	detail *listing
	// empty is what the table says if there is no row.
	empty string
	// long is a list that is printed as it comes, and never held as a whole; flush prints and forgets the rows there are.
	long  bool
	flush func() error
	err   error // of flush

	most   int    // how many rows are printed, 0 for all
	over   int    // rows beyond them
	count  int    // rows so far
	begun  bool   // rows have been printed
	bare   bool   // the names of the columns are not printed
	widths []int  // of the columns of a table
	left   []bool // the columns of a table that are no numbers
}

// row is one thing: what -o name prints, what tables and CSV print, and what JSON and YAML print.
type row struct {
	name  string
	cells []string
	item  any
}

// mostHeld is how many rows of a list are held before they are printed.
const mostHeld = 4096

func (l *listing) add(name string, item any, cells ...string) {
	if l.most > 0 && l.count >= l.most {
		l.over++
		return
	}
	l.rows = append(l.rows, row{name, cells, item})
	l.count++
	if l.flush != nil && len(l.rows) == mostHeld && l.err == nil {
		l.err = l.flush()
	}
}

// print writes an answer in the format that was asked for.
func (a *app) print(l *listing) error {
	if !l.single {
		if err := a.arrange(l); err != nil {
			return err
		}
	}
	if err := a.printRows(l); err != nil {
		return err
	}
	if l.over > 0 {
		a.note("%s more than --limit", plural(l.over, "row"))
	}
	switch {
	case a.format == "json" && l.begun && !l.single:
		fmt.Fprintln(a.stdout, "\n]")
	case (a.format == "json" || a.format == "yaml") && !l.begun:
		fmt.Fprintln(a.stdout, "[]")
	case a.format == "table" && !l.begun && l.empty != "":
		a.note("%s", l.empty)
	}
	return l.err
}

// arrange sorts the rows of a list and drops those beyond the limit.
func (a *app) arrange(l *listing) error {
	if a.sort != "" {
		words := strings.Split(strings.ReplaceAll(strings.ToLower(strings.Join(l.columns, "\n")), " ", "-"), "\n")
		by := slices.Index(words, strings.ToLower(a.sort))
		if by < 0 {
			return fail(exitUsage, "--sort %s: the columns are %s", a.sort, strings.Join(words, ", "))
		}
		slices.SortStableFunc(l.rows, func(x, y row) int { return compareCells(x.cells[by], y.cells[by]) })
	}
	if a.rows > 0 && len(l.rows) > a.rows {
		l.over += len(l.rows) - a.rows
		l.rows = l.rows[:a.rows]
	}
	return nil
}

// compareCells orders cells: prefixes and addresses by their place, numbers by the largest, all else by its text.
func compareCells(x, y string) int {
	if n, m, ok := magnitude(x), magnitude(y), isNumber(x) && isNumber(y); ok {
		return cmp.Compare(m, n)
	}
	return compareWhere(x, y)
}

// magnitude returns the number in a cell: a count, a power of two or a percentage.
func magnitude(cell string) float64 {
	cell = strings.Trim(cell, "~<> %")
	base, power, ok := strings.Cut(cell, "^")
	n, err := strconv.ParseFloat(base, 64)
	if p, perr := strconv.ParseFloat(power, 64); ok && perr == nil {
		n = math.Pow(n, p)
	}
	if err != nil {
		return -1
	}
	return n
}

// printRows writes the rows there are.
func (a *app) printRows(l *listing) error {
	l.bare = a.noHead
	write := map[string]func(*listing) error{"json": a.printJSON, "yaml": a.printYAML, "csv": a.printCSV}[a.format]
	switch {
	case a.format == "name":
		for _, r := range l.rows {
			fmt.Fprintln(a.stdout, printable(r.name))
		}
	case len(l.rows) == 0 && a.format != "csv":
		return nil
	case write != nil:
		if err := write(l); err != nil {
			return err
		}
	case l.single:
		if err := a.printSingle(l); err != nil {
			return err
		}
	default:
		if err := l.writeTable(a.stdout); err != nil {
			return err
		}
	}
	l.begun = true
	return nil
}

// printJSON writes an object, or the next elements of an array.
func (a *app) printJSON(l *listing) error {
	indent := "  "
	if l.single = l.single && len(l.rows) == 1; l.single {
		indent = ""
	}
	for i, r := range l.rows {
		text, err := json.MarshalIndent(r.item, indent, "  ")
		if err != nil {
			return err
		}
		switch {
		case l.single:
			text = append(text, '\n')
		case i > 0 || l.begun:
			text = slices.Concat([]byte(",\n  "), text)
		default:
			text = slices.Concat([]byte("[\n  "), text)
		}
		if _, err := a.stdout.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// printYAML writes an object, or the next elements of a sequence.
func (a *app) printYAML(l *listing) error {
	items := make([]any, len(l.rows))
	for i, r := range l.rows {
		items[i] = r.item
	}
	var v any = items
	if l.single && len(items) == 1 {
		v = items[0]
	}
	text, err := yaml.Marshal(v)
	if err == nil {
		_, err = a.stdout.Write(text)
	}
	return err
}

func (a *app) printCSV(l *listing) error {
	w := csv.NewWriter(a.stdout)
	if !l.begun && !l.bare {
		_ = w.Write(strings.Split(strings.ToLower(strings.Join(l.columns, "\n")), "\n"))
	}
	for _, r := range l.rows {
		_ = w.Write(csvCells(r.cells))
	}
	w.Flush()
	return w.Error()
}

// printSingle writes a line for each column that has a value, and the table that follows.
func (a *app) printSingle(l *listing) error {
	width := 0
	for _, c := range l.columns {
		width = max(width, utf8.RuneCountInString(c))
	}
	for i, c := range l.rows[0].cells {
		if c != "" {
			fmt.Fprintf(a.stdout, "%-*s  %s\n", width, strings.ToLower(l.columns[i]), printable(c))
		}
	}
	if l.detail == nil || len(l.detail.rows) == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	return l.detail.writeTable(a.stdout)
}

// writeTable writes rows of a table whose numbers are aligned on the right. A later part has no head, and columns as wide or wider.
func (l *listing) writeTable(w io.Writer) error {
	rows := l.rows
	head := 0 // rows that are the head
	if !l.begun {
		if !l.bare {
			rows, head = append([]row{{cells: l.columns}}, rows...), 1
		}
		l.widths, l.left = make([]int, len(l.columns)), make([]bool, len(l.columns))
	}
	for n, r := range rows {
		for i, c := range r.cells {
			l.widths[i] = max(l.widths[i], utf8.RuneCountInString(printable(c)))
			l.left[i] = l.left[i] || c != "" && c != "-" && !isNumber(c) && n >= head
		}
	}
	var out strings.Builder
	for _, r := range rows {
		var s strings.Builder
		for i, c := range r.cells {
			c = printable(c)
			pad := strings.Repeat(" ", l.widths[i]-utf8.RuneCountInString(c))
			if l.left[i] {
				s.WriteString(c + pad)
			} else {
				s.WriteString(pad + c)
			}
			s.WriteString("  ")
		}
		out.WriteString(strings.TrimRight(s.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// isNumber reports whether a cell is a number, a power of two or a percentage.
func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789.<> %^~") == "" && strings.Count(s, ".") < 2
}

// printable replaces what is not printable.
func printable(s string) string { return addrmap.Printable(s) }

// count is a number of addresses. In JSON it is a number below 2^53, which every reader of JSON keeps
// exactly, and a string from there on.
type count struct{ alloc.Count }

func (c count) String() string { return addrmap.Number(addr.U128(c.Count)) }

func (c count) MarshalJSON() ([]byte, error) {
	if c.Hi == 0 && c.Lo < 1<<53 {
		return []byte(fmt.Sprint(c.Lo)), nil
	}
	return []byte(`"` + c.Count.String() + `"`), nil
}

// percent returns the share of c in all.
func percent(c, all alloc.Count) string { return addrmap.Percent(addr.U128(c), addr.U128(all)) }
