package main

import (
	"flag"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rows returns what the first column of the table below a heading of README.md names.
func rows(t *testing.T, heading, name string) (names []string) {
	t.Helper()
	data, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(data), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("README.md has no heading %s", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "| "+name+" |"):
			inside = true
		case !strings.HasPrefix(line, "|"):
			inside = false
		case inside && !strings.HasPrefix(line, "|---"):
			column, _, _ := strings.Cut(line[2:], " |")
			for _, m := range regexp.MustCompile("`-?([^` ]+)[^`]*`").FindAllStringSubmatch(column, -1) {
				names = append(names, m[1])
			}
		}
	}
	return names
}

// Every flag has a row in README.md and a test, and there are no others.
func TestEveryFlagInTheReadme(t *testing.T) {
	inTable := rows(t, "Flags", "flag")
	slices.Sort(inTable)
	var flags []string
	(&options{}).flags(io.Discard).VisitAll(func(f *flag.Flag) { flags = append(flags, f.Name) })
	if !slices.Equal(inTable, flags) {
		t.Errorf("README.md has\n%q\nthe program has\n%q", inTable, flags)
	}
	if tested := slices.Sorted(maps.Keys(flagTests)); !slices.Equal(tested, flags) {
		t.Errorf("tested are\n%q\nthe program has\n%q", tested, flags)
	}
	for _, name := range flags {
		if test := flagTests[name]; test != nil {
			t.Run(name, func(t *testing.T) { test(newAPIServer(t)) })
		}
	}
}

// Every field of a ClusterCIDR has a row in README.md and a test, and there are no
// others.
func TestEveryFieldInTheReadme(t *testing.T) {
	inTable := rows(t, "ClusterCIDRs", "field")
	slices.Sort(inTable)
	if tested := slices.Sorted(maps.Keys(fieldTests)); !slices.Equal(tested, inTable) {
		t.Errorf("tested are\n%q\nREADME.md has\n%q", tested, inTable)
	}
	for name, test := range fieldTests {
		t.Run(name, test)
	}
}
