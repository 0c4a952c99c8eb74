// Command mutate changes the code in small ways and reports the changes that no test
// notices.
//
//	mutate [-n N] [-seed S] [-pkg PATTERNS] [-tests PATTERNS] [-match REGEXP]
//
// A change is a mutant. It negates a comparison or moves it by one, swaps && and ||, drops an operand, or makes a condition never hold. It
// leaves out a statement or a field, swaps two statements, changes a constant by one, or changes an arithmetic operator. It returns nil for
// an error, or an error unwrapped. It makes a context never end, a channel of a select never ready, or a loop end after its first round. The
// program draws N mutants at random from the packages of -pkg. It compiles all into one copy of the code, an overlay of the go command in a
// temporary directory; the working tree does not change. The environment variable MUTANT switches a mutant on. Each test of the packages of
// -tests with mutated code runs once to record the mutants that it reaches. Then each mutant runs against the tests that reach it, in short
// form, until one fails. A process whose mutant loops is stopped.
//
// A survivor is a gap in the tests, or it changes nothing that a test could see. File survivors.txt lists the second kind with its reason.
// The reason is "equivalent" for the same results, "speed" for the same results at another cost, and "text" for the wording of a message. It
// is "outside" for a change that only a test of another step of the gate sees. The program skips these, names entries without a mutant, and
// exits with 1 if another mutant survives.
//
// No other tool runs a sample of mutants with only the tests that reach them. The tool gremlins (github.com/go-gremlins/gremlins) builds the
// tests again for each mutant. That takes ten seconds a mutant here, and days for the packages that others import. It runs only the mutated
// package's own tests, and most packages below ipset/internal have none. Its time limit depends on the length of a first run, and so on the
// build cache (its issues 144 and 267). The tool go-mutants (github.com/P4suta/go-mutants) also compiles all mutants at once, and was new
// when this was written; it chooses among packages rather than tests. The tools go-mutesting (github.com/zimmski/go-mutesting and its
// successors) and ooze build once for each mutant, and run a command of the caller for each.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.IntVar(&o.n, "n", 100, "how many mutants to draw; 0 for all")
	flag.Uint64Var(&o.seed, "seed", 0, "draw the mutants of this seed; 0 for a new one")
	flag.StringVar(&o.pkg, "pkg", "", "the packages to mutate; empty for those of every module of go.work")
	flag.StringVar(&o.tests, "tests", "", "the packages whose tests to run; empty for those of every module of go.work")
	flag.StringVar(&o.match, "match", "", "mutate only what matches FILE:LINE or FILE, FUNCTION, OPERATOR, BEFORE, AFTER with tabs between, known survivors too")
	flag.StringVar(&o.root, "root", "../..", "the root of the repository")
	flag.StringVar(&o.known, "known", "mutate/survivors.txt", "the table of known survivors")
	flag.DurationVar(&o.slow, "slow", 20*time.Second, "leave out tests that take longer")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

type options struct {
	n                 int
	seed              uint64
	root, known       string
	pkg, tests, match string
	slow              time.Duration
}

func run(ctx context.Context, o options, w io.Writer) error {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	r := &runner{ctx: ctx, root: root, env: environment(), slow: o.slow, log: w}
	module, err := r.output("go", "list", "-f", "{{.Module.Path}}", ".")
	if err != nil {
		return err
	}
	modules, err := r.output("go", "list", "-m", "-f", "{{.Dir}}/...")
	if err != nil {
		return err
	}
	o.pkg, o.tests = cmp.Or(o.pkg, modules), cmp.Or(o.tests, modules)
	known, err := readKnown(o.known)
	if err != nil {
		return err
	}
	all, err := find(root, r.env, strings.Fields(o.pkg))
	if err != nil {
		return err
	}
	for _, key := range stale(known, all) {
		fmt.Fprintf(w, "no longer there: %s\n", key)
	}
	mutants, err := o.choose(all, known, w)
	if err != nil || len(mutants) == 0 {
		return err
	}
	if r.scratch, err = os.MkdirTemp("", "mutate"); err != nil {
		return err
	}
	defer os.RemoveAll(r.scratch)
	if r.overlay, err = instrument(root, module, r.scratch, mutants); err != nil {
		return err
	}
	programs, err := r.prepare(strings.Fields(o.tests), mutants)
	if err != nil {
		return err
	}
	return o.report(r, mutants, programs, w)
}

// environment returns that of the tests: they run in the workspace, and build no program.
func environment() []string {
	env := os.Environ()
	env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "GOWORK=") })
	for _, name := range []string{"IPALLOC_ETCD", "IPALLOC_KUBE", "IPALLOC_POSTGRES"} {
		if os.Getenv(name) == "" {
			env = append(env, name+"=skip")
		}
	}
	return env
}

func (r *runner) output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = r.root, r.env, os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// choose draws the mutants, in turn from each operator and at most one of a line, because
// uniform chance would draw mostly conditions, which most tests see.
func (o *options) choose(all []*Mutant, known map[string]string, w io.Writer) ([]*Mutant, error) {
	match, err := regexp.Compile(o.match)
	if err != nil {
		return nil, err
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1e9)
	}
	rnd := rand.New(rand.NewPCG(o.seed, 0))
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	byOp, lines := map[string][]*Mutant{}, map[string]bool{}
	total := 0
	for _, m := range all {
		at := fmt.Sprintf("%s:%d", m.file, m.line)
		if o.match == "" && (known[m.key()] != "" || o.n != 0 && lines[at]) || !match.MatchString(at) && !match.MatchString(m.key()) {
			continue
		}
		lines[at] = true
		op, _, _ := strings.Cut(m.op, "#")
		byOp[op] = append(byOp[op], m)
		total++
	}
	var chosen []*Mutant
	for len(chosen) < total && (o.n == 0 || len(chosen) < o.n) {
		for _, op := range slices.Sorted(maps.Keys(byOp)) {
			if len(byOp[op]) != 0 && (o.n == 0 || len(chosen) < o.n) {
				chosen = append(chosen, byOp[op][0])
				byOp[op] = byOp[op][1:]
			}
		}
	}
	for i, m := range chosen {
		m.id = i
	}
	fmt.Fprintf(w, "%d of %d mutants, seed %d\n", len(chosen), len(all), o.seed)
	return chosen, nil
}

// prepare builds the test programs and records what each test reaches.
func (r *runner) prepare(patterns []string, mutants []*Mutant) ([]*program, error) {
	mutated := map[string]bool{}
	for _, m := range mutants {
		mutated[m.pkg] = true
	}
	programs, err := r.programs(patterns, mutated)
	if err != nil {
		return nil, err
	}
	for i, p := range programs {
		start := time.Now()
		if err := r.build(p, i); err != nil {
			return nil, err
		}
		built := time.Since(start)
		if err := r.record(p); err != nil {
			return nil, err
		}
		fmt.Fprintf(r.log, "%d/%d %s: %d tests, built in %.1f s, run in %.1f s\n", i+1, len(programs), p.pkg,
			len(p.tests), built.Seconds(), (time.Since(start) - built).Seconds())
	}
	return programs, nil
}

// counts is what became of the mutants of a package or an operator.
type counts struct{ tried, killed, endless, lived, unreached int }

// report tries all mutants and prints the survivors and the counts.
func (o *options) report(r *runner, mutants []*Mutant, programs []*program, w io.Writer) error {
	perPkg, perOp, sum := map[string]*counts{}, map[string]*counts{}, &counts{}
	for _, m := range mutants {
		killer, tests := r.try(m, programs)
		if err := r.ctx.Err(); err != nil {
			return err
		}
		op, _, _ := strings.Cut(m.op, "#")
		for _, c := range []*counts{at(perPkg, m.pkg), at(perOp, op), sum} {
			c.tried++
			switch {
			case killer == "endless":
				c.endless++
			case killer != "":
				c.killed++
			case tests == 0:
				c.unreached++
			default:
				c.lived++
			}
		}
		if killer != "" {
			fmt.Fprintf(w, "killed %s:%d %s by %s\n", m.file, m.line, m.op, killer)
			continue
		}
		fmt.Fprintf(w, "LIVES  %s:%d, %d tests pass; for the table:\n%s\t?\n", m.file, m.line, tests, m.key())
	}
	fmt.Fprintf(w, "\n%-60s %6s %6s %8s %6s %10s\n", "", "tried", "killed", "endless", "lived", "unreached")
	for _, table := range []map[string]*counts{perPkg, perOp, {"all": sum}} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			c := table[name]
			fmt.Fprintf(w, "%-60s %6d %6d %8d %6d %10d\n", name, c.tried, c.killed, c.endless, c.lived, c.unreached)
		}
	}
	if lived := sum.lived + sum.unreached; lived > 0 {
		return fmt.Errorf("%d survivors without a reason", lived)
	}
	return nil
}

func at(table map[string]*counts, name string) *counts {
	if table[name] == nil {
		table[name] = &counts{}
	}
	return table[name]
}
