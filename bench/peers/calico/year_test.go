package main

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// yearFile is from bench/scale: -days 4 -nodes 20 -pods 250 -tick 2h.
const yearFile = "testdata/year.calls"

// The same days on both: neither makes a mistake, and both hold what the calls leave.
func TestYearOnBoth(t *testing.T) {
	data := must(os.ReadFile(yearFile))
	us := must(replayYear(bytes.NewReader(data), newOursYear(), false))
	them := must(replayYear(bytes.NewReader(data), newCalicoYear(), false))
	if len(us.days) != 4 || len(them.days) != 4 {
		t.Fatalf("%d and %d days", len(us.days), len(them.days))
	}
	for i, d := range us.days {
		if s, o := d.state, them.days[i].state; s[held] != o[held] || s[held] == 0 || s[blocks] < s[needed] || o[blocks] < o[needed] {
			t.Errorf("day %d: %v at midnight, with Calico %v", i, s, o)
		}
		for k, name := range yearNames {
			u, o := d.uses[k], them.days[i].uses[k]
			if u[calls] != o[calls] || u[calls] == 0 || k != yearTidy && (u[trips] >= o[trips] || u[moved] >= o[moved] || u[moved] == 0) {
				t.Errorf("day %d, %s: %v, with Calico %v", i, name, u, o)
			}
		}
	}
}

// wrong is an engine that makes mistakes.
type wrong struct {
	*oursYear
	assigned func(lease) lease
	freed    func(holder) holder
	seen     func(stored)
}

func (w *wrong) assign(host, handle string, blocks int) (lease, error) {
	l, err := w.oursYear.assign(host, handle, blocks)
	return w.assigned(l), err
}

func (w *wrong) free(h holder) error { return w.oursYear.free(w.freed(h)) }

func (w *wrong) look() stored {
	s := w.oursYear.look()
	w.seen(s)
	return s
}

// The oracle ends a run at each kind of mistake, or counts it. A line that is no call is an error.
func TestYearOracle(t *testing.T) {
	const good = "p 10.0.0.0/24 28\nt 1893456000\na 1 1\na 2 1\nf 2\nd\nd\nd\n"
	right := func() *wrong {
		return &wrong{newOursYear(), func(l lease) lease { return l }, func(h holder) holder { return h }, func(stored) {}}
	}
	first := netip.MustParseAddr("10.0.0.0")
	for want, breaks := range map[string]func(w *wrong){
		"an address given twice":      func(w *wrong) { w.assigned = func(lease) lease { return lease{addr: first} } },
		"no address":                  func(w *wrong) { w.assigned = func(lease) lease { return lease{} } },
		"ReleaseByHandle failed":      func(w *wrong) { w.freed = func(h holder) holder { h.handle = "pod-1"; return h } },
		"an address lost":             func(w *wrong) { w.seen = func(s stored) { clear(s.handles) } },
		"addresses that nobody holds": func(w *wrong) { w.seen = func(s stored) { s.handles[first.Prev()] = "pod-9" } },
	} {
		strict, lenient := right(), right()
		breaks(strict)
		breaks(lenient)
		if _, err := replayYear(strings.NewReader(good), strict, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if y, err := replayYear(strings.NewReader(good), lenient, true); err != nil || y.faults[want] == 0 {
			t.Errorf("%s is not counted: %v", want, err)
		}
	}
	must(replayYear(strings.NewReader(good), right(), false))
	for _, text := range []string{"d\nd\n", good + "a 3 1\n", good + "f 2\n", good + "x\n", "p 10 28\n", "p 10.0.0.0/24 x\n", "t x\n"} {
		if _, err := replayYear(strings.NewReader(text), right(), false); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// A run refreshes its own part of a page.
func TestYearRun(t *testing.T) {
	readme := filepath.Join(t.TempDir(), "README.md")
	check(os.WriteFile(readme, []byte("<!-- year:begin -->\n<!-- year:end -->\n"), 0o644))
	check(run([]string{"-year", yearFile, "-readme", readme}, io.Discard, io.Discard))
	text := string(must(os.ReadFile(readme)))
	for _, want := range []string{"4 days of 20 nodes and 250 pods at the peak", "| RemoveHost, Calico ", "| addresses that are borrowed ", "No call of either failed"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if err := run([]string{"-year", readme + "x"}, io.Discard, io.Discard); err == nil {
		t.Error("there is no such file")
	}
}
