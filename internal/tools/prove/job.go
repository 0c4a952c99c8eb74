package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// job is a line of the table: a command, and what it came to.
type job struct {
	kind, dir   string
	tests, args []string
	unit        string // what a round is
	hour        bool   // left out of shorter runs

	ran           bool
	passed        int
	tried         map[string]uint64 // by unit
	skipped       []string          // reasons
	found, output string            // the line that repeats a failure, and the end of what it printed
}

func newJob(words []string) *job {
	j := &job{}
	if j.hour = words[0] == "hour"; j.hour {
		words = words[1:]
	}
	j.kind, j.dir = words[0], words[1]
	words = words[2:]
	switch j.kind {
	case "make":
		j.dir, j.args = ".", []string{j.dir}
	case "run":
		j.args = words
	case "random":
		j.tests, words = words[:1], words[1:]
		for strings.HasPrefix(words[0], "-") {
			j.args, words = append(j.args, words[0]), words[1:]
		}
		j.unit = strings.Join(words, " ")
	default:
		j.tests = words
	}
	return j
}

// shares reports whether the job takes a share of the time.
func (j *job) shares() bool { return j.kind == "random" || j.kind == "fuzz" || j.kind == "run" }

// command returns the words of the job's command, which begin with its environment.
func (j *job) command(share time.Duration, seed uint64, short bool) []string {
	pkg := []string{"-run=^(" + strings.Join(j.tests, "|") + ")$", "."}
	if len(j.tests) == 0 {
		pkg = []string{"."}
	}
	test := []string{"go", "test", "-count=1", "-v", "-timeout=" + (2 * (share + time.Hour)).String()}
	if short && j.kind != "full" {
		test = append(test, "-short")
	}
	switch j.kind {
	case "assert":
		test = append(test, "-tags=invariants")
	case "random":
		return slices.Concat([]string{fmt.Sprintf("IPALLOC_SEED=%d", seed), "IPALLOC_FOR=" + share.String()}, test, pkg, j.args)
	case "fuzz":
		return []string{"go", "test", "-run=^$", "-fuzz=^" + j.tests[0] + "$", "-fuzztime=" + share.String(), "-parallel=1", "."}
	case "run":
		to := strings.NewReplacer("{for}", share.String(), "{for/2}", (share / 2).String(), "{for/4}", (share / 4).String(),
			"{seconds}", strconv.Itoa(int(share.Seconds())), "{seed}", strconv.FormatUint(seed, 10))
		return append([]string{"go", "run", "."}, strings.Split(to.Replace(strings.Join(j.args, " ")), " ")...)
	case "make":
		return []string{"make", "-s", j.args[0]}
	}
	return append(test, pkg...)
}

var (
	ended  = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)
	logged = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)
	tried  = regexp.MustCompile(`\btried: (\d+) (\w+)`)
	execs  = regexp.MustCompile(`(?m)^fuzz: elapsed: .*execs: (\d+)`)
	again  = regexp.MustCompile(`to repeat: (IPALLOC_SEED=\d+)`)
)

// run runs the job, in its module and with the seed.
func (j *job) run(ctx context.Context, r *repo, share time.Duration, seed uint64, short bool) {
	words := j.command(max(share, map[string]time.Duration{"run": 20 * time.Second, "fuzz": 5 * time.Second}[j.kind]), seed, short)
	module := j.dir
	for !r.modules[module] {
		module = path.Dir(module)
	}
	if work, _ := os.ReadFile(filepath.Join(r.top, "go.work")); module != "." && !strings.Contains(string(work), "\t./"+module+"\n") {
		words = append([]string{"GOWORK=off"}, words...)
	}
	cmd := exec.CommandContext(ctx, "env", words...)
	cmd.Dir = filepath.Join(r.top, j.dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return
	}
	text := string(out)
	ran := j.parse(text)
	for _, name := range j.tests {
		if err == nil && j.kind != "fuzz" && !ran[name] {
			err = fmt.Errorf("%s did not run", name)
		}
	}
	// Up to Go 1.26 a fuzz target may report the end of its own time as a failure: https://go.dev/issue/75804.
	if j.kind == "fuzz" && strings.Contains(text, "context deadline exceeded") && !strings.Contains(text, "Failing input written") {
		err = nil
	}
	if err == nil {
		return
	}
	j.found = "cd " + j.dir + " && " + strings.NewReplacer("(", `'(`, ")$", `)$'`).Replace(strings.Join(words, " "))
	if m := again.FindStringSubmatch(text); m != nil {
		j.found = "cd " + j.dir + " && " + m[1] + " go test -count=1 -run='^" + j.tests[0] + "$'"
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	j.output = err.Error() + "\n" + strings.Join(lines[max(0, len(lines)-60):], "\n")
}

// parse enters what a process printed, and returns the tests that ran.
func (j *job) parse(text string) map[string]bool {
	j.ran, j.tried = true, map[string]uint64{}
	ran := map[string]bool{}
	last := ""
	for line := range strings.Lines(text) {
		if m := tried.FindStringSubmatch(line); m != nil {
			n, _ := strconv.ParseUint(m[1], 10, 64)
			unit := m[2]
			if unit == "rounds" {
				unit = cmp.Or(j.unit, unit)
			}
			j.tried[unit] += n
		}
		if m := ended.FindStringSubmatch(line); m != nil {
			if !strings.Contains(m[2], "/") {
				ran[m[2]] = true
			}
			if m[1] == "SKIP" {
				j.skipped = append(j.skipped, m[2]+": "+last)
			} else if !strings.Contains(m[2], "/") {
				j.passed++
			}
		}
		if m := logged.FindStringSubmatch(line); m != nil {
			last = m[1]
		}
	}
	if all := execs.FindAllStringSubmatch(text, -1); len(all) > 0 {
		j.tried["inputs"], _ = strconv.ParseUint(all[len(all)-1][1], 10, 64)
	}
	return ran
}

// amount says how much some jobs tried.
func amount(jobs []*job) string {
	sums := map[string]uint64{}
	for _, j := range jobs {
		for unit, n := range j.tried {
			sums[unit] += n
		}
	}
	out := []string{tests(jobs)}
	for _, unit := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, strconv.FormatUint(sums[unit], 10)+" "+unit)
	}
	return strings.Join(out, "; ")
}

func tests(jobs []*job) string {
	n, commands := 0, 0
	for _, j := range jobs {
		n += j.passed
		if j.ran {
			commands++
		}
	}
	return fmt.Sprintf("%d tests in %d commands", n, commands)
}

// found says what some jobs found, with the lines that repeat it.
func found(jobs []*job) string {
	var out []string
	for _, j := range jobs {
		if j.found != "" {
			out = append(out, "`"+j.found+"`")
		}
	}
	return cmp.Or(strings.Join(out, ", "), "nothing")
}

// left says what some jobs left out, and why.
func left(jobs []*job) string {
	var skipped, hours []string
	for _, j := range jobs {
		skipped = append(skipped, j.skipped...)
		if !j.ran {
			hours = append(hours, strings.TrimSpace(j.dir+" "+strings.Join(append(j.tests, j.args...), " ")))
		}
	}
	slices.Sort(skipped)
	out := strings.Join(slices.Compact(skipped), "; ")
	if len(hours) > 0 {
		out = strings.TrimPrefix(out+"; what takes a run of an hour: "+strings.Join(hours, ", "), "; ")
	}
	return cmp.Or(out, "nothing")
}

// cell is text for a cell of a table; its links would lead from another document.
func cell(text string) string {
	text = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(text, "$1")
	return strings.ReplaceAll(flat(text), "|", `\|`)
}
