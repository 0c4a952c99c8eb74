package main

import (
	"bufio"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// builtin is the trace that is replayed when no file is named: 40 machines of a small company, in
// the order in which they joined.
//
//go:embed trace/nodes.csv
var builtin string

// node is one line of a node trace.
type node struct {
	name      string
	milliCPU  uint64
	memoryMiB uint64
	gpus      uint64
	model     string // of the GPUs
}

// nodeColumns are the columns of a node trace, in any order; others may stand beside them.
var nodeColumns = []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}

// traceError is a fault in a trace. Line and column start at 1; columns count bytes, as editors and
// compilers do, after a byte order mark.
type traceError struct {
	file         string
	line, column int
	reason       string
}

func (e *traceError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.file, e.line, e.column, e.reason)
}

// loadNodes reads the node trace in a file, or the built-in one when the name is empty.
func loadNodes(file string) ([]node, error) {
	if file == "" {
		return readNodes("trace/nodes.csv", strings.NewReader(builtin))
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readNodes(file, f)
}

// readNodes reads a node trace. A fault in it is a *traceError. Names are unique, and there is at
// least one node.
func readNodes(file string, r io.Reader) ([]node, error) {
	t := newTable(file, r, nodeColumns)
	var nodes []node
	seen := map[string]int{} // name -> line
	for t.next() {
		n := node{
			name:      t.text("sn"),
			milliCPU:  t.count("cpu_milli"),
			memoryMiB: t.count("memory_mib"),
			gpus:      t.count("gpu"),
			model:     t.text("model"),
		}
		if n.name == "" {
			t.fail("sn", "sn is empty: a node needs a name")
		}
		if first, ok := seen[n.name]; ok {
			t.fail("sn", "node %q is on line %d already", n.name, first)
		}
		seen[n.name] = t.line()
		nodes = append(nodes, n)
	}
	if t.err == nil && len(nodes) == 0 {
		return nil, &traceError{file, t.line() + 1, 1, "no node after the header"}
	}
	return nodes, t.err
}

// table reads a CSV file by the names in its header. The first fault ends it: next returns false
// and err says what and where.
type table struct {
	file   string
	csv    *csv.Reader
	index  map[string]int // column name -> field number
	width  int
	record []string
	err    error
}

// newTable reads the header of a CSV file and looks for the columns in it.
func newTable(file string, r io.Reader, columns []string) *table {
	in := bufio.NewReader(r)
	if mark, _ := in.Peek(3); string(mark) == "\ufeff" {
		in.Discard(len(mark))
	}
	t := &table{file: file, csv: csv.NewReader(in), index: map[string]int{}}
	t.csv.FieldsPerRecord = -1 // checked in next, which knows where the row went wrong
	t.csv.TrimLeadingSpace = true
	t.csv.ReuseRecord = true
	if !t.read() {
		if t.err == nil {
			t.err = &traceError{file, 1, 1, "the file is empty, the header is missing: " + strings.Join(columns, ",")}
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

// next reads a row and reports whether there is a sound one.
func (t *table) next() bool {
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
func (t *table) read() bool {
	var fault *csv.ParseError
	record, err := t.csv.Read()
	switch {
	case err == nil:
		t.record = record
		return true
	case errors.As(err, &fault):
		t.err = &traceError{t.file, fault.Line, fault.Column, quoteReason(fault.Err)}
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

// line returns the line on which the current row starts.
func (t *table) line() int {
	line, _ := t.csv.FieldPos(0)
	return line
}

// text returns a field of the current row without the space around it.
func (t *table) text(column string) string {
	return strings.Clone(strings.TrimSpace(t.record[t.index[column]]))
}

// maxCount bounds the numbers of a trace, so that their sums don't overflow: nobody has a machine
// with 2^40 of anything counted here.
const maxCount = 1 << 40

// count returns a field that holds a whole number from 0 on.
func (t *table) count(column string) uint64 {
	s := t.text(column)
	n, err := strconv.ParseUint(s, 10, 64)
	switch {
	case err == nil && n <= maxCount:
	case s == "":
		t.fail(column, "%s is empty: a whole number is needed", column)
	case err == nil, errors.Is(err, strconv.ErrRange):
		t.fail(column, "%s is %s: too large", column, s)
	case strings.HasPrefix(s, "-"):
		t.fail(column, "%s is %q: it can't be negative", column, s)
	default:
		t.fail(column, "%s is %q: not a whole number", column, s)
	}
	return n
}

// fail ends the table with a fault in a field of the current row. The first fault stands.
func (t *table) fail(column, format string, args ...any) {
	t.failField(t.index[column], format, args...)
}

func (t *table) failField(field int, format string, args ...any) {
	if t.err != nil {
		return
	}
	line, column := t.csv.FieldPos(field)
	t.err = &traceError{t.file, line, column, fmt.Sprintf(format, args...)}
}
