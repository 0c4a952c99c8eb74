package main

import (
	"os"
	"strings"
	"testing"
)

// The quickstart prints what the README says it prints.
func Example() {
	main()
	// Output: 10.0.36.192 [10.0.36.192] <nil>
}

// The program of README.md is this one.
func TestReadme(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), "\r\n", "\n")
	}
	_, program, _ := strings.Cut(read("main.go"), "\npackage main\n")
	if !strings.Contains(read("../../README.md"), "```go\npackage main\n"+program+"```\n") {
		t.Error("README.md has another program")
	}
}
