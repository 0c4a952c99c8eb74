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
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
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
	if c.readme != "" { // not after six minutes
		data, err := os.ReadFile(c.readme)
		if err != nil {
			return err
		}
		if _, _, err := marked(data); err != nil {
			return fmt.Errorf("%s: %w", c.readme, err)
		}
	}
	works, err := chosen(cidrsetWorks(c.options).works, c.only)
	if err != nil {
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
		t.memory = cidrsetMemory()
	}
	lines, missed := verdicts(t, cidrsetTargets)
	report := strings.Join(t.lines(systemCidrset), "\n")
	about := provenance(args, c.options)
	if r.windows > 0 {
		about += fmt.Sprintf(" Other programs disturbed %d of %d windows on several goroutines.", r.troubled, r.windows)
	}
	fmt.Fprintf(stdout, "%s\n\n%s\n\n%s\n", report, about, strings.Join(lines, "\n"))
	if c.readme != "" {
		if err := refresh(c.readme, report+"\n\n"+about); err != nil {
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
