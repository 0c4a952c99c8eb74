package ipalloc_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// This package declares every sentinel, at most 18 of them. Packages boltstore and store add
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
		case "ipset/boltstore/api.txt", "ipset/store/api.txt":
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

// A sentinel that the comment of something exported promises is named by a test of its package, or of the room that does its work.
func TestPromisedSentinels(t *testing.T) {
	comment := regexp.MustCompile(`(?m)((?:^//.*\n)+)(?:func (?:\([^)]*\) )?|type |var )[A-Z]`)
	sentinel := regexp.MustCompile(`\bErr[A-Z]\w+`)
	promised, tested := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		dir := filepath.ToSlash(filepath.Dir(path))
		if err != nil || filepath.Ext(path) != ".go" || regexp.MustCompile(`^(bench|cmd|examples|fuzz|internal)/|test$`).MatchString(dir) {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			for _, name := range sentinel.FindAllString(string(text), -1) {
				tested[strings.Replace(dir, "/internal/", "/", 1)+" "+name] = true
			}
		} else if !strings.Contains(dir, "internal/") {
			for _, c := range comment.FindAllStringSubmatch(string(text), -1) {
				for _, name := range sentinel.FindAllString(c[1], -1) {
					promised[dir+" "+name] = true
				}
			}
		}
		return nil
	})
	if err != nil || len(promised) < 100 {
		t.Errorf("%d promises, %v", len(promised), err)
	}
	for p := range promised {
		if !tested[p] {
			t.Errorf("no test names what a comment promises: %s", p)
		}
	}
}
