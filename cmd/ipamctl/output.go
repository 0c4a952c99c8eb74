package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/ipalloc/ipalloc/internal/addr"
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
}

// row is one thing: what -o name prints, what tables and CSV print, and what JSON and YAML print.
type row struct {
	name  string
	cells []string
	item  any
}

func (l *listing) add(name string, item any, cells ...string) {
	l.rows = append(l.rows, row{name, cells, item})
}

// print writes an answer in the format that was asked for.
func (a *app) print(l *listing) error {
	switch a.format {
	case "json", "yaml":
		return a.printItems(l)
	case "name":
		for _, r := range l.rows {
			fmt.Fprintln(a.stdout, printable(r.name))
		}
		return nil
	case "csv":
		w := csv.NewWriter(a.stdout)
		header := make([]string, len(l.columns))
		for i, c := range l.columns {
			header[i] = strings.ToLower(c)
		}
		_ = w.Write(header)
		for _, r := range l.rows {
			_ = w.Write(csvCells(r.cells))
		}
		w.Flush()
		return w.Error()
	}
	switch {
	case len(l.rows) == 0:
		if l.empty != "" {
			a.note("%s", l.empty)
		}
		return nil
	case l.single:
		return a.printSingle(l)
	default:
		return writeTable(a.stdout, l.columns, l.rows)
	}
}

// printItems writes JSON or YAML.
func (a *app) printItems(l *listing) error {
	var v any
	if l.single && len(l.rows) == 1 {
		v = l.rows[0].item
	} else {
		items := make([]any, len(l.rows))
		for i, r := range l.rows {
			items[i] = r.item
		}
		v = items
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if a.format == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
		_, err = a.stdout.Write(text)
		return err
	}
	_, err = a.stdout.Write(append(text, '\n'))
	return err
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
	return writeTable(a.stdout, l.detail.columns, l.detail.rows)
}

// writeTable writes a table whose numbers are aligned on the right.
func writeTable(w io.Writer, columns []string, rows []row) error {
	widths, left := make([]int, len(columns)), make([]bool, len(columns))
	for i, c := range columns {
		widths[i] = utf8.RuneCountInString(c)
	}
	for _, r := range rows {
		for i, c := range r.cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(printable(c)))
			left[i] = left[i] || c != "" && c != "-" && !isNumber(c)
		}
	}
	var out strings.Builder
	line := func(cells []string) {
		var s strings.Builder
		for i, c := range cells {
			c = printable(c)
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if left[i] {
				s.WriteString(c + pad)
			} else {
				s.WriteString(pad + c)
			}
			s.WriteString("  ")
		}
		out.WriteString(strings.TrimRight(s.String(), " ") + "\n")
	}
	line(columns)
	for _, r := range rows {
		line(r.cells)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// isNumber reports whether a cell is a number, a power of two or a percentage.
func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789.<> %^~") == "" && strings.Count(s, ".") < 2
}

// printable replaces what is not printable, because names come from others: an escape sequence in
// one must not reach the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// count is a number of addresses. In JSON it is a number below 2^53, which every reader of JSON keeps
// exactly, and a string from there on.
type count struct{ alloc.Count }

// String returns the number; from 2^40 on, the next power of two, with ~ before one that is not exact.
func (c count) String() string {
	if c.Hi == 0 && c.Lo < 1<<40 {
		return fmt.Sprint(c.Lo)
	}
	k := bits.Len64(c.Lo) - 1
	if c.Hi != 0 {
		k = 63 + bits.Len64(c.Hi)
	}
	if bits.OnesCount64(c.Hi)+bits.OnesCount64(c.Lo) == 1 {
		return fmt.Sprintf("2^%d", k)
	}
	half := addr.U128(c.Count).Shr(uint(k-1)).Lo & 1 // whether it is nearer to the power above
	return fmt.Sprintf("~2^%d", k+int(half))
}

func (c count) MarshalJSON() ([]byte, error) {
	if c.Hi == 0 && c.Lo < 1<<53 {
		return []byte(fmt.Sprint(c.Lo)), nil
	}
	return []byte(`"` + c.Count.String() + `"`), nil
}

// percent returns the share of c in all. "0 %" and "100 %" are said only of none and of all.
func percent(c, all alloc.Count) string {
	switch part := 100 * c.Ratio(all); {
	case c.IsZero() || all.IsZero():
		return "0 %"
	case c == all:
		return "100 %"
	case part < 0.1:
		return "<0.1 %"
	case part > 99.9:
		return ">99.9 %"
	default:
		return fmt.Sprintf("%.1f %%", part)
	}
}
