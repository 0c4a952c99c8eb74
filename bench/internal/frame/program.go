package frame

import (
	"flag"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// A Program is a command that measures works and prints their tables.
type Program struct {
	Name   string // of the command, and of its place in a Markdown file
	Dir    string // below the repository
	Passes int    // by default
	Layout
	Targets []Target
	Process bool     // see Runner
	Apart   bool     // each work is measured alone; otherwise all of them together, in every pass
	Peers   []string // module paths
	How     string   // how things are timed, for the line below the tables

	Works func() ([]*Work, error)
	// Facts counts the facts that are not timed and pass wanted; it is nil if there are none.
	Facts func(o Options, wanted func(id string) bool, log io.Writer) ([]Fact, error)
}

// config is what the flags say.
type config struct {
	Options
	readme, only string
}

// parse reads the flags, to which the caller may have added some.
func (p *Program) parse(fs *flag.FlagSet, args []string) (config, error) {
	c := config{Options: Options{Slow: 700 * time.Millisecond}}
	fs.IntVar(&c.Passes, "passes", p.Passes, "counted passes")
	fs.DurationVar(&c.Window, "window", 25*time.Millisecond, "time of a cell in a pass")
	fs.IntVar(&c.Procs, "procs", 2, "cores to use")
	fs.StringVar(&c.readme, "readme", "", "`file` in which to refresh the tables")
	fs.StringVar(&c.only, "only", "", "`regexp` of works, as in pair/2\\^16, or of work@contestant")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	switch {
	case fs.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case c.Passes < 1 || c.Window <= 0 || c.Procs < 1:
		return c, fmt.Errorf("passes, window and procs must be positive")
	case c.readme != "" && c.only != "":
		return c, fmt.Errorf("a part of the works does not make the tables of a readme")
	}
	if c.readme != "" { // not after many minutes
		return c, report.Place{File: c.readme, Name: p.Name}.Check()
	}
	return c, nil
}

// Run is the whole program. fs may have flags of its own.
func (p *Program) Run(fs *flag.FlagSet, args []string, stdout, stderr io.Writer) error {
	c, err := p.parse(fs, args)
	if err != nil {
		return err
	}
	only, err := regexp.Compile(c.only)
	if err != nil {
		return err
	}
	works, err := p.Works()
	if err != nil {
		return err
	}
	for _, w := range works {
		w.Cells = slices.DeleteFunc(w.Cells, func(cell *Cell) bool { return !only.MatchString(w.ID + "@" + cell.Contestant) })
	}
	works = slices.DeleteFunc(works, func(w *Work) bool { return len(w.Cells) == 0 })
	r := &Runner{Options: c.Options, Log: stderr, Process: p.Process}
	if p.Apart {
		for w := range slices.Chunk(works, 1) {
			r.Measure(w)
		}
	} else {
		r.Measure(works)
	}
	t := &Table{Layout: p.Layout, Works: works}
	if p.Facts != nil {
		if t.Facts, err = p.Facts(c.Options, only.MatchString, stderr); err != nil {
			return err
		}
	}
	lines := t.verdicts(p.Targets)
	text := strings.Join(t.sections(), "\n\n") + "\n\n" + p.provenance(args, r) + misses(lines)
	fmt.Fprintf(stdout, "%s\n\n%s\n", text, strings.Join(lines, "\n"))
	if c.readme != "" {
		if err := (report.Place{File: c.readme, Name: p.Name}).Refresh(text); err != nil {
			return err
		}
	}
	return nil
}

// provenance says what the tables were measured with.
func (p *Program) provenance(args []string, r *Runner) string {
	s := fmt.Sprintf("Medians of %d interleaved passes on %s, %d of %d cores, %s; %s; `%s` in %s at commit %s; %s.",
		r.Passes, report.CPUModel(), r.Procs, runtime.NumCPU(), runtime.Version(), p.How,
		strings.Join(append([]string{"GOWORK=off go run ."}, args...), " "), p.Dir, report.Commit(), strings.Join(report.Versions(p.Peers...), ", "))
	if r.Windows > 0 {
		s += fmt.Sprintf(" Other programs disturbed %d of %d windows of wall time.", r.Troubled, r.Windows)
	}
	return s
}

// Check reports works that have one id, contestants without a column, and targets that a whole run
// with facts of these ids would not measure.
func (p *Program) Check(facts ...string) error {
	works, err := p.Works()
	if err != nil {
		return err
	}
	t := &Table{Layout: p.Layout, Works: works}
	for _, id := range facts {
		t.Facts = append(t.Facts, Fact{ID: id, Values: map[string]float64{p.Ours: 1}})
	}
	seen := map[string]bool{}
	for _, w := range works {
		if seen[w.ID] {
			return fmt.Errorf("two works have the id %q", w.ID)
		}
		seen[w.ID] = true
		for _, c := range w.Cells {
			if !slices.ContainsFunc(p.Columns, func(col Column) bool { return col.Name == c.Contestant }) {
				return fmt.Errorf("%s: contestant %q has no column", w.ID, c.Contestant)
			}
			c.Samples = []Sample{{NS: 1}}
		}
	}
	for _, g := range p.Targets {
		if _, ok := g.Got(t); !ok {
			return fmt.Errorf("%s: not measured by a whole run", g.Text)
		}
	}
	return nil
}
