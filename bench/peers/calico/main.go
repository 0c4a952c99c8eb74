package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

func main() {
	quiet()
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "calico:", err)
		os.Exit(1)
	}
}

// config is what the flags say.
type config struct {
	options
	readme, only, profile, year string
	check, etcd                 bool
}

func parse(args []string, stderr io.Writer) (config, error) {
	c := config{options: options{slow: 700 * time.Millisecond}}
	fs := flag.NewFlagSet("calico", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&c.passes, "passes", 9, "counted passes")
	fs.DurationVar(&c.window, "window", 25*time.Millisecond, "time of a cell in a pass")
	fs.IntVar(&c.procs, "procs", 2, "cores to use")
	fs.BoolVar(&c.quick, "quick", false, "3 passes of 10ms, without the slowest works")
	fs.StringVar(&c.readme, "readme", "", "`file` in which to refresh the tables")
	fs.BoolVar(&c.check, "check", false, "fail if a target is missed")
	fs.BoolVar(&c.etcd, "etcd", false, "measure on etcd as well, which is built the first time")
	fs.StringVar(&c.only, "only", "", "`regexp` of works, as in engine/32, or of work@contestant")
	fs.StringVar(&c.year, "year", "", "replay the calls of this `file`, which bench/scale has recorded, in place of all else")
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
		return c, fmt.Errorf("a part of the works does not make the tables of a readme")
	}
	return c, nil
}

func run(args []string, stdout, stderr io.Writer) error {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	readme := report.Place{File: c.readme, Name: "bench-peers-calico"}
	if c.year != "" {
		readme.Name = "year"
	}
	if c.readme != "" { // not after many minutes
		if err := readme.Check(); err != nil {
			return err
		}
	}
	if c.year != "" {
		text, err := runYear(c.year, stderr)
		if err == nil && c.readme != "" {
			err = readme.Refresh(text)
		}
		fmt.Fprintln(stdout, text)
		return err
	}
	works := allWorks(c.options)
	var server *etcd
	if c.etcd {
		if server, err = startEtcd(bg); err != nil {
			return err
		}
		defer server.close()
		works = append(works, server.works().works...)
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
	r := &runner{options: c.options, log: stderr, cpu: processTime}
	for _, w := range works {
		r.measure(w)
	}
	t := &table{works: works}
	counted := func(id string) bool { return c.only == "" || regexp.MustCompile(c.only).MatchString(id) }
	if counted("calls") {
		t.counts = append(t.counts, storeCalls()...)
	}
	if c.etcd && counted("etcd/requests") {
		t.counts = append(t.counts, server.counts()...)
	}
	if counted("crowd") {
		t.counts = append(t.counts, crowd(c.options, coded, crowdEach, stderr)...)
	}
	if counted("memory") {
		t.counts = append(t.counts, memory(c.options, stderr)...)
	}
	lines, missed := t.verdicts()
	text := strings.Join(t.sections(), "\n\n") + "\n\n" + provenance(args, r, c.etcd) + misses(lines)
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
	return list, nil
}

// allWorks returns the works on memory in the order of the tables.
func allWorks(o options) []*work { return slices.Concat(blockWorks().works, engineWorks(o).works) }
