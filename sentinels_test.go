package ipalloc_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// This package declares every sentinel, at most 18 of them. Package boltstore alone adds
// some, each of which wraps one of these.
func TestSentinels(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^var (Err\w+) error$`)
	n := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "api.txt" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		names := declared.FindAllString(string(data), -1)
		switch filepath.ToSlash(path) {
		case "api.txt":
			n = len(names)
		case "ipset/boltstore/api.txt":
		default:
			if len(names) > 0 {
				t.Errorf("%s: %s", path, strings.Join(names, ", "))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 || n > 18 {
		t.Errorf("%d sentinels, at most 18", n)
	}
}
