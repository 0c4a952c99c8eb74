// Command scale runs a year of a large cluster on a simulated clock against engines of package ipset. It counts the cost of each
// kind of call on each day. Pods come and go with the hours of the day. Nodes are replaced in turn, a fifth of them are removed
// without notice, and every week a zone fails and returns. A tenth of the pods have leases, and some releases never happen, until a
// collector frees the addresses.
//
// An oracle outside the engines knows every answer. It judges every assignment, and is compared with the whole store at the end of
// each simulated day. The program fails if an address is assigned twice, or lost.
//
//	cd bench/torture/scale && GOWORK=off go run .
//	cd bench/torture/scale && GOWORK=off go run . -days 1 -nodes 100000 -pods 10000000
//
// It prints a table of the calls and a table of the state, the first days beside the last. README.md has one run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/bench/internal/report"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// full are the periods of a full simulation.
var full = config{
	Days: 30, Nodes: 500, Pods: 10_000, Engines: 8, Tick: 10 * time.Minute, Turnover: 0.5, Leak: 0.005, Seed: 1, UpgradeIn: 14, ZoneEvery: 7,
}

func main() {
	c := full
	flag.IntVar(&c.Days, "days", c.Days, "simulated days")
	flag.IntVar(&c.Nodes, "nodes", c.Nodes, "nodes")
	flag.IntVar(&c.Pods, "pods", c.Pods, "pods at the peak of a day")
	flag.IntVar(&c.Engines, "engines", c.Engines, "engines on the one store")
	flag.DurationVar(&c.Tick, "tick", c.Tick, "simulated time between two steps, and between two sweeps")
	flag.Float64Var(&c.Turnover, "turnover", c.Turnover, "how often a pod is replaced each day, beside what the wave of the day asks for")
	flag.Float64Var(&c.Leak, "leak", c.Leak, "the share of releases that never come")
	flag.Uint64Var(&c.Seed, "seed", c.Seed, "of all choices")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, c, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config, say io.Writer) error {
	begin := time.Now()
	rows, err := simulate(ctx, c, func(r row) {
		fmt.Fprintf(say, "day %d: %s after %v\n", r.Day, r.state.text(), time.Since(begin).Round(time.Second))
	})
	if err != nil {
		return err
	}
	whole := func(n int) string { return report.Whole(float64(n)) }
	_, err = fmt.Fprintf(say, "%d days of %s nodes and %s pods at the peak, %d engines, seed %d: %s assignments in %v; %s, %s, commit %s.\n\n%s\n",
		len(rows), whole(c.Nodes), whole(c.Pods), c.Engines, c.Seed, whole(total(rows).Uses[assign].Calls),
		time.Since(begin).Round(time.Second), runtime.Version(), report.CPUModel(), report.Commit(), strings.Join(tables(rows), "\n"))
	return err
}

// simulate returns a row for each day.
func simulate(ctx context.Context, c config, told func(row)) (rows []row, err error) {
	s, err := newCluster(ctx, c, store.NewMemory())
	if err != nil {
		return nil, err
	}
	for range c.Days {
		r, err := s.aDay()
		if err != nil {
			return nil, err
		}
		told(r)
		rows = append(rows, r)
	}
	return rows, nil
}
