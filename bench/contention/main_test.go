package main

import (
	"strings"
	"testing"
	"time"
)

// Every subject has a time with every number of goroutines, and but for the floor a ratio.
func TestTables(t *testing.T) {
	byWall, byCPU := tables(config{turn: time.Millisecond, passes: 1, goroutines: []int{1, 4}})
	for _, rows := range [][][]string{byWall, byCPU} {
		if len(rows) != len(subjects)+1 {
			t.Fatalf("%d rows", len(rows))
		}
		for i, row := range rows[1:] {
			if len(row) != 4 || len(rows[0]) != 4 {
				t.Fatalf("row %q", row)
			}
			for _, cell := range row[1:3] {
				if strings.HasPrefix(cell, "0 ") || strings.HasSuffix(cell, "x") == subjects[i].floor {
					t.Errorf("no time in %q", row)
				}
			}
		}
	}
}

// What a pair gives back it has taken, and every goroutine has its own.
func TestPairs(t *testing.T) {
	for _, s := range subjects {
		workers := s.workers(3)
		if len(workers) != 3 {
			t.Fatalf("%s: %d workers", s.name, len(workers))
		}
		for range 3 * held {
			for _, pair := range workers {
				pair() // panics if something is not held, or nothing is free
			}
		}
	}
}
