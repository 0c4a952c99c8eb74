package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// standard is what the sources below import.
type standard struct{}

func (standard) Import(path string) (*types.Package, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, map[string]string{
		"context": "package context; type Context interface{ Err() error }",
		"fmt":     "package fmt; func Errorf(string, ...any) error { return nil }",
	}[path], 0)
	if err != nil {
		return nil, err
	}
	return new(types.Config).Check(path, fset, []*ast.File{f}, nil)
}

// mutantsOf returns the mutants of a file.
func mutantsOf(t *testing.T, src string) []*Mutant {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "x.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: standard{}}
	pkg, err := conf.Check("x", fset, []*ast.File{f}, info)
	if err != nil {
		t.Fatal(err)
	}
	return findFile(fset, info, pkg, f, []byte(src), "x.go")
}

// Each operator finds its places, and no more.
func TestFind(t *testing.T) {
	const head = "package x\nimport (\"context\"; \"fmt\")\ntype named struct{ err error }; const limit = 4; var ch chan int; func with(context.Context, int) error { return fmt.Errorf(\"x\") }\nvar a, b int; var p, q bool; var s string; func call() {}; func fails() error { p := p; _ = p; call(); return nil }\n"
	for _, tt := range []struct {
		src  string
		want []string // operator and line after
	}{
		{"func f() int {\nif a < b {\nreturn a\n}\nreturn b\n}", []string{"guard if false {", "boundary if a <= b {"}},
		{"func f() bool {\nreturn a == b\n}", []string{"negate return a != b"}},
		{"func f() bool {\nreturn p && q\n}", []string{"logic return (p) || (q)", "operand return p", "operand return q"}},
		{"func f() {\nif !p {\ncall()\n}\n}", []string{"body return {", "negate if p {", "remove"}},
		{"func f() int {\nreturn a + 1\n}", []string{"arithmetic return a - 1", "const return a + 0"}},
		{"func f() string {\nreturn s + s\n}", nil},
		{"func f() int {\nreturn a << b\n}", []string{"arithmetic return a >> b"}},
		{"func f() int {\nreturn 1 << b\n}", []string{"const return 0 << b"}},
		{"func f() uint8 {\nreturn 255\n}", []string{"const return 254"}},
		{"func f() bool {\nreturn true\n}", []string{"bool return false"}},
		{"func f() (int, error) {\nerr := fails()\nreturn 7, err\n}", []string{"errnil return 7, nil"}},
		{"func f() error {\nreturn fails()\n}", []string{"errnil return nil"}},
		{"func f() error {\na += b\nreturn nil\n}", []string{"body return nil", "remove", "arithmetic a -= b"}},
		{"func f() []int {\nconst c = 4\nvar x [3]int\nx = x\nreturn make([]int, 3)\n}", []string{"remove"}},
		{"func f() {\npanic(1 + a)\n}", []string{"body return"}},
		{"func f() {\na = b\ncall()\n}", []string{"body return", "remove", "swap call(); a = b", "remove"}},
		{"func f(ctx context.Context) {\nwith(ctx, a)\n}", []string{"body return", "remove", "context with(context.Background(), a)"}},
		{"func f() int {\nfor a < b {\ncall()\n}\nreturn b\n}", []string{"once for a < b { ...; break }", "boundary for a <= b {", "remove"}},
		{"func f() {\nselect {\ncase <-ch:\n}\n}", []string{"body return", "never case <-nil:"}},
		{"func f() error {\nreturn fmt.Errorf(\"x: %w\", fails())\n}", []string{"errnil return nil", "unwrap return fmt.Errorf(\"x: %v\", fails())"}},
		{"func f(err error) named {\nreturn named{err: err}\n}", []string{"zero return named{err: (zero)}"}},
		{"func f() int {\nreturn limit\n}", []string{"const return 3"}},
		{"func step(n int) {}\nfunc f() {\nstep(a + 1)\n}", []string{"body return"}},
	} {
		var got []string
		for _, m := range mutantsOf(t, head+tt.src) {
			if m.fn == "f" {
				got = append(got, strings.TrimSpace(m.op+" "+m.after))
			}
		}
		for i := range got { // the whole first line is in the way for body
			if strings.HasPrefix(got[i], "body return") && i < len(tt.want) && strings.HasPrefix(tt.want[i], "body return") {
				got[i] = tt.want[i]
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s\nhas\n%q, want\n%q", tt.src, got, tt.want)
		}
	}
}

// Two like places of a function have different keys.
func TestKeys(t *testing.T) {
	ms := mutantsOf(t, "package x\nvar a int\nfunc f() {\na++\na++\n}")
	keys := map[string]bool{}
	for _, m := range ms {
		if keys[m.key()] {
			t.Errorf("two mutants have the key %q", m.key())
		}
		keys[m.key()] = true
	}
	if len(keys) != 3 {
		t.Errorf("%d mutants, want 3", len(keys))
	}
}

const toy = `// Package toy is mutated.
package toy

// Clamp has a boundary that makes no difference.
func Clamp(n, max int) int {
	if n > max {
		return max
	}
	return n
}

func Sum(n int) (sum int) {
	for n != 0 {
		sum += n
		n--
	}
	return sum
}

func Unused() bool {
	return true
}
`

const toyTest = `package toy

import "testing"

func TestClamp(t *testing.T) {
	if Clamp(5, 3) != 3 || Clamp(2, 3) != 2 {
		t.Error("wrong")
	}
}

func TestSum(t *testing.T) {
	if Sum(3) != 6 {
		t.Error("wrong")
	}
}

func TestFails(t *testing.T) {
	t.Error(Clamp(1, 2))
}
`

// All mutants of a package are tried, each against the tests that reach it and pass
// without it; the sources stay as they are, and known survivors are passed over.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.org/toy\n\ngo 1.24\n")
	write("toy.go", toy)
	write("toy_test.go", toyTest)
	write("known", "# none\n")
	t.Setenv("GOFLAGS", "")
	o := options{
		root: dir, pkg: ".", tests: ".", known: filepath.Join(dir, "known"),
		seed: 1, slow: time.Minute,
	}
	var log bytes.Buffer
	if err := run(t.Context(), o, &log); err == nil || err.Error() != "2 survivors without a reason" {
		t.Errorf("run fails with %v, want 2 survivors", err)
	}
	for _, want := range []string{
		`left out: example.org/toy TestFails`,
		`LIVES  toy.go:6, 1 tests pass; for the table:\ntoy.go\tClamp\tboundary\t`,
		`LIVES  toy.go:21, 0 tests pass; for the table:\ntoy.go\tUnused\tbool\t`,
		`killed toy.go:6 guard by TestClamp`,
		`killed toy.go:14 (remove|arithmetic) by TestSum`,
		`killed toy.go:13 once by TestSum`,
		`killed toy.go:15 remove by (mutant: too many steps|endless)`,
		`all +9 +\d +\d +1 +1`,
	} {
		if !regexp.MustCompile("(?m)^" + want).Match(log.Bytes()) {
			t.Errorf("no line %q in\n%s", want, &log)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "toy.go")); err != nil || string(text) != toy {
		t.Errorf("the source has changed (%v):\n%s", err, text)
	}

	known := ""
	for _, line := range regexp.MustCompile(`(?m)^(.*)\t\?$`).FindAllStringSubmatch(log.String(), -1) {
		known += line[1] + "\tequivalent: of a toy\n"
	}
	write("known", known+strings.Replace(known, "n > max", "n > least", 1))
	log.Reset()
	if err := run(t.Context(), o, &log); err != nil {
		t.Errorf("run fails with %v on known survivors", err)
	}
	if !strings.Contains(log.String(), "no longer there: toy.go\tClamp\tboundary\tif n > least {") {
		t.Errorf("an entry whose mutant is gone is not named:\n%s", &log)
	}
}

// A table of survivors has six columns and a reason of a known kind.
func TestReadKnown(t *testing.T) {
	name := filepath.Join(t.TempDir(), "known")
	for _, tt := range []struct{ line, err string }{
		{"f\tg\top\tb\ta\tspeed: twice as slow", ""},
		{"f\tg\top\tb\tspeed: twice as slow", "5 columns"},
		{"f\tg\top\tb\ta\t?", `begins with "?"`},
		{"f\tg\top\tb\ta\tspeed", "no reason"},
	} {
		if err := os.WriteFile(name, []byte("# comment\n\n"+tt.line+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		known, err := readKnown(name)
		switch {
		case tt.err == "" && (err != nil || known["f\tg\top\tb\ta"] != "speed: twice as slow"):
			t.Errorf("%q: %v, %v", tt.line, known, err)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%q: error %v, want %q", tt.line, err, tt.err)
		}
	}
}

// Every known survivor is in a file that exists and has its line: a row of a file that moved would explain nothing.
func TestKnownSurvivorsAreInTheCode(t *testing.T) {
	known, err := readKnown("survivors.txt")
	if err != nil {
		t.Fatal(err)
	}
	for key := range known {
		row := strings.Split(key, "\t")
		src, err := os.ReadFile(filepath.Join("../../..", row[0]))
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(strings.Join(strings.Fields(string(src)), " "), strings.Join(strings.Fields(row[3]), " ")) {
			t.Errorf("%s has no line %q", row[0], row[3])
		}
	}
}
