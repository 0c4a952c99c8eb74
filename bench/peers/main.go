package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// A system is a package of this module with its peers.
type system struct {
	name    string // of the package, and of the section of the table
	works   func(options) *worklist
	memory  func() []footprint // nil if none is measured
	targets []target
}

var systems = []system{
	{systemCidrset, cidrsetWorks, cidrsetMemory, cidrsetTargets},
	{systemService, serviceWorks, nil, serviceTargets},
}

// config is what the flags say.
type config struct {
	options
	readme, only, profile string
	check                 bool
}

func parse(args []string, stderr io.Writer) (config, error) {
	c := config{options: options{slow: 700 * time.Millisecond}}
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&c.passes, "passes", 8, "counted passes")
	fs.DurationVar(&c.window, "window", 25*time.Millisecond, "time of a cell in a pass")
	fs.IntVar(&c.procs, "procs", 2, "cores to use")
	fs.BoolVar(&c.quick, "quick", false, "3 passes of 10ms, without the slowest set-ups")
	fs.StringVar(&c.readme, "readme", "", "`file` in which to refresh the table")
	fs.BoolVar(&c.check, "check", false, "fail if a target is missed")
	fs.StringVar(&c.only, "only", "", "`regexp` of works, as in pair/2\\^16, or of work@contestant")
	fs.StringVar(&c.profile, "cpuprofile", "", "`file` for a CPU profile")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if c.quick {
		c.passes, c.window = 3, 10*time.Millisecond
	}
	if c.passes < 1 || c.window <= 0 || c.procs < 1 {
		return c, fmt.Errorf("passes, window and procs must be positive")
	}
	if c.readme != "" && c.only != "" {
		return c, fmt.Errorf("a part of the works does not make the table of a readme")
	}
	return c, nil
}

func run(args []string, stdout, stderr io.Writer) error {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	readme := report.Place{File: c.readme, Name: "bench-peers"}
	if c.readme != "" { // not after six minutes
		if err := readme.Check(); err != nil {
			return err
		}
	}
	var works []*work
	for _, sys := range systems {
		works = append(works, sys.works(c.options).works...)
	}
	if works, err = chosen(works, c.only); err != nil {
		return err
	}
	if c.profile != "" {
		f, err := os.Create(c.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	r := &runner{options: c.options, log: stderr}
	r.measure(works)
	t := &table{works: works}
	if c.only == "" {
		for _, w := range works { // their sets are not to be in the heap that is measured
			for _, cell := range w.cells {
				cell.job = nil
			}
		}
		for _, sys := range systems {
			if sys.memory != nil {
				t.memory = append(t.memory, sys.memory()...)
			}
		}
	}
	text := strings.Join(t.sections(), "\n\n") + "\n\n" + provenance(args, r)
	lines, missed := t.verdicts()
	fmt.Fprintf(stdout, "%s\n\n%s\n", text, strings.Join(lines, "\n"))
	if c.readme != "" {
		if err := readme.Refresh(text); err != nil {
			return err
		}
	}
	if c.check && missed > 0 {
		return fmt.Errorf("%d of %d targets missed", missed, len(lines))
	}
	return nil
}

// chosen returns the works and cells that only selects.
func chosen(works []*work, only string) ([]*work, error) {
	if only == "" {
		return works, nil
	}
	re, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	var list []*work
	for _, w := range works {
		w.cells = slices.DeleteFunc(w.cells, func(c *cell) bool { return !re.MatchString(w.id + "@" + c.contestant) })
		if len(w.cells) > 0 {
			list = append(list, w)
		}
	}
	runtime.GC()
	return list, nil
}
