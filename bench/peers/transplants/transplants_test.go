package transplants

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/bench/internal/report"
	"github.com/ipalloc/ipalloc/bench/internal/transplant"
)

var write = flag.Bool("write", false, "write the results into README.md")

// TestTransplants runs the suites on the adapters. README.md shows what it finds.
func TestTransplants(t *testing.T) {
	tallies := make([]transplant.Tally, len(suites))
	whole := true
	for i, s := range suites {
		ran := t.Run(s.Adapter, func(t *testing.T) { tallies[i] = s.Run(t) })
		whole = whole && ran && tallies[i].Cases > 0
	}
	if !whole {
		return // a part of the suites, chosen by -run, or a failure that is reported
	}
	place := report.Place{File: "README.md", Name: "transplants"}
	before, err := os.ReadFile(place.File)
	if err != nil {
		t.Fatal(err)
	}
	text := table(tallies)
	if *write {
		if err := place.Refresh(text); err != nil {
			t.Fatal(err)
		}
	} else if !strings.Contains(string(before), text) {
		t.Errorf("README.md has other results; go test ./transplants -write puts these in:\n%s", text)
	}
}

// table returns the results, what differs and what is left out.
func table(tallies []transplant.Tally) string {
	var b strings.Builder
	b.WriteString("| suite | module | functions | cases | differ | lines of the adapter |\n|---|---|--:|--:|--:|--:|\n")
	for i, s := range suites {
		v := tallies[i]
		fmt.Fprintf(&b, "| %s | %s %s | %d | %d | %d | %d |\n", s.Name, s.Module, v.Version, v.Functions, v.Cases, v.Different, v.Lines)
	}
	b.WriteString("\nDiffers on purpose:\n\n| adapter | test | because |\n|---|---|---|\n")
	rows(&b, func(s *transplant.Suite) map[string]string { return s.Differ })
	b.WriteString("\nLeft out:\n\n| adapter | function | because it |\n|---|---|---|\n")
	rows(&b, func(s *transplant.Suite) map[string]string { return s.Cut })
	return strings.TrimSuffix(b.String(), "\n")
}

// rows writes the names that have the same reason in a row.
func rows(b *strings.Builder, of func(*transplant.Suite) map[string]string) {
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
		b.WriteString(strings.Join(lines, ""))
	}
}
