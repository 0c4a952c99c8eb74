package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// program is the tests of a package.
type program struct {
	pkg, dir string
	binary   string
	tests    []*test
}

// test is a test that passes when no mutant is on.
type test struct {
	name    string
	took    time.Duration
	reaches map[int]bool
}

// runner builds and runs test programs.
type runner struct {
	ctx           context.Context // ends all programs
	root, scratch string
	env           []string
	overlay       string
	slow          time.Duration // tests that take longer are left out
	log           io.Writer
}

// programs returns the packages that patterns match whose tests contain one of the
// mutated packages.
func (r *runner) programs(patterns []string, mutated map[string]bool) ([]*program, error) {
	cmd := exec.Command("go", append([]string{"list", "-test", "-json=ImportPath,ForTest,Deps,Dir"}, patterns...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = r.root, r.env, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var found []*program
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, ForTest, Dir string
			Deps                     []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		name, ok := strings.CutSuffix(p.ImportPath, ".test")
		if ok && slices.ContainsFunc(p.Deps, func(dep string) bool {
			dep, _, _ = strings.Cut(dep, " ")
			return mutated[dep]
		}) {
			found = append(found, &program{pkg: name, dir: p.Dir})
		}
	}
}

// build builds the tests of p with all mutants in them.
func (r *runner) build(p *program, n int) error {
	p.binary = filepath.Join(r.scratch, fmt.Sprintf("%d.test", n))
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", r.overlay, "-o", p.binary, p.pkg)
	cmd.Dir, cmd.Env = r.root, r.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", p.pkg, err, out)
	}
	return nil
}

// record runs each test of p once with every mutant off, and keeps those that pass.
func (r *runner) record(p *program) error {
	if _, err := os.Stat(p.binary); errors.Is(err, os.ErrNotExist) {
		return nil // no test files
	}
	list, err := r.run(p, r.slow, nil, "-test.list", ".")
	if err != nil {
		return fmt.Errorf("list the tests of %s: %w\n%s", p.pkg, err, list)
	}
	for _, name := range strings.Fields(string(list)) {
		if !strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "Example") && !strings.HasPrefix(name, "Fuzz") {
			continue // a benchmark
		}
		reached := filepath.Join(r.scratch, "reached")
		os.Remove(reached)
		start := time.Now()
		out, err := r.run(p, r.slow, []string{"MUTANT_RECORD=" + reached}, "-test.run", "^"+name+"$")
		if r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(r.log, "left out: %s %s: %v: %s\n", p.pkg, name, err, lastLine(out))
			continue
		}
		t := &test{name: name, took: time.Since(start), reaches: map[int]bool{}}
		text, _ := os.ReadFile(reached)
		for _, s := range strings.Fields(string(text)) {
			if id, err := strconv.Atoi(s); err == nil {
				t.reaches[id] = true
			}
		}
		if len(t.reaches) != 0 {
			p.tests = append(p.tests, t)
		}
	}
	return nil
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

var errTimeout = errors.New("time is up")

// run runs the test program of p and returns what it prints.
func (r *runner) run(p *program, limit time.Duration, env []string, args ...string) ([]byte, error) {
	tmp, err := os.MkdirTemp(r.scratch, "tmp") // what a killed test leaves goes with it
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.binary, append(args, "-test.short", "-test.failfast", "-test.timeout=0")...)
	cmd.Dir = p.dir
	cmd.Env = slices.Concat(r.env, env, []string{"TMPDIR=" + tmp})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = errTimeout
	}
	return out, err
}

// group is tests that run in one process.
type group struct {
	p     *program
	names []string
	took  time.Duration
	own   bool
}

// groups returns the tests that reach m: its own package first, quick ones first.
func groups(m *Mutant, programs []*program) []group {
	const quick = 300 * time.Millisecond
	var all []group
	for _, p := range programs {
		own := p.pkg == m.pkg
		first := group{p: p, own: own}
		for _, t := range p.tests {
			switch {
			case !t.reaches[m.id]:
			case t.took <= quick:
				first.names = append(first.names, t.name)
				first.took += t.took
			default:
				all = append(all, group{p, []string{t.name}, t.took, own})
			}
		}
		if len(first.names) != 0 {
			all = append(all, first)
		}
	}
	slices.SortFunc(all, func(a, b group) int {
		if a.own != b.own {
			if a.own {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.took, b.took)
	})
	return all
}

// try runs the tests that reach m with m on. It returns what killed it, "" if it lives.
func (r *runner) try(m *Mutant, programs []*program) (killer string, tests int) {
	for _, g := range groups(m, programs) {
		tests += len(g.names)
		limit := 10*time.Second + 5*g.took
		out, err := r.run(g.p, limit, []string{"MUTANT=" + strconv.Itoa(m.id)},
			"-test.run", "^("+strings.Join(g.names, "|")+")$")
		switch {
		case errors.Is(err, errTimeout):
			return "endless", tests
		case err != nil:
			if name := failed.FindSubmatch(out); name != nil {
				return string(name[1]), tests
			}
			return lastLine(out), tests
		}
	}
	return "", tests
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
