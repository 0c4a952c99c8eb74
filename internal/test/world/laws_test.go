package world

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every cell of the table of the laws names a law or a reason, and every law a test that exists.
func TestTableOfLaws(t *testing.T) {
	text, err := os.ReadFile("LAWS.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\w) \| \[(Test\w+)\]\((.*)\) \|`).FindAllStringSubmatch(string(text), -1) {
		known[m[1]] = true
		if file, err := os.ReadFile(m[3]); err != nil || !strings.Contains(string(file), "func "+m[2]+"(") {
			t.Errorf("law %s: there is no test %s in %s: %v", m[1], m[2], m[3], err)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(string(text), -1) {
		known[m[1]] = true
	}
	table, _, _ := strings.Cut(string(text), "\n| law |")
	rows := regexp.MustCompile(`(?m)^\|.*\|$`).FindAllString(table, -1)
	columns := strings.Count(rows[0], "|")
	for _, row := range rows[2:] {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		if strings.Count(row, "|") != columns {
			t.Errorf("%s: %d cells, want %d", cells[0], len(cells), columns-1)
		}
		for _, cell := range cells[1:] {
			for _, law := range strings.Split(cell, ",") {
				if law = strings.TrimSpace(law); !known[law] {
					t.Errorf("%s: %q is explained nowhere", cells[0], law)
				}
			}
		}
	}
	if len(rows) < 10 || len(known) < 20 {
		t.Error(len(rows), "rows and", len(known), "laws")
	}
}
