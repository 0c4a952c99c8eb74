// Prove runs what stands behind the claims of the documents, for as long as one likes, and writes a page about it.
//
//	go run ./prove -for 10m -out ../../PROOF.md
//	go run ./prove -only twins,laws -for 2m
//	go run ./prove -check                  compare the claims with the documents, as the gate does, and run nothing
//
// The table is proofs.txt. Each row of a table of promises or laws in a document is proved too, by the tests that it names.
// Proofs of random inputs share the time; the others take what they take. Every run has seeds of its own; a failure comes with
// the line that repeats it. It needs no other module.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	var c config
	check := flag.Bool("check", false, "only compare the claims with the documents")
	flag.StringVar(&c.top, "top", "../..", "the `DIRECTORY` of the repository")
	flag.DurationVar(&c.length, "for", 10*time.Minute, "how long to prove, without what has to be built")
	flag.Uint64Var(&c.seed, "seed", rand.Uint64()>>16, "of all random choices")
	out := flag.String("out", "", "write the page to this `FILE`")
	only := flag.String("only", "", "run the proofs with these `IDS` alone, separated by commas")
	flag.Parse()
	_ = os.Unsetenv("GOWORK") // make starts this program outside of the workspace; each job says where its module belongs
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, &c, *check, *out, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// config says what to run, and what has been found.
type config struct {
	top    string
	length time.Duration
	seed   uint64
	began  time.Time
	mu     sync.Mutex
}

func run(ctx context.Context, c *config, check bool, out, only string) error {
	r, err := open(c.top)
	if err != nil {
		return err
	}
	proofs, problems := r.table(proofsText)
	rows, bad := r.promises()
	if problems = slices.Concat(problems, bad, r.unproved(proofs)); len(problems) > 0 {
		return fmt.Errorf("%s\n%d claims and proofs do not agree; internal/tools/prove/proofs.txt has the proofs", strings.Join(problems, "\n"), len(problems))
	}
	if check {
		fmt.Printf("%d proofs, %d promises and laws\n", len(proofs), len(rows))
		return nil
	}
	proofs = append(proofs, promised(rows))
	if only != "" {
		proofs = slices.DeleteFunc(proofs, func(p *proof) bool { return !slices.Contains(strings.Split(only, ","), p.id) })
	}
	c.began = time.Now()
	c.prove(ctx, r, proofs)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if out != "" {
		if err := os.WriteFile(out, []byte(c.page(proofs, rows)), 0o666); err != nil {
			return err
		}
	}
	for _, p := range proofs {
		for _, j := range p.jobs {
			if j.found != "" {
				return fmt.Errorf("something was found")
			}
		}
	}
	return nil
}

// promised is the proof of all promises: the tests that they name, by package.
func promised(rows []promise) *proof {
	p := &proof{id: "promises", method: "The tables of promises and laws in the documents name their tests."}
	for _, row := range rows {
		for _, test := range row.tests {
			dir, name, _ := strings.Cut(test, " ")
			i := slices.IndexFunc(p.jobs, func(j *job) bool { return j.dir == dir })
			if i < 0 {
				i = len(p.jobs)
				p.jobs = append(p.jobs, &job{kind: "test", dir: dir})
			}
			if !slices.Contains(p.jobs[i].tests, name) {
				p.jobs[i].tests = append(p.jobs[i].tests, name)
			}
		}
	}
	return p
}

// prove runs the jobs, one for each processor at a time: first those that take what they take.
func (c *config) prove(ctx context.Context, r *repo, proofs []*proof) {
	var fixed, shared []*job
	for _, p := range proofs {
		for _, j := range p.jobs {
			switch {
			case j.hour && c.length < time.Hour:
			case j.shares():
				shared = append(shared, j)
			default:
				fixed = append(fixed, j)
			}
		}
	}
	fmt.Printf("seed %d\n", c.seed)
	streams := runtime.NumCPU()
	share := max(time.Second, c.length*time.Duration(streams)/time.Duration(max(1, len(shared)))).Round(100 * time.Millisecond)
	jobs := make(chan *job)
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() {
			for j := range jobs {
				began := time.Now()
				c.mu.Lock()
				c.seed = c.seed*6364136223846793005 + 1442695040888963407
				seed := c.seed >> 16
				c.mu.Unlock()
				j.run(ctx, r, share, seed, c.length < time.Hour)
				fmt.Printf("%-6s %-60s %6.1f s  %s\n", j.kind, j.dir+" "+strings.Join(j.tests, " "), time.Since(began).Seconds(), amount([]*job{j}))
				if j.found != "" {
					fmt.Printf("FOUND: %s\n%s\n", j.found, j.output)
				}
			}
		})
	}
	for _, j := range append(fixed, shared...) {
		jobs <- j
	}
	close(jobs)
	wg.Wait()
}

// page returns PROOF.md.
func (c *config) page(proofs []*proof, rows []promise) string {
	var w strings.Builder
	git := func(args ...string) string {
		out, _ := exec.Command("git", append([]string{"-C", c.top}, args...)...).Output()
		return strings.TrimSpace(string(out))
	}
	version, _ := exec.Command("go", "env", "GOVERSION").Output()
	var jobs []*job
	claims := map[claim][]string{}
	var order []claim
	for _, p := range proofs {
		jobs = append(jobs, p.jobs...)
		for _, one := range p.claims {
			if claims[one] == nil {
				order = append(order, one)
			}
			claims[one] = append(claims[one], p.id)
		}
	}
	commit := git("rev-parse", "--short=12", "HEAD")
	if git("status", "--porcelain", "--untracked-files=no") != "" {
		commit += " with changes"
	}
	fmt.Fprintf(&w, "# Proofs\n\n"+
		"- commit %s, %s, %s, %s/%s, %d processors\n- run: %s, %v asked for, %v taken\n"+
		"- claims: %d sentences of the documents; promises and laws: %d rows of their tables\n- ran: %s\n- found: %s\n- left out: %s\n"+
		"- repeat it with other seeds: `make prove PROVE=1h`; a failure comes with the line that repeats it\n\n"+
		"No test here is a proof in the sense of logic: this page says how much was tried and what was found. The tests of each proof are in\n"+
		"[proofs.txt](internal/tools/prove/proofs.txt).\n\n| proof | how | tried | found |\n|---|---|---|---|\n",
		commit, c.began.UTC().Format("2006-01-02"), strings.TrimSpace(string(version)), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		c.began.UTC().Format("15:04 UTC"), c.length, time.Since(c.began).Round(time.Second), len(order), len(rows), tests(jobs), found(jobs), left(jobs))
	for _, p := range proofs {
		fmt.Fprintf(&w, "| %s | %s | %s | %s |\n", p.id, cell(p.method), amount(p.jobs), cell(found(p.jobs)))
	}
	fmt.Fprint(&w, "\n| claim | proved by |\n|---|---|\n")
	for _, one := range order {
		fmt.Fprintf(&w, "| [%s](%s): %s | %s |\n", one.document, one.document, cell(one.sentence), strings.Join(claims[one], ", "))
	}
	return w.String()
}
