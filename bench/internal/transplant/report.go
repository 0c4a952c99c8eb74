package transplant

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// Run runs the suites, and compares their results with the table in README.md
// between the comments with the name transplants, or writes that table.
func Run(t *testing.T, suites []*Suite, write bool) {
	place := report.Place{File: "README.md", Name: "transplants"}
	results := make([]string, len(suites))
	whole := true
	for i, s := range suites {
		var tally Tally
		ran := t.Run(s.Adapter, func(t *testing.T) { tally = s.Run(t) })
		if tally.Cases > 0 {
			results[i] = row(s, tally)
		}
		whole = whole && ran && results[i] != ""
	}
	if !whole {
		return // a part of the suites, chosen by -run, or a failure that is reported
	}
	text := table(suites, results)
	if write {
		if err := place.Refresh(text); err != nil {
			t.Fatal(err)
		}
		return
	}
	before, err := os.ReadFile(place.File)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(before), text) {
		t.Errorf("README.md has other results; the test's flag -write puts these in:\n%s", text)
	}
}

// row returns the row of a suite in the table.
func row(s *Suite, v Tally) string {
	return fmt.Sprintf("| %s | %s %s | %d | %d | %d | %d |\n", s.Name, s.Module, v.Version, v.Functions, v.Cases, v.Different, v.Lines)
}

// table returns the results, what differs and what is left out.
func table(suites []*Suite, results []string) string {
	var b strings.Builder
	b.WriteString("| suite | module | functions | cases | differ | lines of the adapter |\n|---|---|--:|--:|--:|--:|\n")
	b.WriteString(strings.Join(results, ""))
	rows(&b, "\nIntended differences:\n\n| adapter | test | because |\n|---|---|---|\n", suites, func(s *Suite) map[string]string { return s.Differ })
	rows(&b, "\nLeft out:\n\n| adapter | function | because it |\n|---|---|---|\n", suites, func(s *Suite) map[string]string { return s.Cut })
	return strings.TrimSuffix(b.String(), "\n")
}

// rows writes a table with a row for the names that have the same reason, if there are any.
func rows(b *strings.Builder, head string, suites []*Suite, of func(*Suite) map[string]string) {
	for _, s := range suites {
		names := map[string][]string{}
		for name, reason := range of(s) {
			names[reason] = append(names[reason], "`"+name+"`")
		}
		var lines []string
		for reason, list := range names {
			slices.Sort(list)
			lines = append(lines, fmt.Sprintf("| %s | %s | %s |\n", s.Adapter, strings.Join(list, ", "), reason))
		}
		slices.Sort(lines)
		if len(lines) > 0 {
			b.WriteString(head)
			head = ""
		}
		b.WriteString(strings.Join(lines, ""))
	}
}
