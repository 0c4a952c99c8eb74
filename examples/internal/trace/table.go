package trace

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Error is a fault in a trace. Line and column start at 1; columns count bytes, as editors and
// compilers do, after a byte order mark.
type Error struct {
	file         string
	line, column int
	reason       string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.file, e.line, e.column, e.reason)
}

// Load reads the trace in a file, or the built-in one, under a name of its own, when that is empty.
func Load[T any](file, name, builtin string, read func(file string, r io.Reader) (T, error)) (T, error) {
	if file == "" {
		return read(name, strings.NewReader(builtin))
	}
	f, err := os.Open(file)
	if err != nil {
		var none T
		return none, err
	}
	defer f.Close()
	return read(file, f)
}

// Table reads a CSV file by the names in its header. The first fault ends it: Next returns false
// and Err says what and where.
type Table struct {
	file   string
	csv    *csv.Reader
	index  map[string]int // column name -> field number
	width  int
	record []string
	err    error
}

// Err returns the fault that ended the table: an *Error, or one of the reader; nil at the end of the file.
func (t *Table) Err() error { return t.err }

// NewTable reads the header of a CSV file and looks for the columns in it; others may stand beside them.
func NewTable(file string, r io.Reader, columns []string) *Table {
	in := bufio.NewReader(r)
	if mark, _ := in.Peek(3); string(mark) == "\ufeff" {
		in.Discard(len(mark))
	}
	t := &Table{file: file, csv: csv.NewReader(in), index: map[string]int{}}
	t.csv.FieldsPerRecord = -1 // checked in Next, which knows where the row went wrong
	t.csv.TrimLeadingSpace = true
	t.csv.ReuseRecord = true
	if !t.read() {
		if t.err == nil {
			t.err = &Error{file, 1, 1, "the file is empty, the header is missing: " + strings.Join(columns, ",")}
		}
		return t
	}
	t.width = len(t.record)
	for i, name := range t.record {
		name = strings.TrimSpace(name)
		if _, ok := t.index[name]; ok {
			t.failField(i, "column %q is there twice", name)
		}
		t.index[name] = i
	}
	for _, name := range columns {
		if _, ok := t.index[name]; !ok {
			t.failField(0, "no column %q in the header, which needs %s", name, strings.Join(columns, ","))
		}
	}
	return t
}

// Next reads a row and reports whether there is a sound one.
func (t *Table) Next() bool {
	if t.err != nil || !t.read() {
		return false
	}
	switch n := len(t.record); {
	case n > t.width:
		t.failField(t.width, "%d fields, the header has %d", n, t.width)
	case n < t.width:
		t.failField(n-1, "%d fields, the header has %d", n, t.width)
	}
	return t.err == nil
}

// read reads a record and reports whether there was one; at the end of the file there is none, and
// no fault.
func (t *Table) read() bool {
	var fault *csv.ParseError
	record, err := t.csv.Read()
	switch {
	case err == nil:
		t.record = record
		return true
	case errors.As(err, &fault):
		t.err = &Error{t.file, fault.Line, fault.Column, quoteReason(fault.Err)}
	case err != io.EOF:
		t.err = fmt.Errorf("%s: %w", t.file, err)
	}
	return false
}

// quoteReason says in plain words what encoding/csv objects to: with the number of fields checked
// here, only quotes are left.
func quoteReason(err error) string {
	switch err {
	case csv.ErrBareQuote:
		return "a quote in a field that does not start with one"
	case csv.ErrQuote:
		return "the quotes of a field are not closed, or text follows them"
	}
	return err.Error()
}

// Line returns the line on which the current row starts.
func (t *Table) Line() int {
	line, _ := t.csv.FieldPos(0)
	return line
}

// Text returns a field of the current row without the space around it.
func (t *Table) Text(column string) string {
	return strings.Clone(strings.TrimSpace(t.record[t.index[column]]))
}

// Has reports whether the file has a column.
func (t *Table) Has(column string) bool {
	_, ok := t.index[column]
	return ok
}

// maxName is the longest name that package ipset takes for a host or a handle.
const maxName = 1024

// Name returns a field that names a thing of its kind, which may be neither empty nor in seen; it
// puts the name there with its line.
func (t *Table) Name(column, kind string, seen map[string]int) string {
	name := t.Text(column)
	if name == "" {
		t.Fail(column, "%s is empty: a %s needs a name", column, kind)
	}
	if first, ok := seen[name]; ok {
		t.Fail(column, "%s %q is on line %d already", kind, name, first)
	}
	if len(name) > maxName || strings.ContainsRune(name, 0) {
		t.Fail(column, "%s is no name: longer than %d bytes, or with a NUL byte in it", column, maxName)
	}
	seen[name] = t.Line()
	return name
}

// MaxCount bounds the numbers of a trace, so that their sums don't overflow: nobody has a machine
// with 2^40 of anything counted here.
const MaxCount = 1 << 40

// Count returns a field that holds a whole number from 0 on.
func (t *Table) Count(column string) uint64 {
	s := t.Text(column)
	n, err := strconv.ParseUint(s, 10, 64)
	switch {
	case err == nil && n <= MaxCount:
	case s == "":
		t.Fail(column, "%s is empty: a whole number is needed", column)
	case err == nil, errors.Is(err, strconv.ErrRange):
		t.Fail(column, "%s is %s: too large", column, s)
	case strings.HasPrefix(s, "-"):
		t.Fail(column, "%s is %q: it can't be negative", column, s)
	default:
		t.Fail(column, "%s is %q: not a whole number", column, s)
	}
	return n
}

// maxTime bounds the times of a trace, so that a clock that counts nanoseconds can follow: 136 years.
const maxTime = 1 << 32

// Time returns a field that holds a number of seconds from the beginning of the trace.
func (t *Table) Time(column string) uint64 {
	n := t.Count(column)
	if n > maxTime {
		t.Fail(column, "%s is %d: beyond %d seconds", column, n, uint64(maxTime))
	}
	return n
}

// Fail ends the table with a fault in a field of the current row. The first fault stands.
func (t *Table) Fail(column, format string, args ...any) {
	t.failField(t.index[column], format, args...)
}

func (t *Table) failField(field int, format string, args ...any) {
	if t.err != nil {
		return
	}
	line, column := t.csv.FieldPos(field)
	t.err = &Error{t.file, line, column, fmt.Sprintf(format, args...)}
}
