package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// job is a command that is run: a part, or what several parts and promises have of one package.
type job struct {
	part
	module string
	binary string
	all    bool // every test of the package
	result result
}

// result is what a job, or a test of it, came to.
type result struct {
	took    time.Duration
	tried   map[string]uint64            // by unit
	by      map[string]map[string]uint64 // the same of each test
	tests   map[string]outcome
	failed  []failure
	skipped []string // reasons
	ran     bool
}

// outcome is what became of one test: passed, failed or skipped, and why.
type outcome struct{ status, reason string }

// failure is something found, and the line that repeats it.
type failure struct{ what, repeat string }

// name is how a job is called in what is printed.
func (j *job) name() string {
	switch {
	case j.kind == program:
		return j.dir + " " + strings.Join(j.args, " ")
	case j.kind == target:
		return "make " + strings.Join(j.args, " ")
	case j.kind != once:
		return j.dir + " " + j.tests[0]
	}
	return cmp.Or(j.dir+map[bool]string{true: " with assertions"}[j.tags != ""], ".")
}

// environment is what go needs in the module of the job.
func (j *job) environment(joined bool) []string {
	if joined {
		return nil
	}
	return []string{"GOWORK=off"}
}

// pkg is the package of the job, as the go command takes it in its module.
func (j *job) pkg() string {
	rel, err := filepath.Rel(j.module, j.dir)
	if err != nil || rel == "." {
		return "."
	}
	return "./" + filepath.ToSlash(rel)
}

// build compiles what the job runs into dir.
func (b *book) build(ctx context.Context, j *job, dir string) error {
	if j.kind == target {
		return nil
	}
	form := map[kind]string{program: "program", fuzzing: "fuzz"}[j.kind] // all other parts of a package share its tests
	j.binary = filepath.Join(dir, strings.NewReplacer("/", "_", ".", "_").Replace(j.dir)+"_"+form+j.tags)
	b.mu.Lock()
	compile, begun := b.builds[j.binary]
	if !begun {
		compile = sync.OnceValue(func() error { return b.compile(ctx, j) })
		b.builds[j.binary] = compile
	}
	b.mu.Unlock()
	return compile()
}

func (b *book) compile(ctx context.Context, j *job) error {
	args := []string{"test", "-c"}
	switch {
	case j.kind == program:
		args = []string{"build"}
	case j.kind == fuzzing:
		args = append(args, "-fuzz=.")
	}
	if j.tags != "" {
		args = append(args, "-tags="+j.tags)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", j.binary, j.pkg())...)
	cmd.Dir = filepath.Join(b.repo.top, j.module)
	cmd.Env = append(os.Environ(), j.environment(b.repo.joined[j.module])...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v\n%s", err, out)
	}
	return nil
}

// longest is how long one process works on random inputs; a longer share is divided.
const longest = 10 * time.Minute

// run runs the job for its share of the time.
func (b *book) runJob(ctx context.Context, j *job, share time.Duration) {
	began := time.Now()
	j.result = result{tried: map[string]uint64{}, by: map[string]map[string]uint64{}, tests: map[string]outcome{}, ran: true}
	for left := share; ctx.Err() == nil; left = share - time.Since(began) {
		b.attempt(ctx, j, min(left, longest))
		left = share - time.Since(began)
		if j.kind != rounds && j.kind != fuzzing || left < time.Second || len(j.result.failed) > 0 {
			break
		}
	}
	j.result.took = time.Since(began)
}

// attempt runs the job once, in one process.
func (b *book) attempt(ctx context.Context, j *job, share time.Duration) {
	seed := b.seedOf()
	share = max(share, time.Second).Round(100 * time.Millisecond)
	args, env := b.arguments(j, share, seed)
	cmd := exec.CommandContext(ctx, j.binary, args...)
	if j.kind == target {
		cmd = exec.CommandContext(ctx, "make", append([]string{"-s"}, j.args...)...)
	}
	cmd.Dir = filepath.Join(b.repo.top, j.dir)
	cmd.Env = append(append(os.Environ(), j.environment(b.repo.joined[j.module])...), env...) // tests run go themselves
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return
	}
	text := string(out)
	parse(j, text)
	if err != nil && j.kind == fuzzing && onlyDeadline(text) {
		err = nil
	}
	if j.kind == once && err == nil {
		for _, name := range j.tests {
			if j.result.tests[name].status == "" {
				err = fmt.Errorf("%s did not run", name)
			}
		}
	}
	if err != nil {
		j.result.failed = append(j.result.failed, failure{fmt.Sprintf("%s: %s\n%s", j.name(), cmp.Or(firstWord(text), err.Error()), tail(text, 60)), b.repeat(j, text, args, seed)})
	}
}

// short reports whether the tests of a job are run in short form.
func (b *book) short(j *job) bool { return !j.full && b.c.length < time.Hour }

// arguments returns those of the job's process, and its environment.
func (b *book) arguments(j *job, share time.Duration, seed uint64) (args, env []string) {
	switch j.kind {
	case once, rounds:
		args = []string{"-test.v", "-test.timeout=" + (share + time.Hour).String()}
		if !j.all {
			args = append(args, "-test.run=^("+strings.Join(j.tests, "|")+")$")
		}
		if b.short(j) {
			args = append(args, "-test.short")
		}
		if j.kind == rounds {
			env = []string{"IPALLOC_SEED=" + strconv.FormatUint(seed, 10), "IPALLOC_FOR=" + share.String()}
		}
		return append(args, j.args...), env
	case fuzzing:
		return []string{"-test.run=^$", "-test.fuzz=^" + j.tests[0] + "$", "-test.fuzztime=" + share.String(), "-test.parallel=1",
			"-test.fuzzcachedir=" + filepath.Join(b.cache, "fuzz", filepath.FromSlash(b.importPath(j)))}, nil
	}
	r := strings.NewReplacer("{for}", share.String(), "{for/2}", (share / 2).String(), "{for/4}", (share / 4).String(),
		"{seconds}", strconv.Itoa(int(share.Seconds())), "{seed}", strconv.FormatUint(seed, 10))
	for _, a := range j.args {
		args = append(args, r.Replace(a))
	}
	return args, nil
}

// importPath is that of the package of the job.
func (b *book) importPath(j *job) string {
	if j.dir == "." {
		return modulePath
	}
	return modulePath + "/" + j.dir
}

const modulePath = "github.com/ipalloc/ipalloc"

var (
	starts  = regexp.MustCompile(`^=== (?:RUN|NAME|CONT)\s+(\S+)`)
	ended   = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)
	logged  = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)
	tried   = regexp.MustCompile(`\btried: (\d+) (\w+)`)
	execs   = regexp.MustCompile(`(?m)^fuzz: elapsed: .*execs: (\d+)`)
	kept    = regexp.MustCompile(`(?m)^fuzz: elapsed: .*baseline coverage: (\d+)/`)
	again   = regexp.MustCompile(`to repeat: IPALLOC_SEED=(\d+)`)
	rerun   = regexp.MustCompile(`go test -run=(\S+)`)
	passing = map[string]string{"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
)

// parse enters what the output of a process says into the result of the job.
func parse(j *job, text string) {
	r := &j.result
	last, test := "", ""
	for line := range strings.Lines(text) {
		if m := tried.FindStringSubmatch(line); m != nil {
			n, _ := strconv.ParseUint(m[1], 10, 64)
			unit := m[2]
			if j.unit != "" && unit == "rounds" {
				unit = j.unit
			}
			r.tried[unit] += n
			if r.by[test] == nil {
				r.by[test] = map[string]uint64{}
			}
			r.by[test][unit] += n
		}
		switch m := ended.FindStringSubmatch(line); {
		case m != nil && !strings.Contains(m[2], "/"):
			o := outcome{status: passing[m[1]]}
			if m[1] == "SKIP" {
				o.reason = last
			}
			r.tests[m[2]] = o
		case m != nil && m[1] == "SKIP":
			r.skipped = append(r.skipped, m[2]+": "+last)
		}
		if m := logged.FindStringSubmatch(line); m != nil {
			last = m[1]
		} else if m := starts.FindStringSubmatch(line); m != nil {
			last = ""
			test, _, _ = strings.Cut(m[1], "/")
		}
	}
	if j.kind == fuzzing {
		r.tried[j.unit] += lastNumber(execs, text)
		r.tried["inputs kept from before"] = max(r.tried["inputs kept from before"], lastNumber(kept, text))
	}
}

// lastNumber is the number in the last match of re.
func lastNumber(re *regexp.Regexp, text string) (n uint64) {
	if all := re.FindAllStringSubmatch(text, -1); len(all) > 0 {
		n, _ = strconv.ParseUint(all[len(all)-1][1], 10, 64)
	}
	return n
}

// onlyDeadline reports that a fuzz target failed for nothing but the end of its time: https://go.dev/issue/75804.
func onlyDeadline(text string) bool {
	_, after, found := strings.Cut(text, "--- FAIL")
	lines := strings.Split(after, "\n")
	return found && len(lines) > 1 && strings.TrimSpace(lines[1]) == "context deadline exceeded" && !strings.Contains(text, "Failing input written")
}

// repeat returns the line that repeats a failure.
func (b *book) repeat(j *job, text string, args []string, seed uint64) string {
	line := strings.Join(append(j.environment(b.repo.joined[j.module]), ""), " ")
	if j.module != "." {
		line = "cd " + j.module + " && " + line
	}
	short := ""
	if b.short(j) {
		short = " -short"
	}
	tags := ""
	if j.tags != "" {
		tags = " -tags=" + j.tags
	}
	switch j.kind {
	case program:
		return line + "go run " + j.pkg() + " " + strings.Join(args, " ")
	case target:
		return "make " + strings.Join(j.args, " ")
	case fuzzing:
		if m := rerun.FindStringSubmatch(text); m != nil {
			return line + "go test -run=" + m[1] + " " + j.pkg()
		}
		return line + "go test -fuzz='^" + j.tests[0] + "$' " + j.pkg()
	case rounds:
		env := fmt.Sprintf("IPALLOC_SEED=%d ", seed)
		if m := again.FindStringSubmatch(text); m != nil {
			env = "IPALLOC_SEED=" + m[1] + " "
		}
		return line + env + "go test -count=1" + short + tags + " -run='^" + j.tests[0] + "$' " + j.pkg() + strings.Join(append([]string{""}, j.args...), " ")
	}
	var failed []string
	for name, o := range j.result.tests {
		if o.status == "failed" {
			failed = append(failed, name)
		}
	}
	slices.Sort(failed)
	if len(failed) == 0 {
		failed = j.tests
	}
	return line + "go test -count=1" + short + tags + " -run='^(" + strings.Join(failed, "|") + ")$' " + j.pkg()
}

// firstWord is the first thing that a test says before it fails, other than what it tried.
func firstWord(text string) string {
	for line := range strings.Lines(text) {
		m := logged.FindStringSubmatch(line)
		if m != nil && !tried.MatchString(line) && !again.MatchString(line) {
			return m[1]
		}
	}
	return ""
}

// tail returns the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// units lists the units of what was tried, in order.
func units(tried map[string]uint64) []string { return slices.Sorted(maps.Keys(tried)) }

var errFound = errors.New("something was found")
