// Prove runs what stands behind the claims of the documents and writes PROOF.md; with -check it compares the claims with the
// documents, as the gate does, and runs nothing. The table is proofs.txt. Each row of a table of promises or laws in a document is
// proved too, by the tests that it names. Proofs of random inputs share the time; the others take what they take. Every run has
// seeds of its own; a failure comes with the line that repeats it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

// top is the directory of the repository.
const top = "../.."

func main() {
	check := flag.Bool("check", false, "only compare the claims with the documents")
	length := flag.Duration("for", 10*time.Minute, "how long to prove, without what has to be built")
	flag.Parse()
	_ = os.Unsetenv("GOWORK") // make starts this program outside of the workspace; each job says where its module belongs
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *check, *length)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, check bool, length time.Duration) error {
	b, err := open(top)
	if err != nil {
		return err
	}
	b.table(proofsText)
	b.unproved()
	b.promised()
	if n := len(b.problems); n > 0 {
		return fmt.Errorf("%s\n%d claims and proofs do not agree; internal/tools/prove/proofs.txt has the proofs", strings.Join(b.problems, "\n"), n)
	}
	if check {
		fmt.Printf("%d proofs, %d promises and laws\n", len(b.proofs), b.promises)
		return nil
	}
	began := time.Now()
	all := b.prove(ctx, length)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := os.WriteFile(top+"/PROOF.md", []byte(b.page(all, began, length)), 0o666); err != nil {
		return err
	}
	if _, found, _ := sum(all...); found != "nothing" {
		return errors.New("something was found")
	}
	return nil
}

// prove runs the jobs, one for each processor at a time, and returns all: first those that take what they take.
func (b *book) prove(ctx context.Context, length time.Duration) (all []*job) {
	var fixed, shared []*job
	short := length < time.Hour
	for _, p := range b.proofs {
		all = append(all, p.jobs...)
		for _, j := range p.jobs {
			switch {
			case j.hour && short:
			case j.kind == "random" || strings.Contains(strings.Join(j.args, " "), "{for"):
				shared = append(shared, j)
			default:
				fixed = append(fixed, j)
			}
		}
	}
	streams := runtime.NumCPU()
	share := max(time.Second, length*time.Duration(streams)/time.Duration(max(1, len(shared)))).Round(100 * time.Millisecond)
	slots := make(chan bool, streams)
	var wg sync.WaitGroup
	for _, j := range append(fixed, shared...) {
		slots <- true
		wg.Go(func() {
			began := time.Now()
			j.run(ctx, share, rand.Uint64()>>16, short)
			tried, _, _ := sum(j)
			fmt.Printf("%-6s %-60s %6.1f s  %s\n", j.kind, j.dir+" "+strings.Join(j.tests, " "), time.Since(began).Seconds(), tried)
			if j.found != "" {
				fmt.Printf("FOUND: %s\n%s\n", j.found, j.output)
			}
			<-slots
		})
	}
	wg.Wait()
	return all
}

// page returns PROOF.md.
func (b *book) page(jobs []*job, began time.Time, length time.Duration) string {
	say := func(name string, args ...string) string {
		out, _ := exec.Command(name, args...).Output()
		return strings.TrimSpace(string(out))
	}
	var w strings.Builder
	tried, found, left := sum(jobs...)
	ran, _, _ := strings.Cut(tried, ";")
	fmt.Fprintf(&w, "# Proofs\n\n"+
		"- commit %s, %s, %s, %s/%s, %d processors\n- run: %s, %v asked for, %v taken\n"+
		"- claims: %d sentences of the documents; promises and laws: %d rows of their tables\n- ran: %s\n- found: %s\n- left out: %s\n"+
		"- repeat it with other seeds: `make prove PROVE=1h`; a failure comes with the line that repeats it\n\n"+
		"No test here is a proof in the sense of logic: this page says how much was tried and what was found. The tests of each proof are in\n"+
		"[proofs.txt](internal/tools/prove/proofs.txt).\n\n| proof | how | tried | found |\n|---|---|---|---|\n",
		say("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"), began.UTC().Format(time.DateOnly), say("go", "env", "GOVERSION"),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), began.UTC().Format("15:04 UTC"), length, time.Since(began).Round(time.Second), len(b.claims), b.promises, ran, found, left)
	for _, p := range b.proofs {
		tried, found, _ := sum(p.jobs...)
		fmt.Fprintf(&w, "| %s | %s | %s | %s |\n", p.id, p.method, tried, strings.ReplaceAll(found, "|", `\|`))
	}
	fmt.Fprint(&w, "\n| claim | proved by |\n|---|---|\n")
	links := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`) // they would lead from another document
	for _, c := range b.claims {
		sentence := strings.ReplaceAll(links.ReplaceAllString(c.sentence, "$1"), "|", `\|`)
		fmt.Fprintf(&w, "| [%s](%s): %s | %s |\n", c.document, c.document, sentence, strings.Join(b.by[c], ", "))
	}
	return w.String()
}
