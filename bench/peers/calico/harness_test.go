package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	quiet()
	os.Exit(m.Run())
}

// small reports whether a work's state is built in no time.
func small(id string) bool {
	return !strings.HasSuffix(id, "/65536") && !strings.HasSuffix(id, "/100000") && !strings.HasSuffix(id, "/1024")
}

// Every work runs for every contestant, more than once, and leaves a state that it can begin with.
func TestWorksRun(t *testing.T) {
	for _, w := range must(program(new(*etcd)).Works()) {
		if !small(w.ID) {
			continue
		}
		for _, c := range w.Cells {
			j := c.Open()
			for range 2 {
				if j.Reset != nil {
					j.Reset()
				}
				j.Run(max(j.N, 2*j.Grain, 2))
			}
			if j.Close != nil {
				j.Close()
			}
		}
	}
}

// Every work has an id and columns of its own, and every target is measured.
func TestProgram(t *testing.T) {
	server := &etcd{}
	if err := program(&server).Check("crowd/errors", "crowd/extra", "memory/built", "memory/heap", "memory/load"); err != nil {
		t.Error(err)
	}
}

// A run measures, prints the tables and refreshes a file between the markers.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-passes", "1", "-window", "1ms", "-only", "^engine/0@"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"**" + sectionEngine + "**", "| AutoAssign + release, a host with a /26 of which 0 are held ", "Medians of 1 interleaved", "not measured"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
