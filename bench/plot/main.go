// Command plot draws what bench/peers measured: the time of a pair, one release and one allocation, against the
// part of 2^16 prefixes that is taken. It reads the table that the last run left in README.md of bench/peers.
//
//	go run ./bench/plot -table bench/peers/README.md -out bench/peers/pair.svg
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	table := flag.String("table", "bench/peers/README.md", "read the table of this `FILE`")
	out := flag.String("out", "bench/peers/pair.svg", "write the picture to this `FILE`")
	flag.Parse()
	if err := run(*table, *out); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(table, out string) error {
	text, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	lines, err := read(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	return os.WriteFile(out, []byte(draw(lines)), 0o644)
}

// A line is what one allocator needs at each fill, in nanoseconds.
type line struct {
	name string
	at   []point
}

type point struct{ taken, ns float64 } // taken in per cent

// compared are the columns of the table that the picture has.
var compared = []string{"Kubernetes", "ours", "bitset"}

var fill = regexp.MustCompile(`^Release \+ AllocateNext, 2\^16 children, ([0-9.]+) % taken$`)

// read takes the rows of the pair out of the table.
func read(markdown string) ([]line, error) {
	lines := make([]line, len(compared))
	var head []string
	for row := range strings.Lines(markdown) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] == "time of" {
			head = cells
		}
		m := fill.FindStringSubmatch(cells[0])
		if m == nil {
			continue
		}
		taken, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return nil, err
		}
		for i, name := range compared {
			lines[i].name = name
			ns, err := cell(head, cells, name)
			if err != nil {
				return nil, err
			}
			lines[i].at = append(lines[i].at, point{taken, ns})
		}
	}
	if len(lines[0].at) < 2 {
		return nil, fmt.Errorf("no two rows %v", fill)
	}
	return lines, nil
}

// cell returns the nanoseconds in a column of a row.
func cell(head, row []string, column string) (float64, error) {
	for i, name := range head {
		if name != column || i >= len(row) {
			continue
		}
		number, unit, _ := strings.Cut(row[i], " ")
		v, err := strconv.ParseFloat(number, 64)
		scale := map[string]float64{"ns": 1, "us": 1e3, "ms": 1e6}[unit]
		if err != nil || v <= 0 || scale == 0 {
			return 0, fmt.Errorf("column %s of %q has no time", column, row[0])
		}
		return v * scale, nil
	}
	return 0, fmt.Errorf("the table has no column %s", column)
}
