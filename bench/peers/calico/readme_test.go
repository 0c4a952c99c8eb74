package main

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write the table of divergences into README.md")

// The table that people read is the one that the tests hold.
func TestReadmeListsDivergences(t *testing.T) {
	const begin, end = "<!-- divergences:begin -->\n", "<!-- divergences:end -->"
	rows := [][]string{{"", "Calico", "ours", "because"}}
	for _, d := range divergences {
		if d.Calico == "" || d.Ours == "" || d.Reason == "" {
			t.Errorf("incomplete: %+v", d)
		}
		rows = append(rows, []string{d.Case, d.Calico, d.Ours, d.Reason})
	}
	var list strings.Builder
	for i, row := range rows {
		list.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			list.WriteString("|---|---|---|---|\n")
		}
	}
	text := string(must(os.ReadFile("README.md")))
	head, rest, ok := strings.Cut(text, begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("README.md has no place for the table of divergences")
	}
	if old == list.String() {
		return
	}
	if !*write {
		t.Fatal("the table of divergences in README.md is another one: run go test -run TestReadmeListsDivergences -write")
	}
	check(os.WriteFile("README.md", []byte(head+begin+list.String()+end+tail), 0o644))
}
