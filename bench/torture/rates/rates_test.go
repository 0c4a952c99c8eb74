package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

// Every store has a row without an empty cell.
func TestRates(t *testing.T) {
	var rows []string
	err := rates(t.Context(), config{Callers: []int{1, 32}, Turn: 20 * time.Millisecond}, func(format string, args ...any) { rows = append(rows, fmt.Sprintf(format, args...)) })
	if errors.Is(err, servers.ErrSkip) {
		t.Skip(err)
	}
	if err != nil || len(rows) != 2+len(subjects) {
		t.Fatalf("%q, %v", rows, err)
	}
	for _, row := range rows {
		t.Log(row)
		if strings.Count(row, "|") != 4 || strings.Contains(row, "|  |") {
			t.Errorf("row %s", row)
		}
	}
}
