package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The picture shows the tables that stand beside it.
func TestPicture(t *testing.T) {
	t.Chdir("..")
	file := filepath.Join(t.TempDir(), "now.svg")
	if err := draw(file); err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if shown, err := os.ReadFile("pairs.svg"); err != nil || !bytes.Equal(shown, now) {
		t.Errorf("pairs.svg shows other tables (%v): run go run ./picture", err)
	}
}
