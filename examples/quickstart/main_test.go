package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The quickstart prints what the README says it prints.
func Example() {
	main()
	// Output: printer 10.0.0.2, laptop 10.0.0.3, printer 10.0.0.2, released [10.0.0.2] <nil>
}

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

// With the line of README.md in place of store.NewMemory, and its import, the addresses are in a file: a second
// run gives the laptop, which the first one left holding its address, the same one.
func TestFile(t *testing.T) {
	readme := read(t, "../../README.md")
	_, line, ok := strings.Cut(readme, "`db, err := boltstore.Open(")
	line, _, ok2 := strings.Cut(line, "`")
	if !ok || !ok2 || !strings.Contains(readme, `"github.com/ipalloc/ipalloc/ipset/boltstore"`) {
		t.Fatal("README.md does not say how to use a file")
	}
	dir := t.TempDir()
	program := strings.NewReplacer(
		"db := store.NewMemory()", "db, err := boltstore.Open("+line,
		`"github.com/ipalloc/ipalloc/ipset/store"`, `"github.com/ipalloc/ipalloc/ipset/boltstore"`,
	).Replace(read(t, "main.go"))
	program = strings.Replace(program, "fmt.Println(", "fmt.Println(engine.IPsByHandle(ctx, \"laptop\"))\n\tfmt.Println(", 1)
	here, err := filepath.Abs("main.go")
	if err != nil {
		t.Fatal(err)
	}
	changed, overlay, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "quickstart.exe")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{here: changed}})
	if err == nil {
		err = os.WriteFile(overlay, list, 0o600)
	}
	if err == nil {
		err = os.WriteFile(changed, []byte(program), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for run, want := range []string{"laptop 10.0.0.3, printer 10.0.0.2", "laptop 10.0.0.3, printer 10.0.0.2"} {
		cmd := exec.Command(binary)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("run %d: %v: %s", run, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "lan.db")); err != nil {
		t.Error(err)
	}
}
