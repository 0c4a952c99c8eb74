// Package transplant runs the test files of another module on an adapter over this one.
//
// At test time the files are read from the module cache and never copied into this repository: the
// go command puts them into the adapter's package by -overlay.
package transplant

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A Suite is a set of test files and the adapter that they run on.
type Suite struct {
	Name    string
	Adapter string   // the directory of its package, under the working directory
	Module  string   // the module of the files, in the version that the go.mod at hand requires
	Dir     string   // their directory in it
	Tests   []string // test files
	With    []string // other files of Dir that the adapter uses unchanged
	// Keep names, for files of With, the few functions, methods, types and variables that the adapter
	// uses. All other declarations except groups of constants or variables are left out.
	Keep map[string][]string
	// Beside has files of other directories of the module, by the directory, seen from the adapter's,
	// that they are laid into. In Keep they are named as here.
	Beside map[string][]string
	Args   []string // further arguments of go test
	// Import replaces packages that the files import.
	Import map[string]string
	// Cut names the omitted functions of Tests and With, and the omitted containers of specs by their
	// text, with the reason. They concern internals of the original.
	Cut map[string]string
	// Differ names the tests with an intended failure on the adapter, and the reason. A test of a
	// group (a subtest, a spec) is named with its group.
	Differ map[string]string
	// Read returns the outcomes in the output of go test; nil stands for the events of -json.
	Read func(t testing.TB, output []byte) []Outcome
}

// An Outcome is the result of one test that has no subtests.
type Outcome struct {
	Test   string
	Passed bool
	Log    string
}

// A Tally is a row of the table of suites.
type Tally struct {
	Version                     string // of the module
	Functions, Cases, Different int
	Lines                       int // of the adapter
}

// Run vets the adapter as go test does, because plain go vet ignores its build tag, and runs the
// suite. It fails t for a failing test that is not in Differ. It also fails t for an entry of
// Differ that passes or does not exist, and for an entry of Cut that does not exist.
func (s *Suite) Run(t *testing.T) Tally {
	t.Helper()
	mod := s.source(t)
	files := map[string]string{}
	cut := map[string]bool{}
	for _, name := range slices.Concat(s.With, s.Tests) {
		s.lay(t, filepath.Join(mod.Dir, s.Dir), name, s.Adapter, files, cut)
	}
	for below, names := range s.Beside {
		for _, name := range names {
			s.lay(t, mod.Dir, name, filepath.Join(s.Adapter, below), files, nil)
		}
	}
	for name := range s.Cut {
		if !cut[name] {
			t.Errorf("nothing to cut: %s is in none of the files", name)
		}
	}
	args := slices.Concat([]string{"test", "-json", "-tags", "transplant", "-count=1", "-overlay", overlay(t, files), "./" + s.Adapter}, s.Args)
	if work := flag.Lookup("test.bench").Value.String(); work != "" {
		args[1] = "-run=^$"
		out, err := exec.Command("go", append(args, "-bench", work)...).CombinedOutput()
		t.Skipf("%s%v", out, err)
	}
	run := exec.Command("go", args...)
	run.Env = append(os.Environ(), "TRANSPLANT_DIR="+filepath.Join(mod.Dir, s.Dir))
	output, err := run.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		if len(exit.Stderr) > 0 {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, exit.Stderr)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	read := s.Read
	if read == nil {
		read = events
	}
	tally, problems := s.judge(read(t, output))
	for _, p := range problems {
		t.Error(p)
	}
	if tally.Cases == 0 {
		t.Errorf("no test was run:\n%s", output)
	}
	tally.Version, tally.Lines = mod.Version, lines(t, s.Adapter)
	return tally
}

// judge counts the outcomes and returns where they are not those of the table of differences.
func (s *Suite) judge(outcomes []Outcome) (tally Tally, problems []string) {
	functions, met := map[string]bool{}, map[string]bool{}
	for _, o := range outcomes {
		tally.Cases++
		group, _, _ := strings.Cut(o.Test, "/")
		functions[group] = true
		reason, expected := s.Differ[o.Test]
		switch {
		case expected:
			met[o.Test] = true
			tally.Different++
			if o.Passed {
				problems = append(problems, o.Test+" passes, but the table says that it differs: "+reason)
			}
		case !o.Passed:
			problems = append(problems, o.Test+" fails, and the table does not have it:\n"+o.Log)
		}
	}
	for name := range s.Differ {
		if !met[name] {
			problems = append(problems, name+" is in the table of differences and was not run")
		}
	}
	tally.Functions = len(functions)
	return tally, problems
}

// lay writes a file of the suite, without what it cuts, where the go command finds it as the
// replacement of a file in the directory to.
func (s *Suite) lay(t testing.TB, from, name, to string, files map[string]string, cut map[string]bool) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(from, name))
	if err != nil {
		t.Fatal(err)
	}
	if source, err = s.edit(name, source, cut); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), path.Base(name))
	if err := os.WriteFile(file, source, 0o600); err != nil {
		t.Fatal(err)
	}
	target, err := filepath.Abs(filepath.Join(to, path.Base(name)))
	if err != nil {
		t.Fatal(err)
	}
	if os.Mkdir(to, 0o755) == nil { // for go vet, which works in the directory of a package
		t.Cleanup(func() { os.Remove(to) })
	}
	if _, err := os.Stat(target); err == nil {
		t.Fatalf("the adapter has a file %s of its own", target)
	}
	files[target] = file
}

// overlay writes the file that the go command's -overlay names.
func overlay(t testing.TB, files map[string]string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "overlay.json")
	data, err := json.Marshal(map[string]any{"Replace": files})
	if err == nil {
		err = os.WriteFile(name, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// module is what go mod download says of one.
type module struct{ Version, Dir string }

// source returns the module of the files, which the go command downloads.
func (s *Suite) source(t testing.TB) (m module) {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", s.Module).Output()
	if bad := json.Unmarshal(out, &m); err != nil || bad != nil || m.Dir == "" {
		t.Fatalf("download %s: %v\n%s", s.Module, err, out)
	}
	return m
}

// events reads the output of go test -json.
func events(t testing.TB, output []byte) (list []Outcome) {
	logs := map[string]*strings.Builder{}
	parent := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("go test says %q", lines.Bytes())
		}
		switch {
		case e.Test == "" && e.Action == "output" && strings.Contains(e.Output, "build failed"):
			t.Fatalf("%s", output)
		case e.Test == "":
		case e.Action == "run":
			logs[e.Test] = &strings.Builder{}
			if i := strings.LastIndexByte(e.Test, '/'); i >= 0 {
				parent[e.Test[:i]] = true
			}
		case e.Action == "output":
			logs[e.Test].WriteString(e.Output)
		case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
			list = append(list, Outcome{e.Test, e.Action == "pass", logs[e.Test].String()})
			delete(logs, e.Test)
		}
	}
	for name, log := range logs { // a panic or the end of the program left it unfinished
		list = append(list, Outcome{name, false, fmt.Sprintf("did not end\n%s", log)})
	}
	return slices.DeleteFunc(list, func(o Outcome) bool { return parent[o.Test] && (o.Passed || failedBelow(list, o.Test)) })
}

// failedBelow reports whether a subtest explains why the test of that name failed.
func failedBelow(list []Outcome, name string) bool {
	return slices.ContainsFunc(list, func(o Outcome) bool { return !o.Passed && strings.HasPrefix(o.Test, name+"/") })
}

// lines counts those of the adapter.
func lines(t testing.TB, dir string) (n int) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(data, []byte("\n"))
	}
	return n
}
