package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os/exec"
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
	skipped       []string
	found, output string // the line that repeats a failure, and the end of what it printed
}

func newJob(words []string) *job {
	j := &job{hour: words[0] == "hour"}
	if j.hour {
		words = words[1:]
	}
	j.kind, j.dir = words[0], words[1]
	for _, word := range words[2:] {
		switch {
		case j.kind == "run" || strings.HasPrefix(word, "-"):
			j.args = append(j.args, word)
		case strings.HasPrefix(word, "Test"):
			j.tests = append(j.tests, word)
		default:
			j.unit = strings.TrimSpace(j.unit + " " + word)
		}
	}
	return j
}

// command returns the words of the job's command, which begin with its environment.
func (j *job) command(share time.Duration, seed uint64, short bool) []string {
	if j.kind == "run" {
		to := strings.NewReplacer("{for}", share.String(), "{for/4}", (share / 4).String(), "{seed}", strconv.FormatUint(seed, 10))
		return []string{"bash", "-c", to.Replace(strings.Join(j.args, " "))}
	}
	words := []string{"go", "test", "-count=1", "-v", "-timeout=" + (2 * (share + time.Hour)).String()}
	if short && j.kind != "full" {
		words = append(words, "-short")
	}
	if len(j.tests) > 0 {
		words = append(words, "-run=^("+strings.Join(j.tests, "|")+")$")
	}
	switch j.kind {
	case "assert":
		words = append(words, "-tags=invariants")
	case "random":
		words = slices.Concat([]string{fmt.Sprintf("IPALLOC_SEED=%d", seed), "IPALLOC_FOR=" + share.String()}, words)
	}
	return slices.Concat(words, []string{"."}, j.args)
}

var (
	ended = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)
	tried = regexp.MustCompile(`\btried: (\d+) (\w+)`)
	execs = regexp.MustCompile(`: elapsed: .*execs: (\d+)`)
	again = regexp.MustCompile(`to repeat: (IPALLOC_SEED=\d+)`)
)

// run runs the job, in its module and with the seed.
func (j *job) run(ctx context.Context, share time.Duration, seed uint64, short bool) {
	if j.kind == "run" {
		share = max(share, 5*time.Second)
	}
	words := j.command(share, seed, short)
	if strings.HasPrefix(j.dir, "bench/") { // the modules there are outside of the workspace
		words = append([]string{"GOWORK=off"}, words...)
	}
	cmd := exec.CommandContext(ctx, "env", words...)
	cmd.Dir = filepath.Join(top, j.dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return
	}
	text := string(out)
	ran := j.parse(text)
	for _, name := range j.tests {
		if err == nil && !ran[name] {
			err = fmt.Errorf("%s did not run", name)
		}
	}
	if err == nil {
		return
	}
	j.found = "cd " + j.dir + " && " + strings.NewReplacer("(", `'(`, ")$", `)$'`).Replace(strings.Join(words, " "))
	if m := again.FindStringSubmatch(text); m != nil {
		j.found = "cd " + j.dir + " && " + m[1] + " go test -count=1 -run='^" + j.tests[0] + "$'"
	}
	j.output = err.Error() + "\n" + text[max(0, len(text)-6000):]
}

// parse enters what a process printed, and returns the tests that ran.
func (j *job) parse(text string) map[string]bool {
	j.ran, j.tried = true, map[string]uint64{}
	ran := map[string]bool{}
	add := func(digits, unit string) {
		n, _ := strconv.ParseUint(digits, 10, 64)
		j.tried[unit] += n
	}
	for line := range strings.Lines(text) {
		if m := tried.FindStringSubmatch(line); m != nil && m[2] == "rounds" {
			add(m[1], cmp.Or(j.unit, m[2]))
		} else if m != nil {
			add(m[1], m[2])
		}
		if m := execs.FindStringSubmatch(line); m != nil {
			add(m[1], "inputs")
		}
		if m := ended.FindStringSubmatch(line); m != nil {
			ran[m[2]] = true
			if m[1] == "SKIP" {
				j.skipped = append(j.skipped, m[2])
			} else if !strings.Contains(m[2], "/") {
				j.passed++
			}
		}
	}
	return ran
}

// sum says what some jobs tried, what they found, with the lines that repeat it, and what they left out.
func sum(jobs ...*job) (tried, found, left string) {
	passed, commands, units := 0, 0, map[string]uint64{}
	var finds, leaves []string
	for _, j := range jobs {
		passed += j.passed
		if j.ran {
			commands++
		} else {
			leaves = append(leaves, "an hour's: "+strings.Join(slices.Concat([]string{j.dir}, j.tests, j.args), " "))
		}
		for unit, n := range j.tried {
			units[unit] += n
		}
		if j.found != "" {
			finds = append(finds, "`"+j.found+"`")
		}
		leaves = append(leaves, j.skipped...)
	}
	tried = fmt.Sprintf("%d tests in %d commands", passed, commands)
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		tried += fmt.Sprintf("; %d %s", units[unit], unit)
	}
	slices.Sort(leaves)
	return tried, cmp.Or(strings.Join(finds, ", "), "nothing"), cmp.Or(strings.Join(slices.Compact(leaves), "; "), "nothing")
}
