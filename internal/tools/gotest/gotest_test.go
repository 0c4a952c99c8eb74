package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const passing = `package p

import "testing"

func TestPasses(t *testing.T) { t.Log("not printed") }

func TestSkips(t *testing.T) {
	t.Log("something else")
	t.Skip("needs a moon\nthat is full")
}

func TestSkipsWithin(t *testing.T) {
	t.Run("part", func(t *testing.T) { t.Skip("needs a sun") })
}

func TestSkipsSilently(t *testing.T) { t.SkipNow() }
`

// runOn runs go test on a module made of the given files and returns what is printed,
// the tests that were skipped, and how go test exits.
func runOn(t *testing.T, files map[string]string, args ...string) (string, []skip, error) {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.test/m\n\ngo 1.24\n"
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	p := &printer{out: &out, verbose: slices.Contains(args, "-v")}
	if err := p.read(stdout); err != nil {
		t.Fatal(err)
	}
	return out.String(), p.skipped, cmd.Wait()
}

func TestSkippedTestsAreReported(t *testing.T) {
	out, skipped, err := runOn(t, map[string]string{"p/p_test.go": passing, "q/q.go": "package q\n"}, "./...")
	if err != nil {
		t.Fatal(err, out)
	}
	want := []skip{
		{"example.test/m/p", "TestSkips", "needs a moon"},
		{"example.test/m/p", "TestSkipsWithin/part", "needs a sun"},
		{"example.test/m/p", "TestSkipsSilently", ""},
	}
	if !slices.Equal(skipped, want) {
		t.Errorf("skipped %q, want %q", skipped, want)
	}
	for _, text := range []string{"ok  \texample.test/m/p\t", "?   \texample.test/m/q\t[no test files]", "skipped TestSkips: needs a moon\n"} {
		if !strings.Contains(out, text) {
			t.Errorf("%q is not printed in:\n%s", text, out)
		}
	}
	for _, text := range []string{"not printed", "something else", "=== RUN", "PASS"} {
		if strings.Contains(out, text) {
			t.Errorf("%q is printed in:\n%s", text, out)
		}
	}
}

func TestFailuresArePrinted(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		want       []string
	}{
		"a test fails": {"p/p_test.go", "package p\n\nimport \"testing\"\n\nfunc TestFails(t *testing.T) {\n\tt.Run(\"part\", func(t *testing.T) { t.Error(\"wrong\") })\n}\n\nfunc TestPasses(t *testing.T) {}\n",
			[]string{"--- FAIL: TestFails (", "p_test.go:6: wrong", "FAIL\texample.test/m/p"}},
		"a test panics": {"p/p_test.go", "package p\n\nimport \"testing\"\n\nfunc TestPanics(t *testing.T) { panic(\"wrong\") }\n",
			[]string{"panic: wrong", "FAIL\texample.test/m/p"}},
		"a process exits": {"p/p_test.go", "package p\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(*testing.M) { fmt.Println(\"wrong\"); os.Exit(3) }\n",
			[]string{"wrong", "FAIL\texample.test/m/p"}},
		"a test does not compile": {"p/p_test.go", "package p\n\nvar _ int = \"wrong\"\n",
			[]string{`cannot use "wrong"`, "FAIL\texample.test/m/p [build failed]"}},
		"a package does not compile": {"p/p.go", "package p\n\nvar _ int = \"wrong\"\n",
			[]string{`cannot use "wrong"`}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{{"./..."}, {"-v", "./..."}} {
				files := map[string]string{c.file: c.text}
				if c.file == "p/p.go" {
					files["p/p_test.go"] = "package p\n"
				}
				out, _, err := runOn(t, files, args...)
				if err == nil {
					t.Fatal("go test passes")
				}
				for _, text := range c.want {
					if strings.Count(out, text) != 1 {
						t.Errorf("%v: %q is not printed once in:\n%s", args, text, out)
					}
				}
			}
		})
	}
}

func TestReasons(t *testing.T) {
	all, err := parseReasons("# a comment\n\ntest   needs a moon\n- not here: *\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		step, reason string
		accepted     bool
	}{
		{"race", "needs a moon", true},
		{"test", "needs a moon", false}, // the step that promises to run it
		{"race", "needs a moon and more", false},
		{"race", "", false},
		{"test", "not here: no root", true},
		{"", "not here: ", true},
	} {
		if err := all.check(c.step, []skip{{"p", "TestSkips", c.reason}}); (err == nil) != c.accepted {
			t.Errorf("%q in %q: %v", c.reason, c.step, err)
		}
	}
	if _, err := parseReasons("test\n"); err == nil {
		t.Error("a step without a reason is accepted")
	}
}

func TestRecord(t *testing.T) {
	all, err := parseReasons("test needs a moon\n")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "skipped")
	for _, s := range []skip{{"p", "TestA", "needs a moon"}, {"p", "TestB", "needs a sun"}} {
		if err := record(name, "race", []skip{s}, all); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if want := "race\tp\tTestA\tneeds a moon\ttest\nrace\tp\tTestB\tneeds a sun\t\n"; string(got) != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
}
