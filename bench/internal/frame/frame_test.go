package frame

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const ours, theirs, flat = "ours", "theirs", "flat"

// clockJob is a job whose operations take so long by a clock that the test keeps.
func clockJob(now *time.Duration, resets *int, each time.Duration) *Job {
	return &Job{Reset: func() { *resets++; *now += time.Second }, Run: func(n int) { *now += time.Duration(n) * each }}
}

// runnerOn returns a runner on that clock.
func runnerOn(now *time.Duration, passes int) *Runner {
	return &Runner{Options: Options{Passes: passes, Window: 60 * time.Microsecond, Procs: 2, Slow: 30 * time.Millisecond},
		Log: io.Discard, Process: true, Clock: func() time.Duration { return *now }}
}

// The time of a cell is that of its operations, without what it does between them, in each pass.
func TestRunnerTimesTheRun(t *testing.T) {
	var now time.Duration
	var resets int
	j := clockJob(&now, &resets, 3*time.Microsecond)
	j.N = 2
	w := &Work{ID: "x", Cells: []*Cell{{Contestant: ours, Open: func() *Job { return j }}}}
	closed := false
	j.Close = func() { closed = true }
	runnerOn(&now, 2).Measure([]*Work{w})
	// 1 and 10 rounds to calibrate, then two passes of 10.
	if ns, ok := w.Cell(ours).ns(); !ok || ns != 3000 || resets != 1+10+20 || len(w.Cell(ours).Samples) != 2 || j.N != 2 || !closed {
		t.Errorf("an operation of 3 us takes %v ns, %v; %d resets; rounds of %d; closed %v", ns, ok, resets, j.N, closed)
	}
}

// A job without a size gets as many operations as fill a window, a multiple of its grain.
func TestRunnerFillsTheWindow(t *testing.T) {
	var now time.Duration
	var resets int
	j := clockJob(&now, &resets, time.Microsecond)
	j.Grain = 8
	runnerOn(&now, 1).Measure([]*Work{{ID: "x", Cells: []*Cell{{Contestant: ours, Open: func() *Job { return j }}}}})
	if j.N%8 != 0 || j.N < 48 || j.N > 72 {
		t.Errorf("%d operations of 1 us in a window of 60 us", j.N)
	}
}

func TestSlowCellsTakePartInFewPasses(t *testing.T) {
	var now time.Duration
	var resets int
	slow := &Cell{Contestant: theirs, Open: func() *Job { return clockJob(&now, &resets, 40*time.Millisecond) }}
	fast := &Cell{Contestant: ours, Open: func() *Job { return clockJob(&now, &resets, time.Microsecond) }}
	runnerOn(&now, fewPasses+1).Measure([]*Work{{ID: "x", Cells: []*Cell{slow, fast}}})
	if len(slow.Samples) != fewPasses || len(fast.Samples) != fewPasses+1 {
		t.Errorf("%d and %d samples, want %d and %d", len(slow.Samples), len(fast.Samples), fewPasses, fewPasses+1)
	}
}

// A window of wall time is timed by the wall clock, whatever the other clock says.
func TestWall(t *testing.T) {
	var now time.Duration
	c := &Cell{Contestant: ours, Open: func() *Job {
		return &Job{Wall: true, N: 1, Run: func(int) { time.Sleep(time.Millisecond) }}
	}}
	r := runnerOn(&now, 1)
	r.Measure([]*Work{{ID: "x", Cells: []*Cell{c}}})
	if ns, _ := c.ns(); ns < 1e6 || r.Windows != 1 { // a sleep is never shorter than asked for
		t.Errorf("%v ns for an operation that takes 1 ms at least; %d windows", ns, r.Windows)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{5, 1}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 100, 2}, 3}} {
		cell := &Cell{}
		for _, v := range c.v {
			cell.Samples = append(cell.Samples, Sample{NS: v})
		}
		if got, ok := cell.ns(); got != c.want || !ok {
			t.Errorf("median of %v is %v, want %v", c.v, got, c.want)
		}
	}
	if _, ok := (*Cell)(nil).ns(); ok {
		t.Error("a cell that is not there was measured")
	}
}

var layout = Layout{
	Columns: []Column{{ours, "ours"}, {flat, "bitset"}, {theirs, "Theirs"}, {"none", "None"}},
	Ratios:  []Ratio{{"Theirs / ours", theirs, ours}, {"ours / None", ours, "none"}},
	Ours:    ours,
}

// measured returns a table in which the contestants need the given times.
func measured(ns map[string]float64) *Table {
	w := &Work{Section: "s", ID: "w", Title: "some work"}
	for c, v := range ns {
		w.Cells = append(w.Cells, &Cell{Contestant: c, Samples: []Sample{{NS: v, Bytes: 0.001, Allocs: 2}}})
	}
	return &Table{Layout: layout, Works: []*Work{w}}
}

func TestTable(t *testing.T) {
	tab := measured(map[string]float64{ours: 20, theirs: 1.5e6, flat: 25})
	format := func(v float64) string { return "v" + string(rune('0'+int(v))) }
	tab.Facts = []Fact{
		{"s", "m", "memory", map[string]float64{ours: 2, theirs: 4}, format},
		{"counted", "c", "calls", map[string]float64{ours: 1, theirs: 3}, format},
	}
	want := []string{
		"**s**\n",
		"| time of   |    ours |  bitset |  Theirs | ours: B, allocs | Theirs / ours |",
		"|-----------|--------:|--------:|--------:|----------------:|--------------:|",
		"| some work | 20.0 ns | 25.0 ns | 1.50 ms |         0, 2.00 |       75,000x |",
		"| memory    |      v2 |       - |      v4 |                 |         2.00x |",
		"**counted**\n",
		"|       | ours | Theirs | Theirs / ours |",
		"|-------|-----:|-------:|--------------:|",
		"| calls |   v1 |     v3 |         3.00x |",
	}
	if got := strings.Join(tab.sections(), "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestVerdicts(t *testing.T) {
	tab := measured(map[string]float64{ours: 20, flat: 25})
	lines := tab.verdicts([]Target{
		{Text: "a", Got: RatioOf("w", ours, flat), Limit: 0.8},
		{Text: "b", Got: RatioOf("w", ours, flat), Limit: 0.79},
		{Text: "c", Got: RatioOf("w", ours, flat), Limit: 0.8, Least: true},
		{Text: "d", Got: RatioOf("w", ours, flat), Limit: 0.81, Least: true},
		{Text: "e", Got: RatioOf("w", theirs, ours), Limit: 1},
		{Text: "f", Got: ValueOf("w", ours), Limit: 19, Unit: " ns"},
		{Text: "g", Got: Over("w", "w", ours), Limit: 1},
	})
	var words []string
	for _, l := range lines {
		words = append(words, l[:4])
	}
	if want := []string{"pass", "MISS", "pass", "MISS", "----", "MISS", "pass"}; !slices.Equal(words, want) {
		t.Errorf("%s", strings.Join(lines, "\n"))
	}
	if want := "MISS  f: 20.0 ns (<= 19.0 ns)"; lines[5] != want {
		t.Errorf("got %q, want %q", lines[5], want)
	}
	if got := misses(lines[4:]); got != "\n\nTargets missed in this run:\n\n- f: 20.0 ns (<= 19.0 ns)" || misses(lines[:1]) != "" {
		t.Errorf("missed: %q", got)
	}
}

// LiveHeap sees what is kept and forgets what was dropped.
func TestLiveHeap(t *testing.T) {
	before := LiveHeap()
	kept := make([]byte, 8<<20)
	for i := range kept {
		kept[i] = 1
	}
	if got := int64(LiveHeap()) - int64(before); got < 8<<20 || got > 9<<20 {
		t.Errorf("8 MiB that are kept show as %d bytes", got)
	}
	runtime.KeepAlive(kept)
	if got := int64(LiveHeap()) - int64(before); got > 1<<20 {
		t.Errorf("8 MiB that were dropped show as %d bytes", got)
	}
}

// testProgram has two works; the second of them misses its target.
func testProgram(apart bool) *Program {
	job := func() *Job {
		return &Job{Run: func(n int) { time.Sleep(time.Duration(n) * time.Microsecond) }, Wall: true}
	}
	return &Program{
		Name: "bench", Dir: "bench/x", Passes: 2, Layout: layout, Apart: apart, How: "wall time",
		Targets: []Target{{Text: "fast", Got: ValueOf("b", ours), Limit: 1}, {Text: "calls", Got: ValueOf("c", ours), Limit: 1}},
		Works: func() ([]*Work, error) {
			ws := &Works{Section: "s", Skip: func(c, id string) bool { return c == flat && id == "b" }}
			for _, c := range []string{ours, flat} {
				ws.Add("a", "first work", c, job)
				ws.Add("b", "second work", c, job)
			}
			return ws.List, nil
		},
		Facts: func(_ Options, wanted func(string) bool, _ io.Writer) ([]Fact, error) {
			if !wanted("c") {
				return nil, nil
			}
			return []Fact{{"counted", "c", "calls", map[string]float64{ours: 1}, func(float64) string { return "one" }}}, nil
		},
	}
}

func runProgram(p *Program, args ...string) (string, error) {
	var out bytes.Buffer
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	err := p.Run(fs, args, &out, io.Discard)
	return out.String(), err
}

// A run measures, prints the tables, and refreshes a file between the markers.
func TestRun(t *testing.T) {
	readme := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(readme, []byte("<!-- bench:begin -->\nold\n<!-- bench:end -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, apart := range []bool{false, true} {
		p := testProgram(apart)
		if err := p.Check("c"); err != nil {
			t.Error(err)
		}
		out, err := runProgram(p, "-window", "1ms", "-readme", readme)
		if err != nil {
			t.Errorf("error %v", err)
		}
		text, _ := os.ReadFile(readme)
		for _, want := range []string{"| first work ", "| second work ", "| calls |  one |", "Medians of 2 interleaved passes", "in bench/x at commit", "- fast: "} {
			if !strings.Contains(out, want) || !strings.Contains(string(text), want) {
				t.Errorf("no %q in\n%s\nor in\n%s", want, out, text)
			}
		}
		out, err = runProgram(testProgram(apart), "-window", "100us", "-only", "^a@ours")
		if err != nil || strings.Contains(out, "second work") || strings.Contains(out, "bitset") || !strings.Contains(out, "----  calls: not measured") {
			t.Errorf("error %v, output\n%s", err, out)
		}
	}
}

func TestRunRefusesWhatItCannotDo(t *testing.T) {
	readme := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(readme, []byte("no markers"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-passes", "0"}, {"-window", "0s"}, {"-procs", "0"}, {"more"}, {"-only", "("},
		{"-readme", readme}, {"-readme", filepath.Join(t.TempDir(), "none")}, {"-readme", readme, "-only", "x"},
	} {
		if out, err := runProgram(testProgram(false), args...); err == nil || out != "" {
			t.Errorf("%q: error %v, output %q", args, err, out)
		}
	}
}

// Check finds a work twice, a contestant without a column, and a target that nothing measures.
func TestCheck(t *testing.T) {
	works := testProgram(false).Works
	for _, harm := range []func(p *Program){
		func(p *Program) { p.Targets = append(p.Targets, Target{Text: "x", Got: ValueOf("x", ours)}) },
		func(p *Program) { p.Layout.Columns = p.Layout.Columns[:1] },
		func(p *Program) {
			p.Works = func() ([]*Work, error) {
				list, err := works()
				return append(list, list[0]), err
			}
		},
	} {
		p := testProgram(false)
		harm(p)
		if p.Check("c") == nil {
			t.Error("nothing was found")
		}
	}
}
