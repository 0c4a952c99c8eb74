// Prove runs what stands behind the claims of the documents, for as long as one likes, and writes a page about it.
//
//	go run ./prove -for 10m -out ../../PROOF.md
//	go run ./prove -only twins,laws -for 2m
//	go run ./prove -check
//
// A proof is a row of the table in table.go. Each row of a table of promises or laws in a document is a proof too, by the tests that
// it names. Proofs of random inputs share the time; the others take what they take. Every run has seeds of its own and prints
// them; a failure comes with the line that repeats it.
//
// With -check nothing runs: it compares the claims with the documents, as the gate does. It needs no other module.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"
)

func main() {
	var c config
	check := flag.Bool("check", false, "only compare the claims with the documents")
	list := flag.Bool("list", false, "only list the proofs")
	flag.StringVar(&c.top, "top", "../..", "the `DIRECTORY` of the repository")
	flag.DurationVar(&c.length, "for", 10*time.Minute, "how long to prove, without what has to be built")
	flag.IntVar(&c.streams, "p", runtime.NumCPU(), "how many proofs run side by side")
	flag.Uint64Var(&c.seed, "seed", rand.Uint64()>>16, "of all random choices")
	flag.StringVar(&c.out, "out", "", "write the page to this `FILE`")
	only := flag.String("only", "", "run the proofs with these `IDS` alone, separated by commas")
	flag.Parse()
	_ = os.Unsetenv("GOWORK") // make starts this program outside of the workspace; each job says where its module belongs
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, &c, *check, *list, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// config says what to run, and how.
type config struct {
	top     string
	length  time.Duration
	streams int
	seed    uint64
	out     string
}

func run(ctx context.Context, c *config, check, list bool, only string) error {
	r, err := open(c.top)
	if err != nil {
		return err
	}
	proofs, promises, problems := r.collect()
	if check || len(problems) > 0 {
		for _, p := range problems {
			fmt.Println(p)
		}
		if len(problems) > 0 {
			return fmt.Errorf("%d claims and proofs do not agree; internal/tools/prove/table.go has the proofs", len(problems))
		}
		fmt.Printf("%d proofs, %d promises and laws, %d sentences\n", len(proofs), len(promises), sentences(proofs))
		return nil
	}
	if only != "" {
		if proofs, promises, err = choose(proofs, promises, strings.Split(only, ",")); err != nil {
			return err
		}
	}
	if list {
		for _, p := range proofs {
			fmt.Printf("%-14s %s\n", p.id, p.method)
		}
		return nil
	}
	b := newBook(c, r, proofs, promises)
	if err := b.run(ctx); err != nil {
		return err
	}
	if c.out != "" {
		if err := os.WriteFile(c.out, []byte(b.page()), 0o666); err != nil {
			return err
		}
	}
	return b.verdict()
}

// choose keeps the proofs with the given ids; promises stands for the tables of the documents.
func choose(proofs []*proof, promises []*promise, ids []string) ([]*proof, []*promise, error) {
	var kept []*proof
	tables := false
	for _, id := range ids {
		n := len(kept)
		for _, p := range proofs {
			if p.id == id {
				kept = append(kept, p)
			}
		}
		if id == "promises" {
			tables = true
		} else if len(kept) == n {
			return nil, nil, fmt.Errorf("there is no proof %q; -list shows them", id)
		}
	}
	if !tables {
		promises = nil
	}
	return kept, promises, nil
}
