package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// The program of README.md is this one.
func TestReadme(t *testing.T) {
	_, program, _ := strings.Cut(read(t, "main.go"), "\npackage main\n")
	if !strings.Contains(read(t, "../../README.md"), "```go\npackage main\n"+program+"```\n") {
		t.Error("README.md has another program")
	}
}

// Each run prints what README.md says, because the file remembers the laptop. A file that is no store is refused.
func TestRuns(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "quickstart.exe")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, want, _ := strings.Cut(read(t, "../../README.md"), "\nIt prints `")
	want, _, _ = strings.Cut(want, "`")
	run := func() (string, error) {
		cmd := exec.Command(binary)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	for range 2 {
		if out, err := run(); err != nil || out != want {
			t.Errorf("%v: %q, README.md says %q", err, out, want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "lan.db"), []byte("a text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run(); err == nil || !strings.Contains(out, "not a store") || strings.Contains(out, "panic") {
		t.Errorf("a text file: %v: %s", err, out)
	}
}
