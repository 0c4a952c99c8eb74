// Command gotest runs "go test" and records the tests that are skipped.
//
//	gotest ARGUMENTS OF GO TEST
//
// It prints what "go test" prints, followed by each skipped test of a package and the
// reason that the test gives. Three environment variables, which the gate sets, make
// it stricter:
//
//	CI_SKIPS    a file that lists the accepted reasons; a test skipped for another
//	            reason makes gotest exit with 1
//	CI_STEP     the step of the gate that is running; CI_SKIPS names the step that runs
//	            the tests skipped for a reason, and that step accepts no such skip
//	CI_SKIPPED  a file to which a line is appended for each skipped test: step, package,
//	            test, reason and the step that runs it, separated by tabs
//
// It needs the standard library only, because it has to build with the oldest Go
// release of the root module: go build internal/tools/gotest/*.go, without the test.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var accepted reasons
	if name := os.Getenv("CI_SKIPS"); name != "" {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if accepted, err = parseReasons(string(text)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &printer{out: os.Stdout, verbose: slices.Contains(args, "-v")}
	err = errors.Join(p.read(stdout), cmd.Wait())
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = errors.New("failed") // go test has said why
	}
	step := os.Getenv("CI_STEP")
	if name := os.Getenv("CI_SKIPPED"); name != "" {
		err = errors.Join(err, record(name, step, p.skipped, accepted))
	}
	if accepted != nil {
		err = errors.Join(err, accepted.check(step, p.skipped))
	}
	return err
}

// record appends a line to the named file for each skipped test.
func record(name, step string, skipped []skip, accepted reasons) (err error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, s := range skipped {
		elsewhere := ""
		if r := accepted.find(step, s.reason); r != nil {
			elsewhere = r.step
		}
		if _, err := fmt.Fprintf(f, "%s\t%s\t%s\t%s\t%s\n", step, s.pkg, s.test, s.reason, elsewhere); err != nil {
			return err
		}
	}
	return nil
}

// event is a line of "go test -json"; see "go doc test2json".
type event struct {
	Action, Package, Test, Output string
}

// skip is a test that was skipped.
type skip struct{ pkg, test, reason string }

// printer turns events back into the text of "go test".
type printer struct {
	out      io.Writer
	verbose  bool // print the output of every test as it comes
	packages map[string]*progress
	skipped  []skip
}

// progress is what a package that is not finished has printed.
type progress struct {
	own     strings.Builder             // what belongs to no test
	tests   map[string]*strings.Builder // of tests that have not passed
	order   []string                    // of tests
	skipped []skip
}

func (p *printer) read(r io.Reader) error {
	p.packages = map[string]*progress{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) != 0 {
			var e event
			if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(p.out, "%s", line) // of the go command
			} else {
				p.event(e)
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func (p *printer) event(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(p.out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	g := p.packages[e.Package]
	if g == nil {
		g = &progress{tests: map[string]*strings.Builder{}}
		p.packages[e.Package] = g
	}
	switch e.Action {
	case "output":
		g.output(e)
		if p.verbose {
			fmt.Fprint(p.out, e.Output)
		}
	case "pass", "skip", "fail":
		if e.Test == "" {
			p.finish(e, g)
			return
		}
		if e.Action == "skip" {
			g.skipped = append(g.skipped, skip{e.Package, e.Test, reasonIn(g.tests[e.Test])})
		}
		if e.Action != "fail" {
			delete(g.tests, e.Test)
		}
	}
}

func (g *progress) output(e event) {
	if e.Test == "" {
		g.own.WriteString(e.Output)
		return
	}
	t := g.tests[e.Test]
	if t == nil {
		t = &strings.Builder{}
		g.tests[e.Test] = t
		g.order = append(g.order, e.Test)
	}
	if !strings.HasPrefix(e.Output, "=== ") {
		t.WriteString(e.Output)
	}
}

// finish prints what "go test" prints of a package: if it failed, the output of the
// tests that failed or did not end; else its last line.
func (p *printer) finish(e event, g *progress) {
	if !p.verbose {
		if e.Action == "fail" {
			for _, name := range g.order {
				if t := g.tests[name]; t != nil {
					fmt.Fprint(p.out, t.String())
				}
			}
		}
		for _, line := range strings.SplitAfter(g.own.String(), "\n") {
			if e.Action == "fail" || strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ") {
				fmt.Fprint(p.out, line)
			}
		}
	}
	for _, s := range g.skipped {
		fmt.Fprintf(p.out, "    skipped %s: %s\n", s.test, s.reason)
	}
	p.skipped = append(p.skipped, g.skipped...)
	delete(p.packages, e.Package)
}
