package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

func TestMain(m *testing.M) {
	quiet()
	os.Exit(m.Run())
}

// all returns the works of all sections.
func all() []*work { return append(allWorks(options{}), (&etcd{}).works().works...) }

// small reports whether a work's state is built in no time.
func small(id string) bool {
	return !strings.HasSuffix(id, "/65536") && !strings.HasSuffix(id, "/100000") && !strings.HasSuffix(id, "/1024")
}

// Every work runs for every contestant, more than once, and leaves a state that it can begin with.
func TestWorksRun(t *testing.T) {
	for _, w := range allWorks(options{}) {
		if !small(w.id) {
			continue
		}
		for _, c := range w.cells {
			j := c.open()
			for range 2 {
				if j.reset != nil {
					j.reset()
				}
				j.run(max(j.n, 2*j.grain, 2))
			}
			if j.close != nil {
				j.close()
			}
		}
	}
}

// A work is found by its id, and has a column for each contestant.
func TestIDsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	shown := map[string]bool{}
	for _, c := range columns {
		shown[c.name] = true
	}
	for _, w := range all() {
		if seen[w.id] {
			t.Errorf("two works have the id %q", w.id)
		}
		seen[w.id] = true
		for _, c := range w.cells {
			if !shown[c.contestant] {
				t.Errorf("%s has a contestant %q without a column", w.id, c.contestant)
			}
		}
	}
}

// Every target names works, contestants and counts that exist, and is missed when it is.
func TestTargetsAreMeasured(t *testing.T) {
	tab := &table{works: all()}
	for _, w := range tab.works {
		for _, c := range w.cells {
			c.samples = []sample{{ns: 1}}
		}
	}
	for _, id := range []string{"calls/assign", "calls/release", "calls/first", "crowd/errors", "crowd/blocks", "crowd/extra", "memory/built", "memory/heap", "memory/each", "memory/records", "memory/load"} {
		tab.counts = append(tab.counts, fact{id, id, map[string]float64{ours: 1, theirs: 1}, report.Whole})
	}
	for _, g := range targets {
		if v, ok := g.got(tab); !ok || v != 1 {
			t.Errorf("%s: %v, %v", g.text, v, ok)
		}
		beyond := g.limit + 1
		if g.least {
			beyond = g.limit - 1
		}
		if !g.met(g.limit) || g.met(beyond) {
			t.Errorf("%s: the limit is not where it should be", g.text)
		}
	}
	if lines, missed := tab.verdicts(); missed == 0 || len(lines) != len(targets) || !strings.Contains(strings.Join(lines, "\n"), "MISS") {
		t.Errorf("every ratio is 1, and %d are missed: %q", missed, lines)
	}
	if got := misses([]string{"pass  a", "MISS  b: 2x", "----  c", "MISS  d"}); got != "\n\nTargets missed in this run:\n\n- b: 2x\n- d" || misses([]string{"pass  a"}) != "" {
		t.Errorf("missed: %q", got)
	}
	if lines, missed := (&table{}).verdicts(); missed != 0 || !strings.HasPrefix(lines[0], "----") {
		t.Errorf("nothing is measured, and %d are missed", missed)
	}
}

// A run measures, prints the tables and refreshes a file between the markers.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-passes", "1", "-window", "1ms", "-only", "^(block/26/0|engine/0)@"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"**" + sectionBlock + "**", "**" + sectionEngine + "**", "| AutoAssign + release, a /26 with 0 held ", "Medians of 1 interleaved", "not measured"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	for _, args := range [][]string{{"-passes", "0"}, {"-window", "0s"}, {"-procs", "0"}, {"extra"}, {"-only", "("}, {"-only", "x", "-readme", "y"}, {"-readme", filepath.Join(t.TempDir(), "none")}} {
		if err := run(args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

// The time of a cell is that of its operations, without what it does between them.
func TestRunnerTimesTheRun(t *testing.T) {
	var now time.Duration
	resets := 0
	w := &work{id: "x", cells: []*cell{{contestant: ours, open: func() *job {
		return &job{n: 2, reset: func() { resets++; now += time.Second }, run: func(n int) { now += time.Duration(n) * 3 * time.Microsecond }}
	}}}}
	r := &runner{options: options{passes: 2, window: 60 * time.Microsecond, procs: 2, slow: time.Second}, log: io.Discard, cpu: func() time.Duration { return now }}
	r.measure(w)
	// 1 and 10 rounds to calibrate, then two passes of 10.
	if ns, ok := w.cell(ours).ns(); !ok || ns != 3000 || resets != 1+10+20 {
		t.Errorf("an operation of 3 us takes %v ns, %v; %d resets", ns, ok, resets)
	}
}

// A round trip each, in the steady state.
func TestStoreCalls(t *testing.T) {
	want := map[string]float64{"calls/assign": 1, "calls/release": 1, "calls/handle": 2, "calls/first": 3}
	for _, f := range storeCalls() {
		if f.values[ours] != want[f.id] || f.values[theirs] <= f.values[ours] {
			t.Errorf("%s: %v, ours should be %v", f.title, f.values, want[f.id])
		}
	}
}
