package main

import (
	"fmt"
	"os"
	"strings"
)

// readKnown returns the reasons of the survivors in a table: five columns that name the
// mutant and one with the reason, separated by tabs.
func readKnown(name string) (map[string]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	known := map[string]string{}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, '\t')
		if at < 0 || strings.Count(line, "\t") != 5 {
			return nil, fmt.Errorf("%s:%d: %d columns, want 6", name, i+1, strings.Count(line, "\t")+1)
		}
		kind, why, _ := strings.Cut(line[at+1:], ": ")
		switch kind {
		case "equivalent", "speed", "text", "outside":
		default:
			return nil, fmt.Errorf("%s:%d: the reason begins with %q, want equivalent, speed, text or outside", name, i+1, kind)
		}
		if why == "" {
			return nil, fmt.Errorf("%s:%d: no reason", name, i+1)
		}
		known[line[:at]] = line[at+1:]
	}
	return known, nil
}

// stale returns the entries of files in which their mutant is no more.
func stale(known map[string]string, mutants []*Mutant) []string {
	files, keys := map[string]bool{}, map[string]bool{}
	for _, m := range mutants {
		files[m.file], keys[m.key()] = true, true
	}
	var gone []string
	for key := range known {
		if file, _, _ := strings.Cut(key, "\t"); files[file] && !keys[key] {
			gone = append(gone, key)
		}
	}
	return gone
}
