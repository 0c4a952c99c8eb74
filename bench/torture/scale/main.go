// Command scale runs a year of a large cluster on a simulated clock against engines of package ipset, and counts what each kind
// of call costs on each day. Pods come and go with the hours of the day. Nodes are replaced in turn, a fifth of them are taken away
// without notice, and every week a zone fails and comes back. Pools are split at the peak and merged, drained, removed and added
// again. A tenth of the pods have leases, and some releases never come until a collector repairs that.
//
// An oracle outside of the engines knows what was told: it is asked at every assignment and compared with the whole store at the
// end of each simulated day. The program fails if an address is given twice, or lost.
//
//	cd bench/torture/scale && GOWORK=off go run .
//	cd bench/torture/scale && GOWORK=off go run . -days 1 -nodes 100000 -pods 10000000
//	cd bench/torture/scale && GOWORK=off go run . -store etcd -days 3
//
// It prints a table of the calls and one of the state, the first days beside the last, and says what grows. An interrupt ends it
// after the last whole day. README.md has one run.
// Run it with GOMAXPROCS=1 to have the CPU time without that of a collector on another core.
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
)

// full are the periods of a full simulation.
var full = config{
	Days: 30, Nodes: 500, Pods: 10_000, Engines: 8, Tick: 10 * time.Minute, Turnover: 0.5, Leak: 0.005, Seed: 1,
	UpgradeIn: 14, ZoneEvery: 7, SplitEvery: 5, DrainEvery: 9,
}

// output says where results go beside standard output.
type output struct{ readme, name string }

func main() {
	c, out := full, output{}
	flag.IntVar(&c.Days, "days", c.Days, "simulated days")
	flag.IntVar(&c.Nodes, "nodes", c.Nodes, "nodes")
	flag.IntVar(&c.Pods, "pods", c.Pods, "pods at the peak of a day")
	flag.IntVar(&c.Engines, "engines", c.Engines, "engines on the one store")
	flag.DurationVar(&c.Tick, "tick", c.Tick, "simulated time between two steps, and between two sweeps")
	flag.Float64Var(&c.Turnover, "turnover", c.Turnover, "how often a pod is replaced each day, beside what the wave of the day asks for")
	flag.Float64Var(&c.Leak, "leak", c.Leak, "the share of releases that never come")
	flag.Uint64Var(&c.Seed, "seed", c.Seed, "of all choices")
	kind := flag.String("store", "memory", "memory, or etcd: one member that is started for it")
	flag.StringVar(&out.readme, "readme", "", "write the tables into this `FILE`")
	flag.StringVar(&out.name, "name", "scale", "between the comments of this name in it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, c, *kind, out, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config, kind string, out output, say io.Writer) error {
	place := report.Place{File: out.readme, Name: out.name}
	if out.readme != "" {
		if err := place.Check(); err != nil { // before the work
			return err
		}
	}
	commit, begin := report.Commit(), time.Now()
	rows, err := simulate(ctx, c, kind, func(r row) {
		fmt.Fprintf(say, "day %d: %s after %v\n", r.Day, r.state.text(), time.Since(begin).Round(time.Second))
	})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d days of %s nodes and %s pods at the peak, %d engines, store %s, seed %d: %s assignments in %v; %s, %s, commit %s.\n\n%s",
		len(rows), report.Whole(float64(c.Nodes)), report.Whole(float64(c.Pods)), c.Engines, kind, c.Seed, report.Whole(float64(total(rows).Uses[assign].Calls)),
		time.Since(begin).Round(time.Second), runtime.Version(), report.CPUModel(), commit, strings.Join(tables(rows), "\n"))
	fmt.Fprintln(say, text)
	if out.readme != "" {
		return place.Refresh(text)
	}
	return nil
}

// simulate returns a row for each day.
func simulate(ctx context.Context, c config, kind string, told func(row)) (rows []row, err error) {
	runtime.LockOSThread() // the meter has the CPU time of this thread
	defer runtime.UnlockOSThread()
	db, err := open(ctx, kind)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := db.close(); err == nil {
			err = e
		}
	}()
	s, err := newCluster(ctx, c, db.Store)
	if err != nil {
		return nil, err
	}
	for range c.Days {
		r, err := s.aDay()
		if err != nil && ctx.Err() != nil && len(rows) > 0 {
			break // interrupted: the days so far are the result
		}
		if err != nil {
			return nil, err
		}
		if r.File, err = db.file(ctx); err != nil {
			return nil, err
		}
		told(r)
		rows = append(rows, r)
	}
	return rows, nil
}
