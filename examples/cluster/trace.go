package main

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// The traces that ship with the program: 40 machines of a small company, and a day of their pods.
var (
	//go:embed nodes.csv
	builtinNodes []byte
	//go:embed pods.csv
	builtinPods []byte
)

// node is a line of a trace of nodes.
type node struct {
	name string
	cpu  uint64 // thousandths of a core
}

// pod is a line of a trace of pods. Times are seconds from the beginning of the trace.
type pod struct {
	name             string
	cpu              uint64 // thousandths of a core
	created, deleted uint64
	stays            bool // to the end of the trace
}

// load reads both traces.
func load(cfg *config) (nodes []node, pods []pod, err error) {
	err = table(cfg.nodes, "nodes.csv", builtinNodes, []string{"sn", "cpu_milli"}, func(r *row) {
		nodes = append(nodes, node{name: r.name("sn"), cpu: r.count("cpu_milli")})
	})
	if err != nil {
		return nil, nil, err
	}
	if len(nodes) == 0 {
		return nil, nil, fmt.Errorf("%s:2:1: no node after the header", cfg.nodes)
	}
	err = table(cfg.pods, "pods.csv", builtinPods, []string{"name", "cpu_milli", "creation_time", "deletion_time"}, func(r *row) {
		p := pod{name: r.name("name"), cpu: r.count("cpu_milli"), created: r.time("creation_time")}
		if p.stays = r.text("deletion_time") == ""; !p.stays {
			if p.deleted = r.time("deletion_time"); p.deleted < p.created {
				r.fail("deletion_time", "deletion_time is %d, before the creation_time %d", p.deleted, p.created)
			}
		}
		pods = append(pods, p)
	})
	return nodes, pods, err
}

// row is a row of a table while it is read. The first fault ends the table.
type row struct {
	file   string
	csv    *csv.Reader
	fields []string
	column map[string]int
	seen   map[string]int // the names of earlier rows, with their lines
	err    error
}

// table reads a CSV file, or the built-in bytes if file is empty, and calls read for each row. The
// columns may stand in any order and others beside them.
func table(file, builtinName string, builtin []byte, columns []string, read func(*row)) error {
	if file == "" {
		file = builtinName
	} else {
		var err error
		if builtin, err = os.ReadFile(file); err != nil {
			return err
		}
	}
	in := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(builtin, []byte("\ufeff"))))
	in.TrimLeadingSpace = true
	r := &row{file: file, csv: in, column: map[string]int{}, seen: map[string]int{}}
	if !r.next() {
		if r.err == nil {
			r.err = fmt.Errorf("%s:1:1: the file is empty; the header must name %s", file, strings.Join(columns, ", "))
		}
		return r.err
	}
	for i, name := range r.fields {
		if _, twice := r.column[strings.TrimSpace(name)]; twice {
			r.failAt(i, "column %q appears twice", name)
		}
		r.column[strings.TrimSpace(name)] = i
	}
	for _, name := range columns {
		if _, ok := r.column[name]; !ok {
			r.failAt(0, "the header has no column %q", name)
		}
	}
	for r.err == nil && r.next() {
		read(r)
	}
	return r.err
}

// next reads a record and reports whether there was one.
func (r *row) next() bool {
	fields, err := r.csv.Read()
	var parse *csv.ParseError
	switch {
	case err == io.EOF:
	case errors.As(err, &parse):
		r.err = fmt.Errorf("%s:%d:%d: %w", r.file, parse.Line, parse.Column, parse.Err)
	case err != nil:
		r.err = fmt.Errorf("%s: %w", r.file, err)
	}
	r.fields = fields
	return err == nil
}

func (r *row) text(column string) string { return strings.TrimSpace(r.fields[r.column[column]]) }

// name returns a field that names the row. It must be unique, and a valid host or handle: at most
// 1,024 bytes, without NUL.
func (r *row) name(column string) string {
	name := r.text(column)
	line, _ := r.csv.FieldPos(0)
	if first, ok := r.seen[name]; ok {
		r.fail(column, "%s %q is already on line %d", column, name, first)
	}
	if name == "" || len(name) > 1024 || strings.ContainsRune(name, 0) {
		r.fail(column, "%s must have 1 to 1024 bytes and no NUL", column)
	}
	r.seen[name] = line
	return name
}

// count returns a field that holds a whole number up to 2^40, so that sums do not overflow.
func (r *row) count(column string) uint64 { return r.number(column, 1<<40) }

// time returns a field that holds a number of seconds up to 2^32, which fits a time.Duration.
func (r *row) time(column string) uint64 { return r.number(column, 1<<32) }

func (r *row) number(column string, limit uint64) uint64 {
	n, err := strconv.ParseUint(r.text(column), 10, 64)
	if err != nil || n > limit {
		r.fail(column, "%s is %q, not a whole number from 0 to %d", column, r.text(column), limit)
	}
	return n
}

func (r *row) fail(column, format string, args ...any) { r.failAt(r.column[column], format, args...) }

func (r *row) failAt(field int, format string, args ...any) {
	if r.err == nil {
		line, column := r.csv.FieldPos(field)
		r.err = fmt.Errorf("%s:%d:%d: %s", r.file, line, column, fmt.Sprintf(format, args...))
	}
}
